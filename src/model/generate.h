// Text generation by block diffusion (model.md 4): prefill, denoise a canvas, commit it, repeat.
#pragma once

#include "model/model.h"
#include "model/sampler.h"

#include <functional>
#include <span>
#include <vector>

namespace dgem::model {

struct GenerateOptions {
  GenerationConfig config;          // max_new_tokens is rounded up to whole canvases, as the reference does
  std::vector<int32_t> end_tokens;  // empty: config's, else the model's
  uint64_t seed = 0;
  // Called after each step with the block's index, its step and the argmax canvas so far (a draft), and once more when
  // a block is finished (step -1) with its final tokens, cut behind the first end token. Return false to stop there.
  std::function<bool(int block, int step, std::span<const int32_t> tokens)> on_tokens;
};

struct GenerateResult {
  std::vector<int32_t> tokens;  // prompt excluded; up to and including the first end token
  std::vector<int> steps;       // denoising steps of each block
  bool ended = false;           // an end token was met
  bool stopped = false;         // on_tokens returned false
};

GenerateResult generate(Model& model, std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace dgem::model
