// Checks a model against recorded reference values (golden.safetensors), and against itself: the same rows must give
// the same bits in any batch. The recorded tensors are those of DiffusionGemma in transformers; for every prompt p:
//   p.input_ids, p.encoder.hidden.L, p.encoder.last, p.cache.k.L, p.cache.v.L     the prompt's pass
//   p.canvas_ids, p.read.hidden.L, p.read.last, p.read.logits                     a canvas behind it
//   p.read2.canvas_ids, p.read2.logits                                           another, self-conditioned on read.logits
//   p.gen.*                                                                      a whole generation, draw by draw
// The settings of the generation are in the metadata, key "generate".
#pragma once

#include "base/result.h"
#include "model/model.h"
#include "model/safetensors.h"

#include <string>
#include <vector>

namespace dgem::model {

// All comparisons of one kind.
struct GoldenCheck {
  std::string kind;
  int count = 0;  // comparisons
  // The largest error of a comparison: ‖a - b‖ / ‖b‖ of what the model computes; of temperatures and entropies the
  // largest difference; where equality is asked the share of unequal values.
  // With bf16 activations the first of these is the median over the rows of all comparisons: rounding sends some rows
  // to other experts, and what depends on those is far off. Behind the last layer that may be most rows, so there it
  // is told but not judged.
  double worst = 0.0;
  std::string where;   // the comparison that gave it; empty for a median
  bool exact = false;  // equality is asked
  bool judged = true;
  bool ok = true;
};

struct GoldenReport {
  std::vector<GoldenCheck> checks;
  // Over the canvas rows of read.logits: how often the most likely token is the recorded one, and the mean difference
  // of its probability against the runner-up. For judging bf16, where single logits may move far.
  double top_agreement = 0.0;
  double mean_probability_gap = 0.0;

  bool ok() const;
};

// Whether the file needs image rows.
bool golden_has_images(const TensorFiles& golden);

// Runs every check. `tolerance` bounds the relative errors of what the model computes. An error says which tensor is
// missing or malformed.
Result<GoldenReport> run_golden(Model& model, const TensorFiles& golden, double tolerance);

}  // namespace dgem::model
