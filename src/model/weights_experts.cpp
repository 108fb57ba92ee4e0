#include "model/weights_experts.h"

namespace dgem::model {
namespace {

// Rows [first, first + rows) of the [*, cols] matrix that starts at a fused tensor's data.
ops::Matrix slice(const Tensor& fused, int64_t first, int64_t rows, int64_t cols) {
  const auto offset = static_cast<size_t>(first * cols) * bytes_of(fused.type);
  return {.data = fused.data + offset, .format = *plain_format(fused.type), .rows = rows, .cols = cols, .row_scales = {}};
}

void slice_experts(const Config& config, const Tensor& gate_up, const Tensor& down, LayerWeights& layer) {
  const int64_t m = config.moe_intermediate_size, h = config.hidden_size;
  for (int64_t e = 0; e < config.num_experts; ++e) {
    layer.expert_gate.push_back(slice(gate_up, 2 * m * e, m, h));
    layer.expert_up.push_back(slice(gate_up, 2 * m * e + m, m, h));
    layer.expert_down.push_back(slice(down, h * e, h, m));
  }
}

}  // namespace

Status load_experts(const WeightFinder& finder, const Config& config, const std::string& prefix, LayerWeights& layer) {
  const int64_t experts = config.num_experts, m = config.moe_intermediate_size, h = config.hidden_size;
  const std::string base = prefix + "experts.";
  DGEM_ASSIGN(const Tensor* gate_up, finder.plain(base + "gate_up_proj", {experts, 2 * m, h}));
  DGEM_ASSIGN(const Tensor* down, finder.plain(base + "down_proj", {experts, h, m}));
  if (gate_up != nullptr && down != nullptr) {
    slice_experts(config, *gate_up, *down, layer);
    return {};
  }
  if ((gate_up == nullptr) != (down == nullptr)) {
    return make_error("tensor {}{}{} is missing, though {} is there", kDecoder, base, gate_up ? "down_proj" : "gate_up_proj",
                      (gate_up ? gate_up : down)->name);
  }
  for (int64_t e = 0; e < experts; ++e) {
    const std::string expert = fmt::format("{}{}.", base, e);
    DGEM_ASSIGN(const ops::Matrix gate, finder.matrix(expert + "gate_proj", m, h));
    DGEM_ASSIGN(const ops::Matrix up, finder.matrix(expert + "up_proj", m, h));
    DGEM_ASSIGN(const ops::Matrix down_one, finder.matrix(expert + "down_proj", h, m));
    layer.expert_gate.push_back(gate);
    layer.expert_up.push_back(up);
    layer.expert_down.push_back(down_one);
  }
  return {};
}

}  // namespace dgem::model
