#include "model/synth.h"

#include "model/quantize.h"

#include <algorithm>

namespace dgem::model {
namespace {

void set_missing(json::Value& object, const char* key, json::Value value) {
  if (object.find(key) == nullptr) object.set(key, std::move(value));
}

void remove(json::Value& object, std::string_view key) {
  std::erase_if(object.object(), [&](const json::Member& member) { return member.first == key; });
}

// Special ids of the Gemma 4 vocabulary (model.md 2.2), for configurations of that size.
void set_token_ids(json::Value& root, int64_t vocab_size) {
  constexpr int64_t kGemmaVocab = 262144;
  if (vocab_size < kGemmaVocab) return;
  set_missing(root, "eos_token_id", json::Array{1, 106, 50});
  set_missing(root, "image_token_id", 258880);
  set_missing(root, "boi_token_id", 255999);
  set_missing(root, "eoi_token_id", 258882);
}

// Another number of layers: the default pattern of kinds, with the sizes that the layers of each kind have.
Status set_layers(json::Value& text, const Config& config, int layers) {
  const auto full =
      std::find_if(config.layers.begin(), config.layers.end(), [](const LayerConfig& l) { return !l.sliding; });
  if (full == config.layers.end()) {
    return make_error("--layers needs a configuration with a full-attention layer, as the last layer is one");
  }
  remove(text, "layer_types");
  remove(text, "per_layer_config");
  text.set("num_hidden_layers", layers);
  text.set("global_head_dim", full->head_dim);
  text.set("num_global_key_value_heads", full->kv_heads);
  return {};
}

}  // namespace

std::optional<SynthFormat> parse_synth_format(std::string_view name) {
  if (name == "f32") return SynthFormat::f32;
  if (name == "bf16") return SynthFormat::bf16;
  if (name == "nvfp4") return SynthFormat::nvfp4;
  return std::nullopt;
}

Result<json::Value> synth_config(const json::Value& given, const SynthOptions& options) {
  if (!given.is_object()) return make_error("expected an object, found {}", given.kind());
  json::Value root = given;
  set_missing(root, "architectures", json::Array{"DiffusionGemmaForBlockDiffusion"});
  set_missing(root, "model_type", "diffusion_gemma");
  set_missing(root, "tie_word_embeddings", true);
  root.set("dtype", options.format == SynthFormat::f32 ? "float32" : "bfloat16");
  remove(root, "vision_config");
  remove(root, "quantization_config");
  remove(root, "dgem");  // the prompt wording of trained weights
  DGEM_ASSIGN(const Config original, parse_config(root));

  json::Value text = *root.find("text_config");
  set_missing(text, "model_type", "diffusion_gemma_text");
  if (options.layers != 0) {
    DGEM_RETURN_IF_ERROR(set_layers(text, original, options.layers));
  }
  root.set("text_config", std::move(text));
  set_token_ids(root, original.vocab_size);
  if (options.format == SynthFormat::nvfp4) {
    if (original.hidden_size % 16 != 0 || original.moe_intermediate_size % 16 != 0) {
      return make_error("NVFP4 needs sizes that are multiples of 16, but hidden_size is {} and moe_intermediate_size {}",
                        original.hidden_size, original.moe_intermediate_size);
    }
    root.set("quantization_config",
             modelopt_config({"lm_head", "*embed_tokens*", "*self_attn*", "*.mlp.*", "*router*", "*self_conditioning*"}));
  }
  return root;
}

}  // namespace dgem::model
