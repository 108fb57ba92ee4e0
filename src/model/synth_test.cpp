#include "model/synth.h"

#include "base/numeric.h"
#include "model/dequantize.h"
#include "model/synth_random.h"
#include "model/test_checkpoint.h"
#include "model/weights_info.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace dgem::model {
namespace {

using ::testing::HasSubstr;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

struct Moments {
  double mean = 0.0, deviation = 0.0;
};

Moments moments(const std::vector<float>& v) {
  double sum = 0.0, squares = 0.0;
  for (const float x : v) sum += x, squares += static_cast<double>(x) * x;
  const double n = static_cast<double>(v.size());
  return {sum / n, std::sqrt(squares / n - (sum / n) * (sum / n))};
}

std::vector<std::byte> drawn(const Draw& draw, size_t bytes) {
  std::vector<std::byte> out(bytes);
  fill(draw, 0, out);
  return out;
}

TEST(SynthRandom, PiecesAreTheWhole) {
  for (const DrawKind kind : {DrawKind::uniform_f32, DrawKind::uniform_bf16, DrawKind::normal_f32, DrawKind::normal_bf16,
                              DrawKind::constant_f32, DrawKind::nvfp4_codes, DrawKind::nvfp4_scales}) {
    const Draw draw{kind, 0.5f, 2.0f, 42};
    const auto whole = drawn(draw, 1024);
    for (const size_t cut : {size_t{64}, size_t{192}, size_t{960}}) {
      std::vector<std::byte> pieces(1024);
      fill(draw, static_cast<int64_t>(cut), std::span(pieces).subspan(cut));
      fill(draw, 0, std::span(pieces).first(cut));
      EXPECT_EQ(pieces, whole) << static_cast<int>(kind) << " cut at " << cut;
    }
    if (kind == DrawKind::constant_f32) continue;
    EXPECT_NE(drawn({kind, 0.5f, 2.0f, 43}, 1024), whole) << static_cast<int>(kind);
  }
  EXPECT_NE(draw_key(1, "a"), draw_key(2, "a"));
  EXPECT_NE(draw_key(1, "a"), draw_key(1, "b"));
}

TEST(SynthRandom, ValuesHaveTheirDistribution) {
  constexpr size_t kCount = 1 << 16;
  std::vector<float> values(kCount);
  std::memcpy(values.data(), drawn({DrawKind::normal_f32, 0.0f, 0.25f, 7}, kCount * 4).data(), kCount * 4);
  EXPECT_NEAR(moments(values).mean, 0.0, 0.004);
  EXPECT_NEAR(moments(values).deviation, 0.25, 0.004);
  std::memcpy(values.data(), drawn({DrawKind::uniform_f32, 0.5f, 1.0f, 7}, kCount * 4).data(), kCount * 4);
  EXPECT_NEAR(moments(values).mean, 1.0, 0.005);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), 0.5f);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 1.5f);
}

TEST(SynthRandom, Nvfp4IsANormalDistribution) {
  constexpr int64_t kRows = 256, kCols = 512;
  const auto codes = drawn({DrawKind::nvfp4_codes, 0.0f, 0.0f, 9}, kRows * kCols / 2);
  const auto scales = drawn({DrawKind::nvfp4_scales, 0.0f, 0.0f, 9}, kRows * kCols / 16);
  const ops::Matrix m{.data = codes.data(),
                      .format = ops::Format::nvfp4,
                      .rows = kRows,
                      .cols = kCols,
                      .block_scales = reinterpret_cast<const uint8_t*>(scales.data()),
                      .scale = nvfp4_global_scale(0.1f),
                      .row_scales = {}};
  std::vector<float> values(kRows * kCols);
  for (int64_t r = 0; r < kRows; ++r) to_float(m, r, values.data() + r * kCols);
  EXPECT_NEAR(moments(values).mean, 0.0, 0.002);
  EXPECT_NEAR(moments(values).deviation, 0.1, 0.002);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 0.45f);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 0.3f);
}

