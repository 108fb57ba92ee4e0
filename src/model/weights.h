// The weights of a checkpoint by role: views into the mapped files, checked for presence, shape and format.
#pragma once

#include "base/result.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "ops/views.h"

#include <string>
#include <vector>

namespace dgem::model {

struct LayerWeights {
  ops::Vector input_norm, post_attention_norm, pre_feedforward_norm, pre_feedforward_norm_2, post_feedforward_norm,
      post_feedforward_norm_1, post_feedforward_norm_2;
  ops::Vector q_norm, k_norm;
  ops::Matrix q_proj, k_proj, v_proj, o_proj;  // v_proj empty on full-attention layers
  ops::Matrix mlp_gate, mlp_up, mlp_down;
  ops::Matrix router;
  ops::Vector router_scale, per_expert_scale;
  std::vector<ops::Matrix> expert_gate, expert_up, expert_down;  // one per expert
  float encoder_scalar = 1.0f, decoder_scalar = 1.0f;
};

struct TextWeights {
  ops::Matrix embedding;  // [vocab, hidden]; also the head
  ops::Vector final_norm;
  std::vector<LayerWeights> layers;
  ops::Vector self_conditioning_norm;
  ops::Matrix self_conditioning_gate, self_conditioning_up, self_conditioning_down;
};

// A checkpoint directory, mapped. The views of `text` point into `files`, so they live as long as this object.
struct Checkpoint {
  std::string directory;
  Config config;
  GenerationConfig generation;
  TensorFiles files;
  TextWeights text;
};

// Errors name the tensor (or file) and what was expected.
Result<Checkpoint> load_checkpoint(const std::string& directory);

// Whether a forward pass can hold the checkpoint's weights in `memory` bytes; the error names the largest tensor.
Status check_fits(const Checkpoint& checkpoint, uint64_t memory);

}  // namespace dgem::model
