// What config.json and generation_config.json say (model.md 1), checked: sizes that the forward pass may rely on.
#pragma once

#include "base/json.h"
#include "base/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dgem::model {

struct LayerConfig {
  bool sliding = true;
  int head_dim = 0;
  int kv_heads = 0;
};

struct RopeConfig {
  double theta = 10000.0;
  // Share of the head dimension's pairs that turn ("proportional" rope; 1 for "default"). The frequency of pair i is
  // theta^(-2i/head_dim) in both.
  double rotary_factor = 1.0;
  int angles(int head_dim) const { return static_cast<int>(rotary_factor * head_dim / 2); }
};

struct Config {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  int num_attention_heads = 0;
  int num_experts = 0, top_k_experts = 0;
  int64_t moe_intermediate_size = 0;
  int sliding_window = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  float final_logit_softcapping = 30.0f;
  std::vector<LayerConfig> layers;
  RopeConfig sliding_rope, full_rope;
  int canvas_length = 256;
  int32_t bos_token_id = 2, pad_token_id = 0;
  std::vector<int32_t> eos_token_ids;
  int32_t image_token_id = -1, boi_token_id = -1, eoi_token_id = -1;
  bool has_vision = false;
  std::string quant_method;    // "", "modelopt", "compressed-tensors", ... as told; loading goes by the tensors
  std::string prompt_version;  // config.json "dgem": {"prompt": ...}: the prompt wording that the weights were trained with

  int num_layers() const { return static_cast<int>(layers.size()); }
};

// generation_config.json (model.md 1.2, 4); absent fields keep these values.
struct GenerationConfig {
  int max_new_tokens = 256;
  int max_denoising_steps = 48;
  double t_min = 0.4, t_max = 0.8;
  double entropy_bound = 0.1;
  int stability_threshold = 1;
  double confidence_threshold = 0.005;
  std::vector<int32_t> eos_token_ids;  // empty: the model's
  int32_t pad_token_id = 0;
};

// Accepts Google's form and the per_layer_config form. Errors carry a JSON pointer and say what was expected; sizes
// that could overflow later are refused.
Result<Config> parse_config(const json::Value& root);
Result<GenerationConfig> parse_generation_config(const json::Value& root);

}  // namespace dgem::model
