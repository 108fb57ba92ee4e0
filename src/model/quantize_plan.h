// What quantize() packs, what it copies, and what the new checkpoint's tensors are.
#pragma once

#include "model/quantize.h"
#include "model/safetensors_writer.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dgem::model {

// A module to pack: `report` is its entry of QuantizePlan::modules.
struct PackJob {
  ops::Matrix source;
  size_t report = 0;
};

struct QuantizePlan {
  std::vector<QuantizedModule> modules;
  std::vector<std::vector<PackJob>> groups;  // modules of a group share their NVFP4 global factor
  std::vector<TensorSpec> tensors;           // of the new checkpoint, by name
  std::vector<const Tensor*> copies;         // one per tensor: the tensor to copy, nullptr for new ones

  size_t index_of(const std::string& name) const;  // into tensors; must exist
};

Result<QuantizePlan> plan_quantize(const Checkpoint& checkpoint, const QuantizeOptions& options);

}  // namespace dgem::model
