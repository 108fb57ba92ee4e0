// The same rows give the same bits in any batch: prompt and canvas in one pass or in two, a tree of branches or each
// branch alone, a prompt whole or cut, prompts alone or together.
#include "model/golden_checks.h"

namespace dgem::model {
namespace {

// Keys and values of `got` against those of `expected` at the same positions; `got` may begin later.
void compare_kv(const GoldenContext& c, const std::string& kind, const std::string& where, const KvSegment& got,
                const KvSegment& expected) {
  for (int l = 0; l < c.model.config().num_layers(); ++l) {
    const LayerConfig& layer = c.model.config().layers[l];
    const int first = expected.layers[l].first, skipped = got.layers[l].first - first;
    for (const bool keys : {true, false}) {
      const std::vector<float> want =
          rows_from(c.model.download_kv(expected, l, keys), layer.kv_heads, expected.end() - first, layer.head_dim, skipped);
      c.tally.same_bits(kind, fmt::format("{}, {} of layer {}", where, keys ? "keys" : "values", l),
                        c.model.download_kv(got, l, keys), want);
    }
  }
}

// One pass over prompt and canvas, with all work and with what only hidden states need left out.
void check_one_pass(const GoldenContext& c, const GoldenPrompt& p, const KvSegment& kv, std::span<const float> logits) {
  for (const bool record : {false, true}) {
    Batch batch;
    batch.record_hidden = record;
    batch.segments = {prompt_segment(p.input, -1, nullptr), canvas_segment(p.canvas, 0, nullptr)};
    ask_rows(batch, 1);
    const Output out = c.model.forward(batch);
    const std::string where = fmt::format("{}{}", p.tag, record ? ", recording hidden states" : "");
    c.tally.same_bits("bits: one pass", where, join_logits(out, 0, p.canvas.size()), logits);
    compare_kv(c, "bits: one pass", where, *out.kept[0], kv);
  }
}

// Logits at chosen ids take another way than the whole vocabulary: close, not equal.
void check_labels(const GoldenContext& c, const GoldenPrompt& p, const Kv& kv, std::span<const float> logits) {
  const size_t vocab = logits.size() / p.canvas.size();
  const std::vector<int32_t> ids = {0, static_cast<int32_t>(vocab - 1), static_cast<int32_t>(vocab / 2), p.canvas[0],
                                    p.canvas2[0]};
  Batch batch;
  batch.segments.push_back(canvas_segment(p.canvas, -1, kv));
  std::vector<float> expected;
  for (size_t row = 0; row < p.canvas.size(); row += 3) {
    batch.asks.push_back({0, static_cast<int>(row), ids});
    for (const int32_t id : ids) expected.push_back(logits[row * vocab + id]);
  }
  const Output out = c.model.forward(batch);
  c.tally.close_inner("logits at ids", p.tag, join_logits(out, 0, out.logits.size()), expected, ids.size());
}

// The prompt cut in two segments of one batch, and the first of them kept from a pass before.
void check_cuts(const GoldenContext& c, const GoldenPrompt& p, const KvSegment& kv, std::span<const float> logits) {
  const size_t length = p.input.size();
  for (const size_t cut : {size_t{1}, length / 3, length / 2, length - 1}) {
    if (cut < 1 || cut >= length) continue;
    const std::span all(p.input);
    const std::string where = fmt::format("{}, cut at {}", p.tag, cut);
    for (const bool cached : {false, true}) {
      Batch batch;
      if (cached) {
        batch.segments.push_back(prompt_segment(all.subspan(cut), -1, prefill(c.model, all.first(cut), nullptr)));
      } else {
        batch.segments = {prompt_segment(all.first(cut), -1, nullptr), prompt_segment(all.subspan(cut), 0, nullptr)};
      }
      const int tail = static_cast<int>(batch.segments.size()) - 1;
      batch.segments.push_back(canvas_segment(p.canvas, tail, nullptr));
      ask_rows(batch, tail + 1);
      const Output out = c.model.forward(batch);
      c.tally.same_bits("bits: cut prompt", where, join_logits(out, 0, p.canvas.size()), logits);
      compare_kv(c, "bits: cut prompt", where, *out.kept[tail], kv);
    }
  }
}

}  // namespace

void check_trees(const GoldenContext& c, const GoldenPrompt& p) {
  const Kv kv = prefill(c.model, p.input, nullptr);
  const std::vector<float> plain = read_canvas(c.model, p.canvas, kv);
  check_one_pass(c, p, *kv, plain);
  check_labels(c, p, kv, plain);
  check_cuts(c, p, *kv, plain);

  // Branches of one prompt: two canvases, and a continuation with a canvas of its own.
  const std::vector<float> conditioned = read_canvas(c.model, p.canvas2, kv, p.logits);
  const Kv longer = prefill(c.model, p.canvas, kv);
  const std::vector<float> behind = read_canvas(c.model, p.canvas2, longer);
  Batch tree;
  tree.segments = {prompt_segment(p.input, -1, nullptr), canvas_segment(p.canvas, 0, nullptr),
                   prompt_segment(p.canvas, 0, nullptr), canvas_segment(p.canvas2, 0, nullptr, p.logits),
                   canvas_segment(p.canvas2, 2, nullptr)};
  for (const int segment : {1, 3, 4}) ask_rows(tree, segment);
  const Output out = c.model.forward(tree);
  const size_t n = p.canvas.size();
  c.tally.same_bits("bits: tree", p.tag + ", canvas", join_logits(out, 0, n), plain);
  c.tally.same_bits("bits: tree", p.tag + ", self-conditioned canvas", join_logits(out, n, n), conditioned);
  c.tally.same_bits("bits: tree", p.tag + ", canvas behind a continuation", join_logits(out, 2 * n, n), behind);
  compare_kv(c, "bits: tree", p.tag + ", continuation", *out.kept[2], *longer);
}

void check_together(const GoldenContext& c, std::span<const GoldenPrompt> prompts) {
  Batch batch;
  for (const GoldenPrompt& p : prompts) {
    const int root = static_cast<int>(batch.segments.size());
    batch.segments.push_back(prompt_segment(p.input, -1, nullptr));
    batch.segments.push_back(canvas_segment(p.canvas, root, nullptr));
    ask_rows(batch, root + 1);
  }
  const Output out = c.model.forward(batch);
  size_t first = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const GoldenPrompt& p = prompts[i];
    const Kv kv = prefill(c.model, p.input, nullptr);
    c.tally.same_bits("bits: together", p.tag, join_logits(out, first, p.canvas.size()), read_canvas(c.model, p.canvas, kv));
    compare_kv(c, "bits: together", p.tag, *out.kept[2 * i], *kv);
    first += p.canvas.size();
  }
}

}  // namespace dgem::model