TEST(Synth, EveryFormatLoads) {
  struct Case {
    SynthFormat format;
    ops::Format dense, experts;
  };
  for (const Case& c : {Case{SynthFormat::f32, ops::Format::f32, ops::Format::f32},
                        Case{SynthFormat::bf16, ops::Format::bf16, ops::Format::bf16},
                        Case{SynthFormat::nvfp4, ops::Format::bf16, ops::Format::nvfp4}}) {
    TinyCheckpoint tiny(c.format);
    tiny.save();
    const auto checkpoint = load_checkpoint(tiny.directory());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->text.layers[0].q_proj.format, c.dense);
    EXPECT_EQ(checkpoint->text.layers[1].expert_down[3].format, c.experts);
    EXPECT_EQ(checkpoint->config.quant_method, c.format == SynthFormat::nvfp4 ? "modelopt" : "");
  }
}

TEST(Synth, BytesDependOnTheSeedNotOnThreads) {
  const TestFolder folder;
  const auto make = [&](const char* name, uint64_t seed, int threads) {
    ThreadPool pool(threads);
    const std::string directory = folder.path() + "/" + name;
    const auto status = synthesize(parse_json(kTinyConfig), {.format = SynthFormat::nvfp4, .seed = seed}, directory, pool);
    EXPECT_TRUE(status) << status.error().message;
    return read_file(directory + "/model.safetensors");
  };
  const std::string one = make("a", 5, 1);
  EXPECT_FALSE(one.empty());
  EXPECT_TRUE(one == make("b", 5, 4));
  EXPECT_FALSE(one == make("c", 6, 1));
}

TEST(Synth, WeightsAreAwayFromOneAndScaledByFanIn) {
  TinyCheckpoint tiny;
  tiny.save();
  const auto c = load_checkpoint(tiny.directory());
  ASSERT_TRUE(c) << c.error().message;
  const LayerWeights& layer = c->text.layers[0];
  EXPECT_NE(layer.encoder_scalar, layer.decoder_scalar);
  for (const ops::Vector& norm : {layer.input_norm, layer.q_norm, layer.router_scale, layer.per_expert_scale}) {
    for (int64_t i = 0; i < norm.size; ++i) {
      EXPECT_GE(to_float(norm, i), 0.4f);
      EXPECT_LE(to_float(norm, i), 1.7f);
    }
  }
  for (int64_t i = 0; i < layer.post_attention_norm.size; ++i) EXPECT_LE(to_float(layer.post_attention_norm, i), 0.5f);
  std::vector<float> embedding(96 * 64);
  for (int64_t r = 0; r < 96; ++r) to_float(c->text.embedding, r, embedding.data() + r * 64);
  EXPECT_NEAR(moments(embedding).deviation, 1.2 / 8, 0.01);
}

TEST(Synth, CompletesTheConfiguration) {
  const auto root = json::parse(R"({"canvas_length":256,"text_config":{"vocab_size":262144,"hidden_size":2816,
      "intermediate_size":2112,"num_hidden_layers":30,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,
      "global_head_dim":512,"num_global_key_value_heads":2,"sliding_window":1024,"num_experts":128,"top_k_experts":8,
      "moe_intermediate_size":704,"max_position_embeddings":262144}})");
  ASSERT_TRUE(root) << root.error().message;
  const auto completed = synth_config(*root, {.format = SynthFormat::nvfp4, .layers = 7});
  ASSERT_TRUE(completed) << completed.error().message;
  const auto config = parse_config(*completed);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_layers(), 7);
  EXPECT_FALSE(config->layers[5].sliding);
  EXPECT_FALSE(config->layers[6].sliding);
  EXPECT_EQ(config->layers[6].head_dim, 512);
  EXPECT_EQ(config->layers[6].kv_heads, 2);
  EXPECT_EQ(config->eos_token_ids, (std::vector<int32_t>{1, 106, 50}));
  EXPECT_EQ(config->image_token_id, 258880);
  EXPECT_FALSE(config->has_vision);
}

