// One forward pass over the device's kernels. Its buffers grow to the largest batch seen and are used again.
#pragma once

#include "model/batch_layout.h"
#include "model/model.h"

#include <map>
#include <string_view>
#include <vector>

namespace dgem::model {

// Frequencies of the turned pairs, by kind of layer.
struct RopeFrequencies {
  std::vector<float> sliding, full;
};

class Model::Pass {
 public:
  Pass(const Config& config, const TextWeights& weights, ops::Ops& ops, const RopeFrequencies& frequencies,
       float embedding_scale);
  Output run(const Batch& batch);

 private:
  struct Rope {
    float* cos = nullptr;
    float* sin = nullptr;
    int64_t angles = 0;
  };
  // Rows that carry the residual stream: all rows, and in the last layer only those that were asked for.
  struct Rows {
    int64_t count = 0;
    float* x = nullptr;
    const uint8_t* kind = nullptr;
    Rope sliding, full;
  };

  // Device memory of at least `bytes` under a name that stays the same from pass to pass.
  std::byte* memory(std::string_view name, size_t bytes);
  float* floats(std::string_view name, int64_t count) { return reinterpret_cast<float*>(memory(name, count * 4)); }
  ops::Act act(std::string_view name, int64_t rows, int64_t cols);
  template <class T>
  T* put(std::string_view name, const std::vector<T>& values);

  Rope rope(std::string_view name, const int32_t* positions, int64_t rows, const float* frequencies, size_t angles);
  void input(const Batch& batch, const BatchLayout& layout, float* x);
  float* self_conditioning(const Batch& batch, const BatchLayout& layout);
  void start_keeping(const Batch& batch, const BatchLayout& layout, std::vector<std::shared_ptr<KvSegment>>& kept);
  void keep(int layer, const BatchLayout& layout, const std::byte* k, const std::byte* v,
            const std::vector<std::shared_ptr<KvSegment>>& kept);
  // Runs layer l on `rows` in place. In the last layer of a pass that records nothing, `rows` shrinks to the asked ones.
  void layer(int l, const Batch& batch, const BatchLayout& layout, const Rows& asked, bool last,
             const std::vector<std::shared_ptr<KvSegment>>& kept, Rows& rows);
  void feed_forward(const LayerWeights& w, const float* attention_out, Rows& rows);
  void head(const Batch& batch, const BatchLayout& layout, const float* asked_x, Output& out);

  const Config& config_;
  const TextWeights& weights_;
  ops::Ops& ops_;
  const float embedding_scale_;
  struct Slot {
    ops::Buffer buffer;
    size_t size = 0;
  };
  std::map<std::string, Slot, std::less<>> slots_;
  ops::Buffer sliding_frequencies_, full_frequencies_;
  size_t sliding_angles_ = 0, full_angles_ = 0;
};

}  // namespace dgem::model
