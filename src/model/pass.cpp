#include "model/pass.h"

#include <algorithm>
#include <array>

namespace dgem::model {

using ops::Act;
using ops::Matrix;

Model::Pass::Pass(const Config& config, const TextWeights& weights, ops::Ops& ops, const RopeFrequencies& frequencies,
                  float embedding_scale)
    : config_(config), weights_(weights), ops_(ops), embedding_scale_(embedding_scale) {
  const auto place = [&](const std::vector<float>& f, ops::Buffer& buffer, size_t& count) {
    count = f.size();
    if (f.empty()) return;
    buffer = ops_.allocate(f.size() * sizeof(float));
    ops_.upload(buffer.get(), f.data(), f.size() * sizeof(float));
  };
  place(frequencies.sliding, sliding_frequencies_, sliding_angles_);
  place(frequencies.full, full_frequencies_, full_angles_);
}

std::byte* Model::Pass::memory(std::string_view name, size_t bytes) {
  auto slot = slots_.find(name);
  if (slot == slots_.end()) slot = slots_.emplace(std::string(name), Slot{}).first;
  if (slot->second.size < bytes) {
    slot->second = {};  // released before the larger one is asked for
    slot->second.buffer = ops_.allocate(bytes);
    slot->second.size = bytes;
  }
  return slot->second.buffer.get();
}

Act Model::Pass::act(std::string_view name, int64_t rows, int64_t cols) {
  return {memory(name, rows * cols * bytes_of(ops_.precision())), ops_.precision(), rows, cols};
}

template <class T>
T* Model::Pass::put(std::string_view name, const std::vector<T>& values) {
  T* device = reinterpret_cast<T*>(memory(name, std::max<size_t>(values.size(), 1) * sizeof(T)));
  if (!values.empty()) ops_.upload(device, values.data(), values.size() * sizeof(T));
  return device;
}

Model::Pass::Rope Model::Pass::rope(std::string_view name, const int32_t* positions, int64_t rows, const float* frequencies,
                                    size_t angles) {
  const int64_t n = static_cast<int64_t>(angles);
  float* both = floats(name, std::max<int64_t>(2 * rows * n, 1));
  if (n > 0) ops_.rope_angles(positions, rows, frequencies, n, both, both + rows * n);
  return {both, both + rows * n, n};
}

// m of model.md 3.3 for the conditioned canvas rows, in the order of layout.conditioned_rows.
float* Model::Pass::self_conditioning(const Batch& batch, const BatchLayout& layout) {
  const int64_t rows = static_cast<int64_t>(layout.conditioned_rows.size());
  const int64_t vocab = config_.vocab_size, hidden = config_.hidden_size;
  float* z = floats("self_conditioning.logits", rows * vocab);
  float* to = z;
  for (const int s : layout.conditioned_segments) {
    const auto logits = batch.segments[s].self_conditioning;
    ops_.upload(to, logits.data(), logits.size_bytes());
    to += logits.size();
  }
  float* g = floats("self_conditioning.signal", rows * hidden);
  ops_.soft_embed(z, rows, weights_.embedding, embedding_scale_, g);
  const Act in = act("self_conditioning.in", rows, hidden);
  ops_.rms_norm(g, weights_.self_conditioning_norm, config_.rms_norm_eps, in);
  const Act h = act("self_conditioning.h", rows, weights_.self_conditioning_gate.rows);
  ops_.gated(in, weights_.self_conditioning_gate, weights_.self_conditioning_up, h);
  ops_.linear(h, std::array{weights_.self_conditioning_down}, std::array{g});
  return g;
}

void Model::Pass::input(const Batch& batch, const BatchLayout& layout, float* x) {
  const int64_t hidden = config_.hidden_size;
  ops_.embed(weights_.embedding, put("ids", layout.ids), layout.rows(), embedding_scale_, x);
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    for (const Segment::Embeddings& e : batch.segments[s].embeddings) {
      ops_.upload(x + (layout.first_row[s] + e.first) * hidden, e.data, static_cast<size_t>(e.rows) * hidden * 4);
    }
  }
  if (!layout.plain_canvas_rows.empty()) {
    const int32_t* index = put("canvas_rows", layout.plain_canvas_rows);
    ops_.canvas_input(x, index, static_cast<int64_t>(layout.plain_canvas_rows.size()), hidden, nullptr,
                      config_.rms_norm_eps);
  }
  if (!layout.conditioned_rows.empty()) {
    const float* m = self_conditioning(batch, layout);
    const int32_t* index = put("conditioned_rows", layout.conditioned_rows);
    ops_.canvas_input(x, index, static_cast<int64_t>(layout.conditioned_rows.size()), hidden, m, config_.rms_norm_eps);
  }
}

