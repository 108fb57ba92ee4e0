// A batch as rows: what the forward pass needs to know of its segments, computed on the host before any kernel runs.
#pragma once

#include "model/model.h"

#include <cstdint>
#include <vector>

namespace dgem::model {

struct BatchLayout {
  // Per row, segments one after another.
  std::vector<int32_t> ids;  // encoder rows: the image placeholder already replaced by pad (model.md 3.1)
  std::vector<int32_t> positions;
  std::vector<uint8_t> kind;  // 0 prompt (encoder), 1 canvas (decoder)
  // Per segment.
  std::vector<int> first_row;
  std::vector<int> context;  // tokens before the segment: the position of its first row
  // Canvas rows without and with self-conditioning; of the latter, the segments in the order of their rows.
  std::vector<int32_t> plain_canvas_rows, conditioned_rows;
  std::vector<int> conditioned_segments;
  // Rows that some ask wants, ascending; asked_row[a] is the place of ask a's row in that list.
  std::vector<int32_t> asked_rows;
  std::vector<int> asked_place;
  bool any_kept = false;

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
};

// Checks the batch (DGEM_CHECK) and lays it out.
BatchLayout lay_out(const Batch& batch, const Config& config);

// The attention work of one layer: query groups over `query_rows` (all rows, or the asked ones: `asked`), and the runs
// of keys that they see. `k` and `v` are this layer's rows of the batch, row_bytes apart.
struct AttentionPlan {
  std::vector<ops::QueryGroup> groups;
  std::vector<ops::KeyRun> runs;
};
AttentionPlan plan_attention(const Batch& batch, const BatchLayout& layout, int layer, int window, const std::byte* k,
                             const std::byte* v, int64_t row_bytes, bool asked);

}  // namespace dgem::model
