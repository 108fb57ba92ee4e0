#include "model/config.h"

#include "model/config_fields.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace dgem::model {
namespace {

// Limits far above any real model. Together they keep every product of sizes that the program forms within 63 bits.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxWidth = int64_t{1} << 17;  // hidden and intermediate sizes
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int64_t kMaxCanvas = int64_t{1} << 16;
constexpr int64_t kMaxTensorElements = int64_t{1} << 40;

constexpr int kFullLayerPeriod = 6;  // without layer_types: every sixth layer is a full-attention layer
constexpr int kDefaultGlobalHeadDim = 512;

struct HeadSizes {
  int head_dim = 0;
  int kv_heads = 0;
};

// "sliding_attention" / "full_attention" per layer; without the key, 5:1 with a full last layer (model.md 1.1).
std::vector<bool> sliding_layers(Fields& text, int layers) {
  std::vector<bool> sliding(static_cast<size_t>(layers));
  const json::Value* types = text.find("layer_types");
  if (types == nullptr) {
    for (int l = 0; l < layers; ++l) sliding[static_cast<size_t>(l)] = (l + 1) % kFullLayerPeriod != 0 && l + 1 != layers;
    return sliding;
  }
  if (!types->is_array() || types->array().size() != sliding.size()) {
    text.fail("layer_types", fmt::format("expected a list of {} layer types, one for each layer", layers));
    return sliding;
  }
  for (size_t l = 0; l < sliding.size(); ++l) {
    const json::Value& type = types->array()[l];
    sliding[l] = type == json::Value("sliding_attention");
    if (!sliding[l] && type != json::Value("full_attention")) {
      text.fail(fmt::format("layer_types/{}", l), "expected \"sliding_attention\" or \"full_attention\"");
    }
  }
  return sliding;
}

HeadSizes read_head_sizes(Fields& fields, const char* head_dim, const char* kv_heads, std::optional<HeadSizes> fallback) {
  std::optional<int64_t> default_dim, default_heads;
  if (fallback) default_dim = fallback->head_dim, default_heads = fallback->kv_heads;
  return {static_cast<int>(fields.integer(head_dim, 2, kMaxHeadDim, default_dim)),
          static_cast<int>(fields.integer(kv_heads, 1, kMaxHeads, default_heads))};
}

// Google's form has global_head_dim and num_global_key_value_heads for the full layers; transformers 5.17 writes
// head_dim and num_key_value_heads of the layers that differ into per_layer_config instead (model.md 1.1).
std::vector<LayerConfig> read_layers(Fields& text, Error& error) {
  const auto count = static_cast<int>(text.integer("num_hidden_layers", 1, kMaxLayers));
  const HeadSizes sliding = read_head_sizes(text, "head_dim", "num_key_value_heads", std::nullopt);
  const json::Value* per_layer = text.find("per_layer_config");
  const HeadSizes full = read_head_sizes(text, "global_head_dim", "num_global_key_value_heads",
                                         HeadSizes{per_layer ? sliding.head_dim : kDefaultGlobalHeadDim, sliding.kv_heads});
  std::vector<LayerConfig> layers;
  for (const bool is_sliding : sliding_layers(text, count)) {
    const HeadSizes& sizes = is_sliding ? sliding : full;
    layers.push_back({is_sliding, sizes.head_dim, sizes.kv_heads});
  }
  if (per_layer == nullptr) return layers;
  if (!per_layer->is_object()) {
    text.fail("per_layer_config", fmt::format("expected an object of layer -> sizes, found {}", per_layer->kind()));
    return layers;
  }
  for (const auto& [key, value] : per_layer->object()) {
    const std::string where = text.pointer("per_layer_config") + "/" + json::pointer_token(key);
    const std::optional<int> layer = parse_index(key, count);
    if (!layer || !value.is_object()) {
      text.fail("per_layer_config",
                fmt::format("expected keys from 0 to {} with objects, found \"{}\"", count - 1, key.substr(0, 40)));
      return layers;
    }
    LayerConfig& config = layers[static_cast<size_t>(*layer)];
    Fields fields(value, where, error);
    const HeadSizes sizes =
        read_head_sizes(fields, "head_dim", "num_key_value_heads", HeadSizes{config.head_dim, config.kv_heads});
    config.head_dim = sizes.head_dim;
    config.kv_heads = sizes.kv_heads;
  }
  return layers;
}

RopeConfig read_rope(Fields& all, const char* kind, RopeConfig fallback, Error& error) {
  const json::Value* value = all.find(kind);
  if (value == nullptr) return fallback;
  if (!value->is_object()) {
    all.fail(kind, fmt::format("expected an object with rope_type and rope_theta, found {}", value->kind()));
    return fallback;
  }
  Fields fields(*value, all.pointer(kind), error);
  const std::string type = fields.string("rope_type", "default");
  if (type != "default" && type != "proportional") {
    fields.fail("rope_type", fmt::format("expected \"default\" or \"proportional\", found \"{}\"; others are not supported",
                                         type.substr(0, 40)));
  }
  RopeConfig rope;
  rope.theta = fields.number("rope_theta", 1.0, 1e15, fallback.theta);
  rope.rotary_factor = fields.number("partial_rotary_factor", 1e-6, 1.0, 1.0);
  if (type == "default" && rope.rotary_factor != 1.0) {
    fields.fail("partial_rotary_factor",
                "expected 1 with rope_type \"default\"; a part is supported with \"proportional\" only");
  }
  return rope;
}

void read_ropes(Fields& text, Config& config, Error& error) {
  constexpr RopeConfig kSliding{10000.0, 1.0}, kFull{1000000.0, 0.25};
  config.sliding_rope = kSliding;
  config.full_rope = kFull;
  const json::Value* value = text.find("rope_parameters");
  if (value == nullptr) return;
  if (!value->is_object()) {
    text.fail("rope_parameters", fmt::format("expected an object, found {}", value->kind()));
    return;
  }
  Fields fields(*value, text.pointer("rope_parameters"), error);
  if (value->find("rope_type") != nullptr || value->find("rope_theta") != nullptr) {
    text.fail("rope_parameters", "expected the objects sliding_attention and full_attention, found one set for all layers");
    return;
  }
  config.sliding_rope = read_rope(fields, "sliding_attention", kSliding, error);
  config.full_rope = read_rope(fields, "full_attention", kFull, error);
}

// What would change the computation and is not implemented.
void refuse_unsupported(Fields& root, Fields& text, Error& error) {
  root.expect_bool("tie_word_embeddings", true, "a separate output matrix is not supported");
  text.expect_bool("tie_word_embeddings", true, "a separate output matrix is not supported");
  text.expect_bool("attention_bias", false, "linear layers with a bias are not supported");
  text.expect_bool("attention_k_eq_v", true, "full-attention layers take their values from the key projection");
  text.expect_bool("enable_moe_block", true, "every layer has experts");
  text.expect_bool("use_double_wide_mlp", false, "it is not supported");
  text.expect_zero("num_kv_shared_layers", "keys shared between layers are not supported");
  text.expect_zero("hidden_size_per_layer_input", "per-layer input embeddings are not supported");
  if (text.find("attn_logit_softcapping") != nullptr) {
    text.fail("attn_logit_softcapping", "expected null; capping of attention logits is not supported");
  }
  const std::string activation = text.string("hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh") {
    text.fail("hidden_activation", fmt::format("expected \"gelu_pytorch_tanh\", found \"{}\"; others are not supported",
                                               activation.substr(0, 40)));
  }
  const json::Value* vision = root.find("vision_config");
  if (vision == nullptr) return;
  if (!vision->is_object()) {
    root.fail("vision_config", fmt::format("expected an object or null, found {}", vision->kind()));
    return;
  }
  Fields fields(*vision, root.pointer("vision_config"), error);
  fields.expect_bool("use_clipped_linears", false, "clipped linear layers are not supported");
}

void read_token_ids(Fields& root, Fields& text, Config& config) {
  const int64_t last = std::max<int64_t>(config.vocab_size, 1) - 1;
  config.bos_token_id = static_cast<int32_t>(text.integer("bos_token_id", 0, last, 2));
  config.pad_token_id = static_cast<int32_t>(text.integer("pad_token_id", 0, last, 0));
  config.eos_token_ids = root.token_ids("eos_token_id", last);
  if (config.eos_token_ids.empty()) config.eos_token_ids = text.token_ids("eos_token_id", last);
  if (config.eos_token_ids.empty()) config.eos_token_ids = {1};
  config.image_token_id = static_cast<int32_t>(root.integer("image_token_id", -1, last, -1));
  config.boi_token_id = static_cast<int32_t>(root.integer("boi_token_id", -1, last, -1));
  config.eoi_token_id = static_cast<int32_t>(root.integer("eoi_token_id", -1, last, -1));
}

void read_sizes(Fields& root, Fields& text, Config& config) {
  config.vocab_size = text.integer("vocab_size", 3, kMaxVocab);
  config.hidden_size = text.integer("hidden_size", 1, kMaxWidth);
  config.intermediate_size = text.integer("intermediate_size", 1, kMaxWidth);
  config.num_attention_heads = static_cast<int>(text.integer("num_attention_heads", 1, kMaxHeads));
  config.num_experts = static_cast<int>(text.integer("num_experts", 1, kMaxExperts));
  config.top_k_experts = static_cast<int>(text.integer("top_k_experts", 1, std::max(config.num_experts, 1)));
  config.moe_intermediate_size = text.integer("moe_intermediate_size", 1, kMaxWidth);
  config.sliding_window = static_cast<int>(text.integer("sliding_window", 1, kMaxPositions));
  config.max_position_embeddings = text.integer("max_position_embeddings", 1, kMaxPositions);
  config.rms_norm_eps = static_cast<float>(text.number("rms_norm_eps", 1e-12, 1.0, 1e-6));
  config.final_logit_softcapping = static_cast<float>(text.number("final_logit_softcapping", 1e-3, 1e6, 30.0));
  config.canvas_length = static_cast<int>(root.integer("canvas_length", 1, kMaxCanvas, 256));
}

// Sizes that are fine one by one may be too much together.
void check_products(Fields& text, const Config& config) {
  if (config.vocab_size * config.hidden_size > kMaxTensorElements) {
    text.fail("vocab_size", fmt::format("{} · hidden_size {} is too large", config.vocab_size, config.hidden_size));
  }
  if (2 * config.moe_intermediate_size * config.hidden_size * config.num_experts > kMaxTensorElements) {
    text.fail("num_experts", fmt::format("{} experts of {} · {} are too large", config.num_experts,
                                         config.moe_intermediate_size, config.hidden_size));
  }
  for (size_t l = 0; l < config.layers.size(); ++l) {
    const LayerConfig& layer = config.layers[l];
    if (config.num_attention_heads % layer.kv_heads != 0) {
      text.fail("num_attention_heads", fmt::format("{} query heads cannot share {} key-value heads evenly (layer {})",
                                                   config.num_attention_heads, layer.kv_heads, l));
      return;
    }
    if (int64_t{config.num_attention_heads} * layer.head_dim > kMaxWidth) {
      text.fail("num_attention_heads", fmt::format("{} heads of {} are too wide (layer {}); at most {} together",
                                                   config.num_attention_heads, layer.head_dim, l, kMaxWidth));
      return;
    }
    if (layer.head_dim % 2 != 0) {
      text.fail("head_dim", fmt::format("expected an even number, found {} (layer {})", layer.head_dim, l));
      return;
    }
  }
}

std::string nested_string(const json::Value& root, const char* object, const char* key) {
  const json::Value* outer = root.find(object);
  const json::Value* inner = outer ? outer->find(key) : nullptr;
  return inner != nullptr && inner->is_string() ? inner->string() : std::string();
}

}  // namespace

