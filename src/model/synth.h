// Checkpoints with random weights, at any size: to try the program, and to measure speed without a real model.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/config.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dgem::model {

enum class SynthFormat : uint8_t {
  f32,
  bf16,
  nvfp4,  // routed experts as modelopt stores them, all else BF16 (model.md 7.2)
};

std::optional<SynthFormat> parse_synth_format(std::string_view name);

struct SynthOptions {
  SynthFormat format = SynthFormat::nvfp4;
  int layers = 0;  // 0: as the configuration says; else that many, every sixth and the last with full attention
  uint64_t seed = 0;
  const std::atomic<bool>* stop = nullptr;  // see WriterOptions
  bool show_progress = false;               // on standard error
};

// What synthesize() writes as config.json: `root` with the fields that may be missing filled in, without the vision
// model, with the asked number of layers and format.
Result<json::Value> synth_config(const json::Value& root, const SynthOptions& options);

// Writes config.json, generation_config.json and the weights into `directory`. The bytes depend on the configuration,
// format and seed only. Weights are drawn so that logits are of moderate size at any depth: linear layers by their
// fan-in, branch norms small beside the residual stream, no norm or scale at 1 (one left out in a computation shows).
// Throws Fault if the disk fails.
Status synthesize(const json::Value& root, const SynthOptions& options, const std::string& directory, ThreadPool& pool);

}  // namespace dgem::model
