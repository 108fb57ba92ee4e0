#include "model/config.h"

#include "model/test_checkpoint.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

namespace dgem::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

json::Value config_with(std::string_view key, json::Value value) {
  json::Value root = parse_json(kTinyConfig);
  json::Value text = *root.find("text_config");
  text.set(std::string(key), std::move(value));
  root.set("text_config", std::move(text));
  return root;
}

json::Value root_with(std::string_view key, json::Value value) {
  json::Value root = parse_json(kTinyConfig);
  root.set(std::string(key), std::move(value));
  return root;
}

Error error_of(const json::Value& root) {
  const auto config = parse_config(root);
  return config ? Error{} : config.error();
}

Config parse_ok(const json::Value& root) {
  auto config = parse_config(root);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : Config{};
}

std::vector<bool> kinds(const Config& config) {
  std::vector<bool> sliding;
  for (const LayerConfig& layer : config.layers) sliding.push_back(layer.sliding);
  return sliding;
}

TEST(Config, GooglesForm) {
  const Config config = parse_ok(parse_json(kTinyConfig));
  EXPECT_EQ(config.vocab_size, 96);
  EXPECT_EQ(config.layers.size(), 2u);
  EXPECT_TRUE(config.layers[0].sliding);
  EXPECT_EQ(config.layers[0].head_dim, 16);
  EXPECT_EQ(config.layers[0].kv_heads, 2);
  EXPECT_FALSE(config.layers[1].sliding);
  EXPECT_EQ(config.layers[1].head_dim, 32);
  EXPECT_EQ(config.layers[1].kv_heads, 1);
  EXPECT_EQ(config.sliding_rope.angles(16), 8);
  EXPECT_EQ(config.full_rope.theta, 1e6);
  EXPECT_EQ(config.full_rope.angles(512), 64);
  EXPECT_EQ(config.final_logit_softcapping, 30.0f);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
  EXPECT_EQ(config.bos_token_id, 2);
  EXPECT_EQ(config.image_token_id, -1);
  EXPECT_FALSE(config.has_vision);
}

TEST(Config, PerLayerForm) {
  for (const char* golden : {"odd", "sharp", "modelopt", "compressed"}) {
    const auto root = json::parse_file(fmt::format("{}/tests/goldens/{}/config.json", DGEM_SOURCE_DIR, golden));
    ASSERT_TRUE(root) << root.error().message;
    const Config config = parse_ok(*root);
    const bool odd = std::string(golden) == "odd";
    EXPECT_EQ(config.layers[0].head_dim, odd ? 24 : 16);
    EXPECT_EQ(config.layers[5].head_dim, odd ? 48 : 32);
    EXPECT_EQ(config.layers[5].kv_heads, odd ? 2 : 1);
    EXPECT_FALSE(config.layers[5].sliding);
    EXPECT_TRUE(config.has_vision);
    EXPECT_EQ(config.image_token_id, odd ? 407 : 316);
  }
}

TEST(Config, DefaultsForMissingFields) {
  const Config six = parse_ok(config_with("num_hidden_layers", 8));
  EXPECT_THAT(kinds(six), ElementsAre(true, true, true, true, true, false, true, false));

  json::Value root = parse_json(kTinyConfig);
  json::Value text = *root.find("text_config");
  std::erase_if(text.object(), [](const auto& m) {
    return m.first == "global_head_dim" || m.first == "num_global_key_value_heads" || m.first == "rope_parameters";
  });
  root.set("text_config", std::move(text));
  const Config config = parse_ok(root);
  EXPECT_EQ(config.layers[1].head_dim, 512);
  EXPECT_EQ(config.layers[1].kv_heads, 2);
  EXPECT_EQ(config.full_rope.rotary_factor, 0.25);
  EXPECT_EQ(config.sliding_rope.theta, 10000.0);
}

TEST(Config, ExplicitLayerTypes) {
  const Config config = parse_ok(config_with("layer_types", json::Array{"full_attention", "sliding_attention"}));
  EXPECT_THAT(kinds(config), ElementsAre(false, true));
  EXPECT_EQ(error_of(config_with("layer_types", json::Array{"full_attention"})).pointer, "/text_config/layer_types");
  EXPECT_EQ(error_of(config_with("layer_types", json::Array{"full_attention", "chunked"})).pointer,
            "/text_config/layer_types/1");
}

