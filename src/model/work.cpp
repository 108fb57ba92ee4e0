#include "model/work.h"

#include "model/batch_layout.h"

#include <algorithm>
#include <cmath>

namespace dgem::model {
namespace {

double elements(const ops::Matrix& m) { return static_cast<double>(m.rows) * static_cast<double>(m.cols); }

// Pairs of query and key that one layer's attention visits.
double attention_pairs(const Batch& batch, const BatchLayout& layout, int window, bool asked_only) {
  double pairs = 0;
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const double n = static_cast<double>(batch.segments[s].tokens.size());
    const double context = layout.context[s];
    if (batch.segments[s].canvas) {
      double rows = n;
      if (asked_only) {
        rows = static_cast<double>(std::count_if(layout.asked_rows.begin(), layout.asked_rows.end(), [&](int32_t r) {
          return r >= layout.first_row[s] && r < layout.first_row[s] + n;
        }));
      }
      pairs += rows * ((window > 0 ? std::min<double>(context, window - 1) : context) + n);
    } else if (!asked_only) {
      for (double i = 0; i < n; ++i) pairs += window > 0 ? std::min<double>(context + i + 1, window) : context + i + 1;
    }
  }
  return pairs;
}

}  // namespace

Work work_of(const Checkpoint& checkpoint, const Batch& batch) {
  const Config& config = checkpoint.config;
  const BatchLayout layout = lay_out(batch, config);
  Work work;
  const int layers = config.num_layers();
  for (int l = 0; l < layers; ++l) {
    const LayerWeights& w = checkpoint.text.layers[l];
    const LayerConfig& shape = config.layers[l];
    const bool last = l == layers - 1 && !batch.record_hidden;
    const double all = static_cast<double>(layout.rows());
    const double rows = last ? static_cast<double>(layout.asked_rows.size()) : all;
    double dense = 0;
    for (const ops::Matrix* m : {&w.k_proj, &w.v_proj}) {
      if (!*m) continue;
      work.matrix_flops += 2 * all * elements(*m);
      work.weight_bytes += static_cast<double>(m->bytes());
    }
    if (rows == 0) continue;
    for (const ops::Matrix* m : {&w.q_proj, &w.o_proj, &w.mlp_gate, &w.mlp_up, &w.mlp_down, &w.router}) {
      dense += elements(*m);
      work.weight_bytes += static_cast<double>(m->bytes());
    }
    const double expert = elements(w.expert_gate[0]) + elements(w.expert_up[0]) + elements(w.expert_down[0]);
    work.matrix_flops += 2 * rows * (dense + config.top_k_experts * expert);
    double expert_bytes = 0;
    for (const auto* list : {&w.expert_gate, &w.expert_up, &w.expert_down}) {
      for (const ops::Matrix& m : *list) expert_bytes += static_cast<double>(m.bytes());
    }
    const double untouched = std::pow(1.0 - static_cast<double>(config.top_k_experts) / config.num_experts, rows);
    work.weight_bytes += expert_bytes * (1.0 - untouched);
    const double pairs = attention_pairs(batch, layout, shape.sliding ? config.sliding_window : 0, last);
    work.attention_flops += 4 * pairs * config.num_attention_heads * shape.head_dim;
  }
  const double row_bytes = static_cast<double>(checkpoint.text.embedding.row_bytes());
  for (const Ask& ask : batch.asks) {
    const double ids = static_cast<double>(ask.ids.empty() ? config.vocab_size : static_cast<int64_t>(ask.ids.size()));
    work.matrix_flops += 2 * ids * static_cast<double>(config.hidden_size);
    if (!ask.ids.empty()) work.weight_bytes += ids * row_bytes;
  }
  const bool whole = std::any_of(batch.asks.begin(), batch.asks.end(), [](const Ask& a) { return a.ids.empty(); });
  if (whole) work.weight_bytes += static_cast<double>(config.vocab_size) * row_bytes;
  return work;
}

}  // namespace dgem::model
