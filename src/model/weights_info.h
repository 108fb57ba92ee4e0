// What a loaded checkpoint consists of: parameters, formats and bytes by role.
#pragma once

#include "model/weights.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dgem::model {

struct RoleInfo {
  std::string role;     // "experts", "attention", ...
  std::string formats;  // "BF16", or several: "BF16, NVFP4"
  int64_t modules = 0;
  int64_t parameters = 0;
  int64_t active = 0;  // parameters that one token multiplies with in a first step, which is not self-conditioned
  int64_t bytes = 0;
};

struct CheckpointInfo {
  std::vector<RoleInfo> roles;  // of the text model, in the order of the forward pass
  int64_t parameters = 0, active = 0, text_bytes = 0;
  int64_t vision_parameters = 0;
  int64_t other_bytes = 0;  // tensors that no role uses: the vision model, activation scales, second copies
  int64_t file_bytes = 0;
};

CheckpointInfo describe(const Checkpoint& checkpoint);

// Expected share of the experts that `rows` rows touch if the router spreads them evenly (model.md 9.2).
double expected_expert_share(const Config& config, int64_t rows);

// Bytes of weights that one pass over `rows` rows reads, without embedding, head and self-conditioning (which begins with
// a block's second step).
int64_t bytes_per_pass(const Config& config, const CheckpointInfo& info, int64_t rows);

}  // namespace dgem::model