TEST(Config, ReadsTokenIdsPromptAndQuantization) {
  EXPECT_THAT(parse_ok(root_with("eos_token_id", json::Array{1, 50})).eos_token_ids, ElementsAre(1, 50));
  EXPECT_THAT(parse_ok(config_with("eos_token_id", 7)).eos_token_ids, ElementsAre(7));
  EXPECT_EQ(parse_ok(root_with("dgem", json::Object{{"prompt", "v2"}})).prompt_version, "v2");
  EXPECT_EQ(parse_ok(root_with("quantization_config", json::Object{{"quant_method", "modelopt"}})).quant_method, "modelopt");
  EXPECT_EQ(error_of(root_with("eos_token_id", 96)).pointer, "/eos_token_id");
  EXPECT_EQ(error_of(root_with("image_token_id", 96)).pointer, "/image_token_id");
}

TEST(Config, RefusesOtherModels) {
  EXPECT_THAT(error_of(root_with("model_type", "gemma3")).message,
              HasSubstr("expected model_type \"diffusion_gemma\", found \"gemma3\""));
  EXPECT_THAT(error_of(parse_json("{}")).message, HasSubstr("found none"));
  EXPECT_THAT(error_of(parse_json("[]")).message, HasSubstr("expected an object"));
  EXPECT_EQ(error_of(config_with("model_type", "gemma4_text")).pointer, "/text_config/model_type");
  EXPECT_EQ(error_of(root_with("text_config", nullptr)).pointer, "/text_config");
}

TEST(Config, RefusesWhatIsNotSupported) {
  EXPECT_EQ(error_of(config_with("attention_bias", true)).pointer, "/text_config/attention_bias");
  EXPECT_EQ(error_of(config_with("hidden_activation", "silu")).pointer, "/text_config/hidden_activation");
  EXPECT_EQ(error_of(config_with("num_kv_shared_layers", 2)).pointer, "/text_config/num_kv_shared_layers");
  EXPECT_EQ(error_of(config_with("hidden_size_per_layer_input", 256)).pointer, "/text_config/hidden_size_per_layer_input");
  EXPECT_EQ(error_of(config_with("attn_logit_softcapping", 50.0)).pointer, "/text_config/attn_logit_softcapping");
  EXPECT_EQ(error_of(root_with("tie_word_embeddings", false)).pointer, "/tie_word_embeddings");
  EXPECT_EQ(error_of(root_with("vision_config", json::Object{{"use_clipped_linears", true}})).pointer,
            "/vision_config/use_clipped_linears");
  EXPECT_EQ(error_of(config_with("attention_bias", nullptr)).message, "");
}

TEST(Config, RefusesRopesThatAreNotSupported) {
  const auto with_full = [](json::Value full) {
    return config_with("rope_parameters", json::Object{{"full_attention", std::move(full)}});
  };
  EXPECT_EQ(error_of(with_full(json::Object{{"rope_type", "yarn"}})).pointer,
            "/text_config/rope_parameters/full_attention/rope_type");
  EXPECT_EQ(error_of(with_full(json::Object{{"rope_type", "default"}, {"partial_rotary_factor", 0.5}})).pointer,
            "/text_config/rope_parameters/full_attention/partial_rotary_factor");
  EXPECT_EQ(error_of(with_full(json::Object{{"rope_type", "proportional"}, {"rope_theta", 0}})).pointer,
            "/text_config/rope_parameters/full_attention/rope_theta");
  EXPECT_EQ(error_of(config_with("rope_parameters", json::Object{{"rope_theta", 10000}})).pointer,
            "/text_config/rope_parameters");
  EXPECT_EQ(error_of(config_with("rope_parameters", 1)).pointer, "/text_config/rope_parameters");
}