Result<Config> parse_config(const json::Value& root) {
  if (!root.is_object()) return make_error("expected an object, found {}", root.kind());
  const json::Value* type = root.find("model_type");
  if (type == nullptr || !type->is_string() || type->string() != "diffusion_gemma") {
    return Error{fmt::format("expected model_type \"diffusion_gemma\", found {}; dgem runs DiffusionGemma checkpoints only",
                             type == nullptr ? "none" : json::write(*type).substr(0, 60)),
                 "/model_type"};
  }
  const json::Value* text_value = root.find("text_config");
  if (text_value == nullptr || !text_value->is_object())
    return Error{"expected an object with the sizes of the text model", "/text_config"};

  Error error;
  Fields top(root, "", error);
  Fields text(*text_value, "/text_config", error);
  const std::string text_type = text.string("model_type", "diffusion_gemma_text");
  if (text_type != "diffusion_gemma_text") {
    text.fail("model_type", fmt::format("expected \"diffusion_gemma_text\", found \"{}\"", text_type.substr(0, 40)));
  }
  Config config;
  refuse_unsupported(top, text, error);
  read_sizes(top, text, config);
  if (error.message.empty()) config.layers = read_layers(text, error);
  if (error.message.empty()) check_products(text, config);
  read_ropes(text, config, error);
  read_token_ids(top, text, config);
  config.has_vision = top.find("vision_config") != nullptr;
  config.quant_method = nested_string(root, "quantization_config", "quant_method");
  config.prompt_version = nested_string(root, "dgem", "prompt");
  if (!error.message.empty()) return error;
  return config;
}

