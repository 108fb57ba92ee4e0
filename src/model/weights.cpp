#include "model/weights.h"

#include "base/json.h"
#include "model/weights_experts.h"
#include "model/weights_finder.h"

#include <algorithm>
#include <filesystem>

namespace dgem::model {
namespace {

Status load_norms(const WeightFinder& finder, const Config& config, const LayerConfig& sizes, const std::string& prefix,
                  LayerWeights& layer) {
  const int64_t h = config.hidden_size;
  DGEM_ASSIGN(layer.input_norm, finder.vector(prefix + "input_layernorm.weight", h));
  DGEM_ASSIGN(layer.post_attention_norm, finder.vector(prefix + "post_attention_layernorm.weight", h));
  DGEM_ASSIGN(layer.pre_feedforward_norm, finder.vector(prefix + "pre_feedforward_layernorm.weight", h));
  DGEM_ASSIGN(layer.pre_feedforward_norm_2, finder.vector(prefix + "pre_feedforward_layernorm_2.weight", h));
  DGEM_ASSIGN(layer.post_feedforward_norm, finder.vector(prefix + "post_feedforward_layernorm.weight", h));
  DGEM_ASSIGN(layer.post_feedforward_norm_1, finder.vector(prefix + "post_feedforward_layernorm_1.weight", h));
  DGEM_ASSIGN(layer.post_feedforward_norm_2, finder.vector(prefix + "post_feedforward_layernorm_2.weight", h));
  DGEM_ASSIGN(layer.q_norm, finder.vector(prefix + "self_attn.q_norm.weight", sizes.head_dim));
  DGEM_ASSIGN(layer.k_norm, finder.vector(prefix + "self_attn.k_norm.weight", sizes.head_dim));
  return {};
}

Status load_linears(const WeightFinder& finder, const Config& config, const LayerConfig& sizes, const std::string& prefix,
                    LayerWeights& layer) {
  const int64_t h = config.hidden_size, i = config.intermediate_size;
  const int64_t q = int64_t{config.num_attention_heads} * sizes.head_dim;
  const int64_t kv = int64_t{sizes.kv_heads} * sizes.head_dim;
  DGEM_ASSIGN(layer.q_proj, finder.matrix(prefix + "self_attn.q_proj", q, h));
  DGEM_ASSIGN(layer.k_proj, finder.matrix(prefix + "self_attn.k_proj", kv, h));
  if (sizes.sliding) {
    DGEM_ASSIGN(layer.v_proj, finder.matrix(prefix + "self_attn.v_proj", kv, h));
  }
  DGEM_ASSIGN(layer.o_proj, finder.matrix(prefix + "self_attn.o_proj", h, q));
  DGEM_ASSIGN(layer.mlp_gate, finder.matrix(prefix + "mlp.gate_proj", i, h));
  DGEM_ASSIGN(layer.mlp_up, finder.matrix(prefix + "mlp.up_proj", i, h));
  DGEM_ASSIGN(layer.mlp_down, finder.matrix(prefix + "mlp.down_proj", h, i));
  DGEM_ASSIGN(layer.router, finder.matrix(prefix + "router.proj", config.num_experts, h));
  DGEM_ASSIGN(layer.router_scale, finder.vector(prefix + "router.scale", h));
  DGEM_ASSIGN(layer.per_expert_scale, finder.vector(prefix + "router.per_expert_scale", config.num_experts));
  return {};
}

// Encoder and decoder have their own; a checkpoint that stores one means it for both.
Status load_scalars(const WeightFinder& finder, const std::string& prefix, LayerWeights& layer) {
  const std::string name = prefix + "layer_scalar";
  DGEM_ASSIGN(const std::optional<float> decoder, finder.scalar(std::string(kDecoder) + name));
  DGEM_ASSIGN(const std::optional<float> encoder, finder.scalar(std::string(kEncoder) + name));
  if (!decoder && !encoder) {
    return make_error("tensor {}{} is missing: expected one number, as is {}{}", kDecoder, name, kEncoder, name);
  }
  layer.decoder_scalar = decoder ? *decoder : *encoder;
  layer.encoder_scalar = encoder ? *encoder : *decoder;
  return {};
}

Status load_layer(const WeightFinder& finder, const Config& config, size_t index, LayerWeights& layer) {
  const std::string prefix = fmt::format("layers.{}.", index);
  const LayerConfig& sizes = config.layers[index];
  DGEM_RETURN_IF_ERROR(load_norms(finder, config, sizes, prefix, layer));
  DGEM_RETURN_IF_ERROR(load_linears(finder, config, sizes, prefix, layer));
  DGEM_RETURN_IF_ERROR(load_scalars(finder, prefix, layer));
  return load_experts(finder, config, prefix, layer);
}

// Weights that the forward pass would leave out without a word.
Status refuse_biases(const TensorFiles& files) {
  for (const auto& [name, tensor] : files.tensors()) {
    if (name.ends_with(".bias") && (name.starts_with(kDecoder) || name.starts_with(kEncoder))) {
      return make_error("tensor {}: linear layers with a bias are not supported", name);
    }
  }
  return {};
}

Result<TextWeights> load_text(const TensorFiles& files, const Config& config) {
  DGEM_RETURN_IF_ERROR(refuse_biases(files));
  const WeightFinder finder(files);
  const int64_t h = config.hidden_size, i = config.intermediate_size;
  TextWeights text;
  DGEM_ASSIGN(text.embedding, finder.embedding(config.vocab_size, h));
  DGEM_ASSIGN(text.final_norm, finder.vector("norm.weight", h));
  DGEM_ASSIGN(text.self_conditioning_norm, finder.vector("self_conditioning.pre_norm.weight", h));
  DGEM_ASSIGN(text.self_conditioning_gate, finder.matrix("self_conditioning.gate_proj", i, h));
  DGEM_ASSIGN(text.self_conditioning_up, finder.matrix("self_conditioning.up_proj", i, h));
  DGEM_ASSIGN(text.self_conditioning_down, finder.matrix("self_conditioning.down_proj", h, i));
  text.layers.resize(config.layers.size());
  for (size_t l = 0; l < text.layers.size(); ++l) {
    DGEM_RETURN_IF_ERROR(load_layer(finder, config, l, text.layers[l]));
  }
  return text;
}

template <class T>
Result<T> in_file(const std::string& path, Result<T> result) {
  if (!result) return Error{fmt::format("{}: {}", path, result.error().message), result.error().pointer};
  return result;
}

}  // namespace

Result<Checkpoint> load_checkpoint(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return make_error("{}: expected a checkpoint directory", directory);
  Checkpoint checkpoint;
  checkpoint.directory = directory;

  const std::string config_path = (fs::path(directory) / "config.json").string();
  DGEM_ASSIGN(const json::Value config, json::parse_file(config_path));
  DGEM_ASSIGN(checkpoint.config, in_file(config_path, parse_config(config)));

  const std::string generation_path = (fs::path(directory) / "generation_config.json").string();
  if (fs::exists(generation_path, ignored)) {
    DGEM_ASSIGN(const json::Value generation, json::parse_file(generation_path));
    DGEM_ASSIGN(checkpoint.generation, in_file(generation_path, parse_generation_config(generation)));
  }
  DGEM_ASSIGN(checkpoint.files, TensorFiles::open(directory));
  DGEM_ASSIGN(checkpoint.text, in_file(directory, load_text(checkpoint.files, checkpoint.config)));
  return checkpoint;
}

Status check_fits(const Checkpoint& checkpoint, uint64_t memory) {
  const uint64_t needed = checkpoint.files.mapped_bytes();
  if (needed <= memory) return {};
  const auto& tensors = checkpoint.files.tensors();
  const auto largest = std::max_element(tensors.begin(), tensors.end(),
                                        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
  return make_error(
      "{}: the weights take {:.2f} GB, but there are {:.2f} GB of memory (the largest tensor is {} with {:.2f} GB): "
      "use a machine with more memory, or make the checkpoint smaller with dgem quantize",
      checkpoint.directory, static_cast<double>(needed) / 1e9, static_cast<double>(memory) / 1e9, largest->first,
      static_cast<double>(largest->second.bytes) / 1e9);
}

}  // namespace dgem::model
