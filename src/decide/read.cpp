#include "decide/read.h"

#include <algorithm>
#include <cmath>

namespace dgem::decide {

namespace {

Status check_fits(const model::Config& config, std::span<const int32_t> prompt, const Canvas& canvas) {
  const auto total = static_cast<int64_t>(prompt.size() + canvas.tokens.size());
  if (total > config.max_position_embeddings) {
    return make_error(
        "the prompt has {} tokens and the canvas {}, but the model takes at most {} in all: shorten the prompt",
        prompt.size(), canvas.tokens.size(), config.max_position_embeddings);
  }
  const auto check_ids = [&](std::span<const int32_t> ids) -> Status {
    for (const int32_t id : ids) {
      if (id < 0 || id >= config.vocab_size) {
        return make_error("token {} is outside the model's vocabulary of {}: tokenizer.json belongs to another model", id,
                          config.vocab_size);
      }
    }
    return {};
  };
  DGEM_RETURN_IF_ERROR(check_ids(prompt));
  DGEM_RETURN_IF_ERROR(check_ids(canvas.tokens));
  for (const Canvas::Slot& slot : canvas.slots) DGEM_RETURN_IF_ERROR(check_ids(slot.label_ids));
  return {};
}

// Adds the softmax of `logits`, times `share`, to `sum`.
void add_softmax(std::span<const float> logits, double share, std::vector<double>& sum) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float z : logits) total += std::exp(z - top);
  for (size_t i = 0; i < logits.size(); ++i) sum[i] += share * std::exp(logits[i] - top) / total;
}

}  // namespace

Result<std::vector<std::vector<double>>> read(model::Model& model, std::span<const int32_t> prompt, const Canvas& canvas,
                                              const ReadOptions& options) {
  DGEM_CHECK(options.samples >= 1 && options.samples <= kMaxSamples && !prompt.empty() && !canvas.slots.empty());
  DGEM_RETURN_IF_ERROR(check_fits(model.config(), prompt, canvas));

  std::vector<std::vector<int32_t>> canvases;
  for (int draw = 0; draw < options.samples; ++draw) {
    canvases.push_back(fill_slots(canvas, options.seed, draw, model.config().vocab_size));
  }
  model::Batch batch;
  batch.segments.resize(1 + canvases.size());
  batch.segments[0].tokens = prompt;
  for (size_t draw = 0; draw < canvases.size(); ++draw) {
    model::Segment& segment = batch.segments[1 + draw];
    segment.canvas = true;
    segment.tokens = canvases[draw];
    segment.parent = 0;
    for (const Canvas::Slot& slot : canvas.slots) {
      batch.asks.push_back({static_cast<int>(1 + draw), slot.position, slot.label_ids});
    }
  }
  const model::Output output = model.forward(batch);

  std::vector<std::vector<double>> probabilities;
  for (const Canvas::Slot& slot : canvas.slots) probabilities.emplace_back(slot.labels.size(), 0.0);
  for (size_t ask = 0; ask < output.logits.size(); ++ask) {
    add_softmax(output.logits[ask], 1.0 / options.samples, probabilities[ask % canvas.slots.size()]);
  }
  return probabilities;
}

}  // namespace dgem::decide