Result<GenerationConfig> parse_generation_config(const json::Value& root) {
  if (!root.is_object()) return make_error("expected an object, found {}", root.kind());
  Error error;
  Fields fields(root, "", error);
  GenerationConfig config;
  config.max_new_tokens = static_cast<int>(fields.integer("max_new_tokens", 1, kMaxPositions, config.max_new_tokens));
  config.max_denoising_steps =
      static_cast<int>(fields.integer("max_denoising_steps", 1, 100000, config.max_denoising_steps));
  config.t_min = fields.number("t_min", 1e-6, 1e6, config.t_min);
  config.t_max = fields.number("t_max", 1e-6, 1e6, config.t_max);
  config.stability_threshold = static_cast<int>(fields.integer("stability_threshold", 0, 1000, config.stability_threshold));
  config.confidence_threshold = fields.number("confidence_threshold", 0.0, 1e6, config.confidence_threshold);
  config.eos_token_ids = fields.token_ids("eos_token_id", kMaxVocab - 1);
  config.pad_token_id = static_cast<int32_t>(fields.integer("pad_token_id", 0, kMaxVocab - 1, config.pad_token_id));
  if (const json::Value* sampler = fields.find("sampler_config"); sampler != nullptr) {
    if (!sampler->is_object()) {
      fields.fail("sampler_config", fmt::format("expected an object or null, found {}", sampler->kind()));
    } else {
      Fields inner(*sampler, "/sampler_config", error);
      const std::string name = inner.string("_cls_name", "EntropyBoundSamplerConfig");
      if (name != "EntropyBoundSamplerConfig") {
        inner.fail("_cls_name", fmt::format("expected \"EntropyBoundSamplerConfig\", found \"{}\"", name.substr(0, 60)));
      }
      config.entropy_bound = inner.number("entropy_bound", 0.0, 1e9, config.entropy_bound);
    }
  }
  if (!error.message.empty()) return error;
  return config;
}

}  // namespace dgem::model
