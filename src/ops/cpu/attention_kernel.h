// Attention of one query group and one key head (RowKernels::attention), by online softmax over blocks of keys. `runs`
// are the runs of the group.
//
// Block b holds the keys at positions [64 b, 64 b + 64), whatever runs they come from, and a query vector goes through
// its blocks in order: so its sums have one order however the keys are cut into runs and whatever vectors share its tile.
// Keys that a vector does not see take no part: their scores become -inf, i.e. weights of exactly 0, and the sum over
// values leaves them out.
//
// A chunk is as many query vectors (row by row, the heads of a row side by side) as keep the second level cache. For a
// block its keys are laid out transposed, [head_dim, keys], and its values as they are, both in float32 panels, once for
// all vectors of the chunk.
#pragma once

#include "ops/cpu/row_kernels_tile.h"

namespace dgem::ops::cpu {

template <class S>
class Attention {
 public:
  static void run(const AttentionShape& shape, const float* q, const QueryGroup& group, std::span<const KeyRun> runs,
                  Precision kv_precision, int64_t row0, int64_t row1, int kv_head, void* out, Precision precision,
                  Scratch& scratch) {
    const int64_t heads = shape.q_heads / shape.kv_heads;
    // q, o and the panels of keys and values take 4 · head_dim bytes per vector or key.
    const int64_t by_cache = 32768 / (int64_t{shape.head_dim} * heads), by_array = kMaxVectors / heads;
    int64_t chunk = by_cache < by_array ? by_cache : by_array;
    if (chunk < 1) chunk = 1;
    for (int64_t row = row0; row < row1; row += chunk) {
      const int64_t end = row + chunk < row1 ? row + chunk : row1;
      // More heads than fit (never so in the models there are) go one part after the other.
      for (int64_t head = 0; head < heads; head += kMaxVectors) {
        Attention a(shape, group, runs, kv_precision, kv_head, scratch);
        a.heads_ = heads - head < kMaxVectors ? heads - head : kMaxVectors;
        a.first_head_ = kv_head * heads + head;
        a.row_ = row;
        a.vectors_ = (end - row) * a.heads_;
        a.compute(q, out, precision);
      }
    }
  }

 private:
  using V = typename S::V;
  static constexpr int kKeys = 64;  // of a block
  static constexpr int64_t kMaxVectors = 128;
  static constexpr float kLeastExponent = -87.0f;
  enum Slot { kQueries, kPanels, kOutputs, kScores };

  // Where a query vector stands.
  struct State {
    int64_t first, end;  // keys that it sees, as positions
    float largest, sum;  // of its scores so far, and of their exponentials relative to the largest
  };

  Attention(const AttentionShape& shape, const QueryGroup& group, std::span<const KeyRun> runs, Precision kv_precision,
            int kv_head, Scratch& scratch)
      : shape_(shape),
        group_(group),
        runs_(runs.data()),
        run_count_(static_cast<int64_t>(runs.size())),
        kv_precision_(kv_precision),
        kv_head_(kv_head),
        scratch_(scratch),
        dim_(shape.head_dim),
        padded_((dim_ + kPanel<S> - 1) / kPanel<S> * kPanel<S>) {}

  void compute(const float* q, void* out, Precision precision) {
    queries_ = scratch_.template get<float>(kQueries, static_cast<size_t>(vectors_ * dim_));
    keys_ = scratch_.template get<float>(kPanels, static_cast<size_t>(kKeys * (dim_ + padded_)));
    values_ = keys_ + kKeys * dim_;
    outputs_ = scratch_.template get<float>(kOutputs, static_cast<size_t>(vectors_ * padded_));
    scores_ = scratch_.template get<float>(kScores, static_cast<size_t>(vectors_ * kKeys));
    for (int64_t i = 0; i < vectors_ * padded_; i += S::kWidth) S::store(outputs_ + i, S::zero());
    load_queries(q);

    int64_t first = INT64_MAX, end = 0;
    for (int64_t i = 0; i < vectors_; ++i) {
      states_[i] = start(row_ + i / heads_);
      if (states_[i].first >= states_[i].end) continue;
      if (states_[i].first < first) first = states_[i].first;
      if (states_[i].end > end) end = states_[i].end;
    }
    int64_t run = 0;
    for (int64_t block = first / kKeys * kKeys; block < end; block += kKeys) {
      const int64_t from = first > block ? first - block : 0, to = end - block < kKeys ? end - block : kKeys;
      run = gather(block, from, to, run);
      pack_keys(from, to);
      pack_values(from, to);
      score(block);
      weigh(block);
      sum_values(block);
    }
    finish(out, precision);
  }

  // The keys that a row of the group sees, of those that there are.
  State start(int64_t row) const {
    State s{group_.first_key, group_.end_key, -__builtin_inff(), 0.0f};
    if (!group_.canvas) {
      s.end = int64_t{group_.position} + row + 1;
      s.first = shape_.window > 0 && s.end > shape_.window ? s.end - shape_.window : 0;
    }
    const int64_t first = run_count_ > 0 ? runs_[0].position : 0;
    const int64_t end = run_count_ > 0 ? int64_t{runs_[run_count_ - 1].position} + runs_[run_count_ - 1].count : 0;
    if (s.first < first) s.first = first;
    if (s.end > end) s.end = end;
    return s;
  }

