#include "model/golden.h"

#include "model/golden_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace dgem::model {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = static_cast<double>(got[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  if (difference == 0.0) return 0.0;
  const double error = std::sqrt(difference / norm);
  return std::isnan(error) ? kInfinity : error;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double largest_difference(std::span<const float> got, std::span<const float> expected) {
  double largest = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - expected[i]);
    largest = std::isnan(d) ? kInfinity : std::max(largest, d);
  }
  return largest;
}

template <class T>
double unequal_share(std::span<const T> got, std::span<const T> expected) {
  if (got.size() != expected.size()) return 1.0;
  size_t unequal = 0;
  for (size_t i = 0; i < got.size(); ++i) unequal += std::memcmp(&got[i], &expected[i], sizeof(T)) != 0;
  return got.empty() ? 0.0 : static_cast<double>(unequal) / static_cast<double>(got.size());
}

Result<GoldenPrompt> load_prompt(const GoldenFile& file, const std::string& tag, int64_t vocab) {
  GoldenPrompt prompt;
  prompt.tag = tag;
  DGEM_ASSIGN(prompt.input, file.tokens(tag + ".input_ids", {-1}));
  DGEM_ASSIGN(prompt.canvas, file.tokens(tag + ".canvas_ids", {-1}));
  DGEM_ASSIGN(prompt.canvas2, file.tokens(tag + ".read2.canvas_ids", {static_cast<int64_t>(prompt.canvas.size())}));
  DGEM_ASSIGN(prompt.logits, file.floats(tag + ".read.logits", {static_cast<int64_t>(prompt.canvas.size()), vocab}));
  return prompt;
}

}  // namespace

bool GoldenReport::ok() const {
  return std::all_of(checks.begin(), checks.end(), [](const GoldenCheck& c) { return c.ok; });
}

GoldenCheck& GoldenTally::check(const std::string& kind) {
  auto& checks = report_.checks;
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const GoldenCheck& c) { return c.kind == kind; });
  if (found != checks.end()) return *found;
  checks.push_back({});
  checks.back().kind = kind;
  return checks.back();
}

GoldenCheck& GoldenTally::add(const std::string& kind, const std::string& where, double error, double bound) {
  GoldenCheck& c = check(kind);
  if (c.count++ == 0 || error > c.worst) {
    c.worst = error;
    c.where = where;
  }
  c.exact = bound == 0.0;
  c.ok = c.ok && error <= bound;
  return c;
}

GoldenCheck& GoldenTally::close(const std::string& kind, const std::string& where, std::span<const float> got,
                                std::span<const float> expected, size_t width) {
  if (got.size() != expected.size()) return add(kind, where, kInfinity, tolerance_);
  if (!by_row_) return add(kind, where, relative_error(got, expected), tolerance_);
  double largest = 0.0;
  for (size_t at = 0; at + width <= got.size(); at += width) {
    const double error = relative_error(got.subspan(at, width), expected.subspan(at, width));
    row_errors_[kind].push_back(error);
    largest = std::max(largest, error);
  }
  if (largest == kInfinity) return add(kind, where, largest, tolerance_);  // no number: never a matter of rounding
  return add(kind, "", 0.0, tolerance_);                                   // judged by finish()
}

void GoldenTally::close_inner(const std::string& kind, const std::string& where, std::span<const float> got,
                              std::span<const float> expected, size_t width) {
  close(kind, where, got, expected, width);
}

void GoldenTally::close_final(const std::string& kind, const std::string& where, std::span<const float> got,
                              std::span<const float> expected, size_t width) {
  close(kind, where, got, expected, width).judged = !by_row_;
}

void GoldenTally::choices(int rows, int agreed, double gap) {
  rows_ += rows;
  agreed_ += agreed;
  gap_ += gap;
}

GoldenReport GoldenTally::finish() && {
  for (const auto& [kind, errors] : row_errors_) {
    GoldenCheck& c = check(kind);
    c.worst = std::max(c.worst, median(errors));
    c.ok = c.ok && (!c.judged || c.worst <= tolerance_);
  }
  if (rows_ > 0) {
    report_.top_agreement = static_cast<double>(agreed_) / rows_;
    report_.mean_probability_gap = gap_ / rows_;
  }
  return std::move(report_);
}

