// The routed experts of a layer: one fused tensor for all of them, or a module each (model.md 7.1, 7.2).
#pragma once

#include "base/result.h"
#include "model/config.h"
#include "model/weights.h"
#include "model/weights_finder.h"

#include <string>

namespace dgem::model {

// Fills expert_gate, expert_up and expert_down of a layer; `prefix` is "layers.N.".
Status load_experts(const WeightFinder& finder, const Config& config, const std::string& prefix, LayerWeights& layer);

}  // namespace dgem::model
