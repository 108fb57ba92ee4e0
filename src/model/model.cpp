#include "model/model.h"

#include "base/numeric.h"
#include "model/batch_layout.h"
#include "model/pass.h"

#include <cmath>

namespace dgem::model {
namespace {

using ops::Act;
using ops::Matrix;
using ops::Vector;

// Inverse frequencies of the turned pairs, as the reference computes them in float32 (model.md 3.5).
std::vector<float> rope_frequencies(const RopeConfig& rope, int head_dim) {
  std::vector<float> f(rope.angles(head_dim));
  for (size_t i = 0; i < f.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    f[i] = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
  }
  return f;
}

// √H rounded to the type of the embedding table: 53.0 for 2816 in bf16 (model.md 3.1).
float embedding_scale(const Matrix& table, int64_t hidden) {
  const float s = std::sqrt(static_cast<float>(hidden));
  if (table.format == ops::Format::f32) return s;
  if (table.format != ops::Format::f16) return to_float(to_bf16(s));
  const int shift = 11 - (std::ilogb(s) + 1);  // binary16 has 11 significant bits
  return std::ldexp(std::nearbyint(std::ldexp(s, shift)), -shift);
}

TextWeights place_weights(const TextWeights& host, ops::Ops& ops) {
  TextWeights w = host;
  const auto matrix = [&](Matrix& m) { m = ops.place(m); };
  const auto vector = [&](Vector& v) { v = ops.place(v); };
  matrix(w.embedding);
  vector(w.final_norm);
  vector(w.self_conditioning_norm);
  for (Matrix* m : {&w.self_conditioning_gate, &w.self_conditioning_up, &w.self_conditioning_down}) matrix(*m);
  for (LayerWeights& layer : w.layers) {
    for (Vector* v :
         {&layer.input_norm, &layer.post_attention_norm, &layer.pre_feedforward_norm, &layer.pre_feedforward_norm_2,
          &layer.post_feedforward_norm, &layer.post_feedforward_norm_1, &layer.post_feedforward_norm_2, &layer.q_norm,
          &layer.k_norm, &layer.router_scale, &layer.per_expert_scale}) {
      vector(*v);
    }
    for (Matrix* m : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj, &layer.mlp_gate, &layer.mlp_up,
                      &layer.mlp_down, &layer.router}) {
      matrix(*m);
    }
    for (auto* list : {&layer.expert_gate, &layer.expert_up, &layer.expert_down}) {
      for (Matrix& m : *list) matrix(m);
    }
  }
  return w;
}

}  // namespace

Model::Model(std::shared_ptr<const Checkpoint> checkpoint, std::shared_ptr<ops::Ops> device)
    : checkpoint_(std::move(checkpoint)), ops_(std::move(device)), weights_(place_weights(checkpoint_->text, *ops_)) {
  const Config& c = config();
  RopeFrequencies frequencies;
  for (const LayerConfig& layer : c.layers) {
    auto& f = layer.sliding ? frequencies.sliding : frequencies.full;
    if (f.empty()) f = rope_frequencies(layer.sliding ? c.sliding_rope : c.full_rope, layer.head_dim);
  }
  pass_ = std::make_unique<Pass>(c, weights_, *ops_, frequencies, embedding_scale(weights_.embedding, c.hidden_size));
}

Model::~Model() = default;

Output Model::forward(const Batch& batch) { return pass_->run(batch); }

std::vector<float> Model::download_kv(const KvSegment& kv, int layer, bool keys) {
  const LayerConfig& shape = config().layers[layer];
  const KvSegment::Layer& kept = kv.layers[layer];
  const int rows = kv.end() - kept.first;
  const size_t row = static_cast<size_t>(shape.kv_heads) * shape.head_dim;
  const size_t size = static_cast<size_t>(bytes_of(ops_->precision()));
  std::vector<std::byte> raw(rows * row * size);
  ops_->download(raw.data(), keys ? kept.k : kept.v, raw.size());
  std::vector<float> out(rows * row);
  for (int r = 0; r < rows; ++r) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int d = 0; d < shape.head_dim; ++d) {
        const size_t from = r * row + static_cast<size_t>(h) * shape.head_dim + d;
        float value = 0;
        if (size == 4) {
          std::memcpy(&value, raw.data() + from * 4, 4);
        } else {
          bf16 half;
          std::memcpy(&half, raw.data() + from * 2, 2);
          value = to_float(half);
        }
        out[(static_cast<size_t>(h) * rows + r) * shape.head_dim + d] = value;
      }
    }
  }
  return out;
}

}  // namespace dgem::model
