// A read: one pass over the prompt and one or more canvases gives a distribution over the labels of every slot.
#pragma once

#include "base/result.h"
#include "decide/answer_template.h"
#include "model/model.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dgem::decide {

inline constexpr int kMaxSamples = 64;

struct ReadOptions {
  uint64_t seed = 0;
  int samples = 1;  // draws of the slot noise, 1 to kMaxSamples, whose distributions are averaged
};

// For each slot the probability of each label: the softmax of the label logits at temperature 1 (model.md 5.6). All
// draws share the prompt's keys and values in a single pass. Errors: prompts that are too long for the model, tokens that
// its vocabulary does not have.
Result<std::vector<std::vector<double>>> read(model::Model& model, std::span<const int32_t> prompt, const Canvas& canvas,
                                              const ReadOptions& options);

}  // namespace dgem::decide