void Model::Pass::start_keeping(const Batch& batch, const BatchLayout& layout,
                                std::vector<std::shared_ptr<KvSegment>>& kept) {
  kept.resize(batch.segments.size());
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const Segment& segment = batch.segments[s];
    if (!segment.keep) continue;
    auto kv = std::make_shared<KvSegment>();
    kv->parent = segment.parent >= 0 ? Kv(kept[segment.parent]) : segment.cached;
    DGEM_CHECK(segment.parent < 0 || kept[segment.parent], "segment {}: kept behind a parent that is not kept", s);
    kv->position = layout.context[s];
    kv->count = static_cast<int>(segment.tokens.size());
    std::vector<size_t> offset;
    size_t total = 0;
    for (const LayerConfig& shape : config_.layers) {
      const int rows = shape.sliding ? std::min(kv->count, config_.sliding_window - 1) : kv->count;
      kv->layers.push_back({nullptr, nullptr, kv->end() - rows});
      offset.push_back(total);
      const size_t bytes = static_cast<size_t>(rows) * shape.kv_heads * shape.head_dim * bytes_of(ops_.precision());
      total += 2 * ((bytes + 63) / 64 * 64);
    }
    kv->storage = ops_.allocate(std::max<size_t>(total, 1));
    kv->bytes = total;
    for (size_t l = 0; l < offset.size(); ++l) {
      const size_t end = l + 1 < offset.size() ? offset[l + 1] : total;
      kv->layers[l].k = kv->storage.get() + offset[l];
      kv->layers[l].v = kv->storage.get() + offset[l] + (end - offset[l]) / 2;
    }
    kept[s] = std::move(kv);
  }
}

void Model::Pass::keep(int l, const BatchLayout& layout, const std::byte* k, const std::byte* v,
                       const std::vector<std::shared_ptr<KvSegment>>& kept) {
  const LayerConfig& shape = config_.layers[l];
  const size_t row_bytes = static_cast<size_t>(shape.kv_heads) * shape.head_dim * bytes_of(ops_.precision());
  for (size_t s = 0; s < kept.size(); ++s) {
    if (!kept[s]) continue;
    const KvSegment::Layer& to = kept[s]->layers[l];
    const size_t first = layout.first_row[s] + (to.first - kept[s]->position);
    const size_t bytes = (kept[s]->end() - to.first) * row_bytes;
    ops_.copy(const_cast<std::byte*>(to.k), k + first * row_bytes, bytes);
    ops_.copy(const_cast<std::byte*>(to.v), v + first * row_bytes, bytes);
  }
}