  int64_t element_of(int64_t vector) const {  // the first of the vector in q and out
    const int64_t row = group_.row + row_ + vector / heads_;
    return (row * shape_.q_heads + first_head_ + vector % heads_) * dim_;
  }

  // Query vectors by tiles, [head_dim, tile] each.
  void load_queries(const float* q) {
    int64_t tile;
    for (int64_t i = 0; i < vectors_; i += tile) {
      tile = next_tile<S>(vectors_ - i);
      for (int64_t t = 0; t < tile; ++t) {
        const float* from = q + element_of(i + t);
        float* to = queries_ + i * dim_ + t;
        for (int64_t d = 0; d < dim_; ++d) to[d * tile] = from[d];
      }
    }
  }

  // Finds the rows of K and V of the keys [from, to) of a block, looking from run `run` on. A key that no run has counts
  // as zero. Returns the run to look from for the next block.
  int64_t gather(int64_t block, int64_t from, int64_t to, int64_t run) {
    const int64_t stride = int64_t{shape_.kv_heads} * dim_, bytes = bytes_of(kv_precision_);
    for (int64_t i = 0; i < kKeys; ++i) {
      key_rows_[i] = value_rows_[i] = nullptr;
      if (i < from || i >= to) continue;
      const int64_t position = block + i;
      while (run < run_count_ && int64_t{runs_[run].position} + runs_[run].count <= position) ++run;
      if (run == run_count_ || runs_[run].position > position) continue;
      const int64_t offset = ((position - runs_[run].position) * stride + int64_t{kv_head_} * dim_) * bytes;
      key_rows_[i] = static_cast<const char*>(runs_[run].k) + offset;
      value_rows_[i] = static_cast<const char*>(runs_[run].v) + offset;
    }
    return run;
  }

  [[gnu::always_inline]] V load_row(const void* row, int64_t i, int n) const {
    return row == nullptr ? S::zero() : load<S>(row, kv_precision_, i, n);
  }

  // keys_[key / kPanel][d][key % kPanel].
  void pack_keys(int64_t from, int64_t to) {
    for (int64_t key = from / S::kWidth * S::kWidth; key < to; key += S::kWidth) {
      float* panel = keys_ + key / kPanel<S> * (kPanel<S> * dim_) + key % kPanel<S>;
      for_lanes<S>(dim_, [&](int64_t d, int n) DGEM_INLINE_LAMBDA {
        V rows[S::kWidth];
        for (int i = 0; i < S::kWidth; ++i) rows[i] = load_row(key_rows_[key + i], d, n);
        S::transpose(rows);
        for (int i = 0; i < n; ++i) S::store(panel + (d + i) * kPanel<S>, rows[i]);
      });
    }
  }

  // values_[d / kPanel][key][d % kPanel], 0 beyond head_dim.
  void pack_values(int64_t from, int64_t to) {
    for (int64_t key = from; key < to; ++key) {
      for (int64_t d = 0; d < padded_; d += S::kWidth) {
        const int64_t left = dim_ - d;
        const int n = left >= S::kWidth ? S::kWidth : left > 0 ? static_cast<int>(left) : 0;
        float* to_panel = values_ + d / kPanel<S> * (kPanel<S> * kKeys) + key * kPanel<S> + d % kPanel<S>;
        S::store(to_panel, load_row(value_rows_[key], d, n));
      }
    }
  }

  // The part [first, end) of a block that a vector sees.
  struct Range {
    int64_t first, end;
    bool empty() const { return first >= end; }
  };
  Range seen(int64_t vector, int64_t block) const {
    const int64_t first = states_[vector].first - block, end = states_[vector].end - block;
    return {first > 0 ? first : 0, end < kKeys ? end : kKeys};
  }
  // What any and what all of the vectors [i, i + count) see. `all` is empty if one of them sees nothing.
  void seen(int64_t i, int64_t count, int64_t block, Range& any, Range& all) const {
    any = {kKeys, 0};
    all = {0, kKeys};
    for (int64_t t = i; t < i + count; ++t) {
      const Range r = seen(t, block);
      if (r.first > all.first) all.first = r.first;
      if (r.end < all.end) all.end = r.end;
      if (r.empty()) continue;
      if (r.first < any.first) any.first = r.first;
      if (r.end > any.end) any.end = r.end;
    }
  }

  // scores_[vector][key] = q · k for the panels of keys that a tile sees something of.
  void score(int64_t block) {
    for (int64_t key = 0; key < kKeys; key += kPanel<S>) {
      int64_t tile;
      for (int64_t i = 0; i < vectors_; i += tile) {
        tile = next_tile<S>(vectors_ - i);
        Range any, all;
        seen(i, tile, block, any, all);
        if (any.first >= key + kPanel<S> || any.end <= key) continue;
        with_tile<S>(static_cast<int>(tile), [&](auto size) DGEM_INLINE_LAMBDA {
          constexpr int kRows = decltype(size)::kCount;
          tile_product<S, kRows, 1, kRows, false>(queries_ + i * dim_, keys_ + key * dim_, dim_, scores_ + i * kKeys + key,
                                                  kKeys);
        });
      }
    }
  }

