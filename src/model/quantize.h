// A checkpoint in smaller formats: linear layers as NVFP4 in the layout of nvidia's modelopt (model.md 7.2), on request
// the tied embedding as FP8.
//
// No input_scale is written. It would be the range of activations, which nobody measured here: runtimes that compute with
// 4-bit weights and wider activations, as dgem does, ignore it, and one that wants 4-bit activations should ask for a
// calibrated checkpoint rather than compute with a made-up range. Layers that other runtimes join into one matrix (gate
// and up; q, k and v) share their weight_scale_2, as those runtimes expect.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/weights.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace dgem::model {

struct QuantizeOptions {
  bool dense = false;                       // also attention, dense MLP and self-conditioning; else the routed experts only
  bool fp8_embedding = false;               // F8_E4M3 with a float32 scale per row
  const std::atomic<bool>* stop = nullptr;  // see WriterOptions
  bool show_progress = false;               // on standard error
};

// One linear layer or the embedding.
struct QuantizedModule {
  std::string role;  // "experts.gate_proj", "self_attn.q_proj", ...
  std::string name;
  ops::Format from = ops::Format::f32, to = ops::Format::f32;
  int64_t elements = 0;
  double squared_error = 0.0, squared_norm = 0.0;
  std::string kept;  // why it stays as it is; empty if it was packed

  double relative_error() const;  // |packed - original| / |original|, 0 for a matrix of zeros
};

struct QuantizeReport {
  std::vector<QuantizedModule> modules;
  int64_t bytes_before = 0, bytes_after = 0;  // of tensors
};

// Writes the checkpoint to `output`, with the configuration (all its keys, and quantization_config), tokenizer and chat
// template files beside it. All other tensors, the vision model's included, are copied as they are; copies of shared
// weights under a second name are left out. Refuses weights that are not finite, and checkpoints with nothing to pack.
// Throws Fault if the disk fails.
Result<QuantizeReport> quantize(const Checkpoint& checkpoint, const QuantizeOptions& options, const std::string& output,
                                ThreadPool& pool);

// "quantization_config" of config.json for the modelopt layout; `ignore` lists patterns of modules that are not packed.
json::Value modelopt_config(json::Array ignore);

}  // namespace dgem::model
