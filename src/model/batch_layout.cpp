#include "model/batch_layout.h"

#include <algorithm>

namespace dgem::model {
namespace {

int context_of(const Batch& batch, const BatchLayout& layout, const Segment& segment) {
  if (segment.parent >= 0) {
    const Segment& parent = batch.segments[segment.parent];
    return layout.context[segment.parent] + static_cast<int>(parent.tokens.size());
  }
  return segment.cached ? segment.cached->end() : 0;
}

void check_segment(const Segment& segment, size_t index, const Batch& batch, const Config& config) {
  DGEM_CHECK(!segment.tokens.empty(), "segment {} is empty", index);
  DGEM_CHECK(segment.parent < static_cast<int>(index), "segment {}: parent must come before it", index);
  if (segment.parent >= 0) {
    DGEM_CHECK(!batch.segments[segment.parent].canvas, "segment {}: parent must be a prompt", index);
    DGEM_CHECK(!segment.cached, "segment {}: parent and cached exclude each other", index);
  }
  DGEM_CHECK(!segment.canvas || (!segment.keep && segment.embeddings.empty()), "segment {}", index);
  DGEM_CHECK(segment.self_conditioning.empty() ||
                 (segment.canvas && segment.self_conditioning.size() == segment.tokens.size() * config.vocab_size),
             "segment {}: self-conditioning logits are [tokens, vocab] of a canvas", index);
  for (const int32_t id : segment.tokens) {
    DGEM_CHECK(id >= 0 && id < config.vocab_size, "segment {}: token {} outside the vocabulary", index, id);
  }
}

void add_asked_rows(const Batch& batch, BatchLayout& layout) {
  std::vector<int32_t> rows;
  for (const Ask& ask : batch.asks) {
    const Segment& segment = batch.segments.at(ask.segment);
    DGEM_CHECK(segment.canvas && ask.row >= 0 && ask.row < static_cast<int>(segment.tokens.size()), "ask outside a canvas");
    rows.push_back(layout.first_row[ask.segment] + ask.row);
  }
  layout.asked_rows = rows;
  std::sort(layout.asked_rows.begin(), layout.asked_rows.end());
  layout.asked_rows.erase(std::unique(layout.asked_rows.begin(), layout.asked_rows.end()), layout.asked_rows.end());
  for (const int32_t row : rows) {
    const auto at = std::lower_bound(layout.asked_rows.begin(), layout.asked_rows.end(), row);
    layout.asked_place.push_back(static_cast<int>(at - layout.asked_rows.begin()));
  }
}

}  // namespace

BatchLayout lay_out(const Batch& batch, const Config& config) {
  BatchLayout layout;
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const Segment& segment = batch.segments[s];
    check_segment(segment, s, batch, config);
    const int first = static_cast<int>(layout.ids.size());
    const int context = context_of(batch, layout, segment);
    layout.first_row.push_back(first);
    layout.context.push_back(context);
    layout.any_kept |= segment.keep;
    auto& canvas_rows = segment.self_conditioning.empty() ? layout.plain_canvas_rows : layout.conditioned_rows;
    if (!segment.self_conditioning.empty()) layout.conditioned_segments.push_back(static_cast<int>(s));
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      const int32_t id = segment.tokens[i];
      const bool placeholder = !segment.canvas && id == config.image_token_id;
      layout.ids.push_back(placeholder ? config.pad_token_id : id);
      layout.positions.push_back(context + static_cast<int>(i));
      layout.kind.push_back(segment.canvas ? 1 : 0);
      if (segment.canvas) canvas_rows.push_back(first + static_cast<int>(i));
    }
  }
  add_asked_rows(batch, layout);
  return layout;
}

AttentionPlan plan_attention(const Batch& batch, const BatchLayout& layout, int layer, int window, const std::byte* k,
                             const std::byte* v, int64_t row_bytes, bool asked) {
  AttentionPlan plan;
  std::vector<ops::KeyRun> chain;
  size_t next_asked = 0;
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const Segment& segment = batch.segments[s];
    const int rows = static_cast<int>(segment.tokens.size());
    const int context = layout.context[s];
    ops::QueryGroup group;
    group.canvas = segment.canvas;
    group.row = layout.first_row[s];
    group.rows = rows;
    if (asked) {
      const size_t begin = next_asked;
      while (next_asked < layout.asked_rows.size() && layout.asked_rows[next_asked] < group.row + rows) ++next_asked;
      group.row = static_cast<int>(begin);
      group.rows = static_cast<int>(next_asked - begin);
      if (group.rows == 0) continue;
    }
    // The first key that the segment's first row sees: window - 1 tokens back, for prompt and canvas alike.
    const int first_key = window > 0 ? std::max(0, context - (window - 1)) : 0;
    group.position = context;
    group.first_key = first_key;
    group.end_key = context + rows;

    // From the segment back to the root, then in ascending order. Runs that end before first_key are out of sight.
    chain.clear();
    const Segment* at = &segment;
    int index = static_cast<int>(s);
    while (true) {
      const std::byte* rows_k = k + layout.first_row[index] * row_bytes;
      const std::byte* rows_v = v + layout.first_row[index] * row_bytes;
      chain.push_back({rows_k, rows_v, layout.context[index], static_cast<int>(at->tokens.size())});
      if (at->parent < 0) break;
      index = at->parent;
      at = &batch.segments[index];
    }
    for (const KvSegment* cached = at->cached.get(); cached != nullptr; cached = cached->parent.get()) {
      const KvSegment::Layer& kept = cached->layers[layer];
      chain.push_back({kept.k, kept.v, kept.first, cached->end() - kept.first});
    }
    group.run = static_cast<int>(plan.runs.size());
    for (auto run = chain.rbegin(); run != chain.rend(); ++run) {
      if (run->position + run->count > first_key) plan.runs.push_back(*run);
    }
    group.runs = static_cast<int>(plan.runs.size()) - group.run;
    plan.groups.push_back(group);
  }
  return plan;
}

}  // namespace dgem::model