  // Scores to weights relative to the largest score so far; what was summed before is brought to the same scale.
  void weigh(int64_t block) {
    for (int64_t i = 0; i < vectors_; ++i) {
      const Range r = seen(i, block);
      if (r.empty()) continue;
      State& state = states_[i];
      float* s = scores_ + i * kKeys;
      for (int64_t key = 0; key < r.first; ++key) s[key] = -__builtin_inff();
      for (int64_t key = r.end; key < kKeys; ++key) s[key] = -__builtin_inff();
      V largest = S::load(s);
      for (int64_t key = S::kWidth; key < kKeys; key += S::kWidth) largest = S::max(largest, S::load(s + key));
      const float block_largest = S::reduce_max(largest);
      if (block_largest > state.largest) {
        const V factor = S::exp(S::set1(state.largest - block_largest));  // 0 in the first block
        float* o = outputs_ + i * padded_;
        for (int64_t d = 0; d < padded_; d += S::kWidth) S::store(o + d, S::mul(S::load(o + d), factor));
        float factors[S::kWidth];
        S::store(factors, factor);
        state.sum *= factors[0];
        state.largest = block_largest;
      }
      const V shift = S::set1(state.largest);
      V sum = S::zero();
      for (int64_t key = 0; key < kKeys; key += S::kWidth) {
        // Weights too small for a normal number count as 0: arithmetic on subnormals takes a hundred times as long.
        const V below = S::sub(S::load(s + key), shift);
        const V weight = S::if_less(below, S::set1(kLeastExponent), S::zero(), S::exp(below));
        S::store(s + key, weight);
        sum = S::add(sum, weight);
      }
      state.sum += S::reduce_add(sum);
    }
  }

  // outputs_[vector] += Σ weight · value over the keys that the vector sees.
  void sum_values(int64_t block) {
    for (int64_t d = 0; d < padded_; d += kPanel<S>) {
      const float* panel = values_ + d * kKeys;
      int64_t tile;
      for (int64_t i = 0; i < vectors_; i += tile) {
        tile = next_tile<S>(vectors_ - i);
        Range any, all;
        seen(i, tile, block, any, all);
        // Together where all vectors of the tile see, alone before and after.
        if (all.empty()) all.first = all.end = kKeys;
        const bool apart = any.first < all.first || any.end > all.end;
        if (apart) sum_alone(i, tile, block, 0, all.first, d);
        if (!all.empty()) {
          with_tile<S>(static_cast<int>(tile), [&](auto size) DGEM_INLINE_LAMBDA {
            tile_product<S, decltype(size)::kCount, kKeys, 1, true>(scores_ + i * kKeys + all.first,
                                                                    panel + all.first * kPanel<S>, all.end - all.first,
                                                                    outputs_ + i * padded_ + d, padded_);
          });
        }
        if (apart) sum_alone(i, tile, block, all.end, kKeys, d);
      }
    }
  }

  void sum_alone(int64_t i, int64_t count, int64_t block, int64_t from, int64_t to, int64_t d) {
    for (int64_t t = i; t < i + count; ++t) {
      Range r = seen(t, block);
      if (r.first < from) r.first = from;
      if (r.end > to) r.end = to;
      if (r.empty()) continue;
      tile_product<S, 1, kKeys, 1, true>(scores_ + t * kKeys + r.first, values_ + d * kKeys + r.first * kPanel<S>,
                                         r.end - r.first, outputs_ + t * padded_ + d, padded_);
    }
  }

  void finish(void* out, Precision precision) {
    for (int64_t i = 0; i < vectors_; ++i) {
      // A row that sees no key is 0.
      const V factor = S::set1(states_[i].sum > 0.0f ? 1.0f / states_[i].sum : 0.0f);
      const float* o = outputs_ + i * padded_;
      const int64_t to = element_of(i);
      for_lanes<S>(dim_, [&](int64_t d, int n)
                             DGEM_INLINE_LAMBDA { store<S>(out, precision, to + d, S::mul(S::load(o + d), factor), n); });
    }
  }

  const AttentionShape& shape_;
  const QueryGroup& group_;
  const KeyRun* runs_;
  int64_t run_count_;
  Precision kv_precision_;
  int kv_head_;
  Scratch& scratch_;
  int64_t dim_, padded_;                                        // head_dim, and rounded up to whole panels
  int64_t heads_ = 0, first_head_ = 0, row_ = 0, vectors_ = 0;  // of the chunk
  float *queries_ = nullptr, *keys_ = nullptr, *values_ = nullptr, *outputs_ = nullptr, *scores_ = nullptr;
  State states_[kMaxVectors];
  const void* key_rows_[kKeys];
  const void* value_rows_[kKeys];
};

}  // namespace dgem::ops::cpu