void Model::Pass::layer(int l, const Batch& batch, const BatchLayout& layout, const Rows& asked, bool last,
                        const std::vector<std::shared_ptr<KvSegment>>& kept, Rows& rows) {
  const LayerConfig& shape = config_.layers[l];
  const LayerWeights& w = weights_.layers[l];
  const float eps = config_.rms_norm_eps;
  const int64_t hidden = config_.hidden_size;
  const int64_t q_size = int64_t{config_.num_attention_heads} * shape.head_dim;
  const int64_t kv_size = int64_t{shape.kv_heads} * shape.head_dim;

  const Act in = act("attention.in", rows.count, hidden);
  ops_.rms_norm(rows.x, w.input_norm, eps, in);
  float* k_raw = floats("k.raw", rows.count * kv_size);
  float* v_raw = shape.sliding ? floats("v.raw", rows.count * kv_size) : k_raw;

  // In the last layer only asked rows go on; the others are needed for their keys and values alone.
  Act q_in = in;
  const Rows all = rows;
  if (last) {
    rows = asked;
    if (rows.count > 0) {
      const int32_t* index = put("asked_rows", layout.asked_rows);
      q_in = act("attention.in.asked", rows.count, hidden);
      ops_.gather(in.data, index, rows.count, hidden * bytes_of(in.precision), q_in.data);
      ops_.gather(all.x, index, rows.count, hidden * 4, rows.x);
    }
  }
  float* q = floats("q", std::max<int64_t>(rows.count, 1) * q_size);
  std::vector<Matrix> weights = {w.k_proj};
  std::vector<float*> outputs = {k_raw};
  if (shape.sliding) {
    weights.push_back(w.v_proj);
    outputs.push_back(v_raw);
  }
  if (!last) {
    weights.push_back(w.q_proj);
    outputs.push_back(q);
  }
  ops_.linear(in, weights, outputs);
  if (last && rows.count > 0) ops_.linear(q_in, std::array{w.q_proj}, std::array{q});

  const auto& rope = [&](const Rows& r) -> const Rope& { return shape.sliding ? r.sliding : r.full; };
  const Act k = act("k", all.count, kv_size), v = act("v", all.count, kv_size);
  // Values first: on full-attention layers they are the raw keys' (model.md 3.5).
  ops_.head_norm_rope(v_raw, all.count, shape.kv_heads, shape.head_dim, {}, eps, nullptr, nullptr, 0, v.data, v.precision);
  ops_.head_norm_rope(k_raw, all.count, shape.kv_heads, shape.head_dim, w.k_norm, eps, rope(all).cos, rope(all).sin,
                      rope(all).angles, k.data, k.precision);
  const auto* k_rows = static_cast<const std::byte*>(k.data);
  const auto* v_rows = static_cast<const std::byte*>(v.data);
  if (layout.any_kept) keep(l, layout, k_rows, v_rows, kept);
  if (rows.count == 0) return;
  ops_.head_norm_rope(q, rows.count, config_.num_attention_heads, shape.head_dim, w.q_norm, eps, rope(rows).cos,
                      rope(rows).sin, rope(rows).angles, q, ops::Precision::f32);

  const int window = shape.sliding ? config_.sliding_window : 0;
  const AttentionPlan plan = plan_attention(batch, layout, l, window, k_rows, v_rows, kv_size * bytes_of(k.precision), last);
  const Act heads = act("attention.out", rows.count, q_size);
  ops_.attention({config_.num_attention_heads, shape.kv_heads, shape.head_dim, window}, q, plan.groups, plan.runs, heads);
  float* a = floats("a", rows.count * hidden);
  ops_.linear(heads, std::array{w.o_proj}, std::array{a});
  feed_forward(w, a, rows);
}

void Model::Pass::feed_forward(const LayerWeights& w, const float* a, Rows& rows) {
  const int64_t n = rows.count, hidden = config_.hidden_size;
  const float eps = config_.rms_norm_eps;
  const Act dense_in = act("dense.in", n, hidden), expert_in = act("expert.in", n, hidden);
  float* router_in = floats("router.in", n * hidden);
  ops_.branch(rows.x, a, n, hidden,
              {w.post_attention_norm, w.pre_feedforward_norm, w.pre_feedforward_norm_2, w.router_scale, eps}, rows.x,
              dense_in, expert_in, router_in);

  float* logits = floats("router.logits", n * config_.num_experts);
  ops_.linear_f32(router_in, n, w.router, logits);
  const int k = config_.top_k_experts;
  auto* ids = reinterpret_cast<int32_t*>(memory("router.ids", n * k * 4));
  float* weights = floats("router.weights", n * k);
  ops_.route(logits, n, config_.num_experts, k, w.per_expert_scale, ids, weights);

  const Act h = act("dense.h", n, w.mlp_gate.rows);
  ops_.gated(dense_in, w.mlp_gate, w.mlp_up, h);
  float* d = floats("dense.out", n * hidden);
  ops_.linear(h, std::array{w.mlp_down}, std::array{d});
  float* m = floats("expert.out", n * hidden);
  ops_.experts(expert_in, {w.expert_gate, w.expert_up, w.expert_down}, ids, weights, k, m);

  ops_.join(rows.x, d, m, n, hidden,
            {w.post_feedforward_norm_1,
             w.post_feedforward_norm_2,
             w.post_feedforward_norm,
             eps,
             {w.encoder_scalar, w.decoder_scalar}},
            rows.kind, rows.x);
}