void GoldenTally::near(const std::string& kind, const std::string& where, std::span<const float> got,
                       std::span<const float> expected, double bound) {
  add(kind, where, got.size() != expected.size() ? kInfinity : largest_difference(got, expected), bound);
}

void GoldenTally::same(const std::string& kind, const std::string& where, std::span<const int32_t> got,
                       std::span<const int32_t> expected) {
  add(kind, where, unequal_share(got, expected), 0.0);
}

void GoldenTally::same(const std::string& kind, const std::string& where, std::span<const uint8_t> got,
                       std::span<const uint8_t> expected) {
  add(kind, where, unequal_share(got, expected), 0.0);
}

void GoldenTally::same_bits(const std::string& kind, const std::string& where, std::span<const float> got,
                            std::span<const float> expected) {
  add(kind, where, unequal_share(got, expected), 0.0);
}

Segment prompt_segment(std::span<const int32_t> tokens, int parent, Kv cached) {
  Segment s;
  s.tokens = tokens;
  s.parent = parent;
  s.cached = std::move(cached);
  s.keep = true;
  return s;
}

Segment canvas_segment(std::span<const int32_t> tokens, int parent, Kv cached, std::span<const float> self_conditioning) {
  Segment s;
  s.canvas = true;
  s.tokens = tokens;
  s.parent = parent;
  s.cached = std::move(cached);
  s.self_conditioning = self_conditioning;
  return s;
}

void ask_rows(Batch& batch, int segment) {
  const int rows = static_cast<int>(batch.segments[segment].tokens.size());
  for (int r = 0; r < rows; ++r) batch.asks.push_back({segment, r, {}});
}

std::vector<float> join_logits(const Output& output, size_t first, size_t count) {
  std::vector<float> all;
  for (size_t i = first; i < first + count; ++i) all.insert(all.end(), output.logits[i].begin(), output.logits[i].end());
  return all;
}

Kv prefill(Model& model, std::span<const int32_t> tokens, Kv cached) {
  Batch batch;
  batch.segments.push_back(prompt_segment(tokens, -1, std::move(cached)));
  return model.forward(batch).kept[0];
}

std::vector<float> read_canvas(Model& model, std::span<const int32_t> tokens, Kv cached,
                               std::span<const float> self_conditioning) {
  Batch batch;
  batch.segments.push_back(canvas_segment(tokens, -1, std::move(cached), self_conditioning));
  ask_rows(batch, 0);
  return join_logits(model.forward(batch), 0, tokens.size());
}

std::vector<float> rows_from(std::span<const float> values, int heads, int rows, int dim, int first) {
  std::vector<float> out;
  for (int h = 0; h < heads; ++h) {
    const auto head = values.subspan(static_cast<size_t>(h) * rows * dim, static_cast<size_t>(rows) * dim);
    out.insert(out.end(), head.begin() + static_cast<ptrdiff_t>(first) * dim, head.end());
  }
  return out;
}

bool golden_has_images(const TensorFiles& golden) {
  const auto& all = golden.tensors();
  return std::any_of(all.begin(), all.end(), [](const auto& entry) { return entry.first.ends_with(".pixel_values"); });
}

Result<GoldenReport> run_golden(Model& model, const TensorFiles& golden, double tolerance) {
  DGEM_ASSIGN(const GoldenFile file, GoldenFile::open(golden, model.config()));
  std::vector<GoldenPrompt> prompts;
  for (const std::string& tag : file.tags()) {
    DGEM_ASSIGN(GoldenPrompt prompt, load_prompt(file, tag, model.config().vocab_size));
    prompts.push_back(std::move(prompt));
  }
  GoldenTally tally(tolerance, model.device().precision() == ops::Precision::bf16);
  const GoldenContext context{model, file, tally};
  for (const GoldenPrompt& prompt : prompts) DGEM_RETURN_IF_ERROR(check_states(context, prompt));
  for (const GoldenPrompt& prompt : prompts) DGEM_RETURN_IF_ERROR(check_generation(context, prompt));
  for (const GoldenPrompt& prompt : prompts) check_trees(context, prompt);
  check_together(context, prompts);
  return std::move(tally).finish();
}

}  // namespace dgem::model