TEST(Config, RangesAreChecked) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "head_dim", "global_head_dim", "num_experts", "top_k_experts",
                          "moe_intermediate_size", "sliding_window", "max_position_embeddings"}) {
    const std::string pointer = fmt::format("/text_config/{}", key);
    for (const json::Value& bad : {json::Value(0), json::Value(-1), json::Value(int64_t{1} << 40), json::Value(INT64_MAX),
                                   json::Value(UINT64_MAX), json::Value(1.5), json::Value("8"), json::Value(1e300)}) {
      EXPECT_EQ(error_of(config_with(key, bad)).pointer, pointer) << json::write(bad);
    }
  }
  EXPECT_EQ(error_of(config_with("hidden_size", nullptr)).pointer, "/text_config/hidden_size");
  EXPECT_EQ(error_of(config_with("rms_norm_eps", -1.0)).pointer, "/text_config/rms_norm_eps");
  EXPECT_EQ(error_of(root_with("canvas_length", 0)).pointer, "/canvas_length");
}

TEST(Config, SizesMustFitTogether) {
  EXPECT_EQ(error_of(config_with("top_k_experts", 5)).pointer, "/text_config/top_k_experts");
  EXPECT_THAT(error_of(config_with("num_key_value_heads", 3)).message, HasSubstr("cannot share 3 key-value heads"));
  EXPECT_THAT(error_of(config_with("head_dim", 15)).message, HasSubstr("even number"));
  json::Value root = config_with("vocab_size", int64_t{1} << 24);
  json::Value text = *root.find("text_config");
  text.set("hidden_size", int64_t{1} << 17);
  root.set("text_config", text);
  EXPECT_THAT(error_of(root).message, HasSubstr("too large"));
  text.set("vocab_size", 1000);
  text.set("num_experts", 4096);
  text.set("moe_intermediate_size", int64_t{1} << 17);
  root.set("text_config", text);
  EXPECT_THAT(error_of(root).message, HasSubstr("experts of 131072"));
}

TEST(Config, PerLayerKeysAreChecked) {
  const auto with = [](const char* key, json::Value value) {
    return config_with("per_layer_config", json::Object{{key, std::move(value)}});
  };
  EXPECT_EQ(parse_ok(with("0", json::Object{{"head_dim", 8}})).layers[0].head_dim, 8);
  for (const char* bad : {"2", "-1", "01", "", "x", "99999999999999999999"}) {
    EXPECT_EQ(error_of(with(bad, json::Object{})).pointer, "/text_config/per_layer_config") << bad;
  }
  EXPECT_EQ(error_of(with("1", json::Object{{"head_dim", 0}})).pointer, "/text_config/per_layer_config/1/head_dim");
  EXPECT_EQ(error_of(with("1", 3)).pointer, "/text_config/per_layer_config");
  EXPECT_EQ(error_of(config_with("per_layer_config", 3)).pointer, "/text_config/per_layer_config");
}

TEST(GenerationConfig, NullMeansDefault) {
  const auto config =
      parse_generation_config(parse_json(R"({"t_max": null, "sampler_config": null, "max_denoising_steps": 6})"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->t_max, 0.8);
  EXPECT_EQ(config->max_denoising_steps, 6);
  EXPECT_EQ(config->entropy_bound, 0.1);
  EXPECT_TRUE(config->eos_token_ids.empty());
}

TEST(GenerationConfig, ReadsAndChecks) {
  const auto config = parse_generation_config(
      parse_json(R"({"eos_token_id":[1,106,50],"t_min":0.3,)"
                 R"("sampler_config":{"_cls_name":"EntropyBoundSamplerConfig","entropy_bound":0.2}})"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 106, 50));
  EXPECT_EQ(config->entropy_bound, 0.2);
  EXPECT_EQ(config->t_min, 0.3);
  const auto pointer = [](const char* text) {
    const auto parsed = parse_generation_config(parse_json(text));
    return parsed ? "" : parsed.error().pointer;
  };
  EXPECT_EQ(pointer(R"({"t_min": 0})"), "/t_min");
  EXPECT_EQ(pointer(R"({"max_denoising_steps": 0})"), "/max_denoising_steps");
  EXPECT_EQ(pointer(R"({"eos_token_id": [1, -2]})"), "/eos_token_id");
  EXPECT_EQ(pointer(R"({"sampler_config": {"_cls_name": "Other"}})"), "/sampler_config/_cls_name");
  EXPECT_EQ(pointer(R"({"sampler_config": 3})"), "/sampler_config");
}

}  // namespace
}  // namespace dgem::model