void Model::Pass::head(const Batch& batch, const BatchLayout& layout, const float* asked_x, Output& out) {
  out.logits.resize(batch.asks.size());
  const int64_t rows = static_cast<int64_t>(layout.asked_rows.size()), vocab = config_.vocab_size;
  if (rows == 0) return;
  const Act y = act("head.in", rows, config_.hidden_size);
  ops_.rms_norm(asked_x, weights_.final_norm, config_.rms_norm_eps, y);

  std::vector<int32_t> pair_rows, pair_ids, whole_rows;
  for (size_t a = 0; a < batch.asks.size(); ++a) {
    const auto ids = batch.asks[a].ids;
    if (ids.empty()) whole_rows.push_back(layout.asked_place[a]);
    pair_rows.insert(pair_rows.end(), ids.size(), layout.asked_place[a]);
    pair_ids.insert(pair_ids.end(), ids.begin(), ids.end());
  }
  std::vector<float> pairs(pair_ids.size());
  if (!pairs.empty()) {
    const int64_t n = static_cast<int64_t>(pairs.size());
    float* z = floats("head.pairs", n);
    ops_.dot_rows(y, weights_.embedding, put("head.rows", pair_rows), put("head.ids", pair_ids), n, z);
    ops_.soft_cap(z, n, config_.final_logit_softcapping);
    ops_.download(pairs.data(), z, pairs.size() * 4);
  }
  const float* z = nullptr;
  if (!whole_rows.empty()) {
    const int64_t n = static_cast<int64_t>(whole_rows.size());
    const Act whole = act("head.in.whole", n, config_.hidden_size);
    ops_.gather(y.data, put("head.whole_rows", whole_rows), n, config_.hidden_size * bytes_of(y.precision), whole.data);
    float* logits = floats("head.whole", n * vocab);
    ops_.linear(whole, std::array{weights_.embedding}, std::array{logits});
    ops_.soft_cap(logits, n * vocab, config_.final_logit_softcapping);
    z = logits;
  }
  auto next_pair = pairs.cbegin();
  for (size_t a = 0; a < batch.asks.size(); ++a) {
    const size_t n = batch.asks[a].ids.size();
    if (n > 0) {
      out.logits[a].assign(next_pair, next_pair + static_cast<std::ptrdiff_t>(n));
      next_pair += static_cast<std::ptrdiff_t>(n);
    } else {
      out.logits[a].resize(vocab);
      ops_.download(out.logits[a].data(), z, vocab * 4);
      z += vocab;
    }
  }
}

Output Model::Pass::run(const Batch& batch) {
  const BatchLayout layout = lay_out(batch, config_);
  Output out;
  if (layout.rows() == 0) return out;
  const int64_t hidden = config_.hidden_size;
  const auto* sliding = reinterpret_cast<const float*>(sliding_frequencies_.get());
  const auto* full = reinterpret_cast<const float*>(full_frequencies_.get());

  Rows rows;
  rows.count = layout.rows();
  rows.x = floats("x", rows.count * hidden);
  rows.kind = put("kind", layout.kind);
  const int32_t* positions = put("positions", layout.positions);
  rows.sliding = rope("rope.sliding", positions, rows.count, sliding, sliding_angles_);
  rows.full = rope("rope.full", positions, rows.count, full, full_angles_);

  Rows asked;
  asked.count = static_cast<int64_t>(layout.asked_rows.size());
  asked.x = floats("x.asked", std::max<int64_t>(asked.count, 1) * hidden);
  std::vector<int32_t> asked_positions;
  for (const int32_t r : layout.asked_rows) asked_positions.push_back(layout.positions[r]);
  asked.kind = put("kind.asked", std::vector<uint8_t>(layout.asked_rows.size(), 1));  // only canvas rows are asked for
  const int32_t* at = put("positions.asked", asked_positions);
  asked.sliding = rope("rope.sliding.asked", at, asked.count, sliding, sliding_angles_);
  asked.full = rope("rope.full.asked", at, asked.count, full, full_angles_);

  input(batch, layout, rows.x);
  std::vector<std::shared_ptr<KvSegment>> kept;
  start_keeping(batch, layout, kept);
  const int layers = config_.num_layers();
  for (int l = 0; l < layers; ++l) {
    const bool last = l == layers - 1 && !batch.record_hidden;
    layer(l, batch, layout, asked, last, kept, rows);
    if (batch.record_hidden) {
      out.hidden.emplace_back(layout.rows() * hidden);
      ops_.download(out.hidden.back().data(), rows.x, out.hidden.back().size() * 4);
    }
  }
  if (batch.record_hidden) {
    float* y = floats("last", layout.rows() * hidden);
    ops_.rms_norm(rows.x, layout.rows(), hidden, weights_.final_norm, config_.rms_norm_eps, y);
    out.last.resize(layout.rows() * hidden);
    ops_.download(out.last.data(), y, out.last.size() * 4);
    if (asked.count > 0) ops_.gather(rows.x, put("asked_rows", layout.asked_rows), asked.count, hidden * 4, asked.x);
  }
  head(batch, layout, asked.x, out);
  out.kept.assign(kept.begin(), kept.end());
  return out;
}

}  // namespace dgem::model