TEST(Synth, LayersOfAPerLayerConfiguration) {
  const auto root = json::parse_file(DGEM_SOURCE_DIR "/tests/goldens/odd/config.json");
  ASSERT_TRUE(root) << root.error().message;
  const auto completed = synth_config(*root, {.format = SynthFormat::bf16, .layers = 3});
  ASSERT_TRUE(completed) << completed.error().message;
  const auto config = parse_config(*completed);
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->num_layers(), 3);
  EXPECT_EQ(config->layers[0].head_dim, 24);
  EXPECT_EQ(config->layers[2].head_dim, 48);
  EXPECT_EQ(config->layers[2].kv_heads, 2);
}

TEST(Synth, RefusesBadConfigurations) {
  const auto error = [](const char* text, SynthFormat format) {
    const auto config = synth_config(parse_json(text), {.format = format});
    return config ? "" : config.error().message;
  };
  EXPECT_THAT(error("[]", SynthFormat::bf16), HasSubstr("expected an object"));
  EXPECT_THAT(error(R"({"model_type":"llama"})", SynthFormat::bf16), HasSubstr("diffusion_gemma"));
  std::string odd = kTinyConfig;
  odd.replace(odd.find("\"moe_intermediate_size\": 32"), 27, "\"moe_intermediate_size\": 20");
  EXPECT_THAT(error(odd.c_str(), SynthFormat::nvfp4), HasSubstr("moe_intermediate_size 20"));
  EXPECT_EQ(error(odd.c_str(), SynthFormat::bf16), "");
  EXPECT_EQ(parse_synth_format("int8"), std::nullopt);
}

TEST(Synth, StopLeavesNoModel) {
  const TestFolder folder;
  const std::atomic<bool> stop{true};
  ThreadPool pool(2);
  EXPECT_THROW((void)synthesize(parse_json(kTinyConfig), {.format = SynthFormat::bf16, .stop = &stop}, folder.path(), pool),
               Fault);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(WeightsInfo, CountsByRole) {
  TinyCheckpoint tiny(SynthFormat::nvfp4);
  tiny.save();
  const auto checkpoint = load_checkpoint(tiny.directory());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const CheckpointInfo info = describe(*checkpoint);
  std::map<std::string, RoleInfo> roles;
  for (const RoleInfo& role : info.roles) roles[role.role] = role;
  EXPECT_EQ(roles["embedding and head"].parameters, 96 * 64);
  // 2 layers · 4 experts · 3 matrices of 64 · 32; two experts of four are active.
  EXPECT_EQ(roles["experts"].parameters, 2 * 4 * 3 * 64 * 32);
  EXPECT_EQ(roles["experts"].active, roles["experts"].parameters / 2);
  EXPECT_EQ(roles["experts"].bytes, 2 * 4 * 3 * (64 * 32 / 2 + 64 * 32 / 16 + 4));
  EXPECT_EQ(roles["experts"].formats, "NVFP4");
  // Sliding: q 64, k and v 32 rows, o. Full: q 128, k 32 rows, o.
  EXPECT_EQ(roles["attention"].parameters, (64 + 32 + 32) * 64 + 64 * 64 + (128 + 32) * 64 + 128 * 64);
  EXPECT_EQ(roles["attention"].bytes, 2 * roles["attention"].parameters);
  EXPECT_EQ(info.vision_parameters, 0);
  // Only the layer scalars belong to no role.
  EXPECT_EQ(info.other_bytes, 4 * 2);
}

TEST(WeightsInfo, BytesOfAPass) {
  TinyCheckpoint tiny;
  tiny.save();
  const auto checkpoint = load_checkpoint(tiny.directory());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const Config& config = checkpoint->config;
  EXPECT_DOUBLE_EQ(expected_expert_share(config, 1), 0.5);
  EXPECT_DOUBLE_EQ(expected_expert_share(config, 2), 0.75);
  const CheckpointInfo info = describe(*checkpoint);
  const int64_t left_out = (96 * 64 + 3 * 48 * 64) * 4;  // embedding and self-conditioning
  const int64_t experts = 2 * 4 * 3 * 64 * 32 * 4;
  EXPECT_EQ(bytes_per_pass(config, info, 1000), info.text_bytes - left_out);
  EXPECT_EQ(bytes_per_pass(config, info, 1), info.text_bytes - left_out - experts / 2);
}

}  // namespace
}  // namespace dgem::model
