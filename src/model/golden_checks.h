// The parts of run_golden: what they share, and one function per group of recorded values.
#pragma once

#include "model/golden.h"
#include "model/golden_file.h"
#include "model/model.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace dgem::model {

// Collects comparisons by kind, in the order in which the kinds first come.
class GoldenTally {
 public:
  // by_row: judge as GoldenCheck says for bf16.
  GoldenTally(double tolerance, bool by_row) : tolerance_(tolerance), by_row_(by_row) {}

  // Values within the layers, or behind the last one; rows of `width`. The relative error must be within the tolerance.
  void close_inner(const std::string& kind, const std::string& where, std::span<const float> got,
                   std::span<const float> expected, size_t width);
  void close_final(const std::string& kind, const std::string& where, std::span<const float> got,
                   std::span<const float> expected, size_t width);
  // Every difference must be at most `bound`.
  void near(const std::string& kind, const std::string& where, std::span<const float> got, std::span<const float> expected,
            double bound);
  // Equality, value by value; of floats bit by bit.
  void same(const std::string& kind, const std::string& where, std::span<const int32_t> got,
            std::span<const int32_t> expected);
  void same(const std::string& kind, const std::string& where, std::span<const uint8_t> got,
            std::span<const uint8_t> expected);
  void same_bits(const std::string& kind, const std::string& where, std::span<const float> got,
                 std::span<const float> expected);

  // Canvas rows compared by their most likely tokens: see GoldenReport.
  void choices(int rows, int agreed, double gap);

  GoldenReport finish() &&;

 private:
  GoldenCheck& check(const std::string& kind);
  GoldenCheck& add(const std::string& kind, const std::string& where, double error, double bound);
  GoldenCheck& close(const std::string& kind, const std::string& where, std::span<const float> got,
                     std::span<const float> expected, size_t width);

  const double tolerance_;
  const bool by_row_;
  GoldenReport report_;
  std::map<std::string, std::vector<double>> row_errors_;  // by kind, if by_row_
  int rows_ = 0, agreed_ = 0;
  double gap_ = 0.0;
};

struct GoldenContext {
  Model& model;
  const GoldenFile& file;
  GoldenTally& tally;
};

// The inputs of one prompt's reads.
struct GoldenPrompt {
  std::string tag;
  std::vector<int32_t> input, canvas, canvas2;
  std::vector<float> logits;  // recorded, [canvas, vocab]
};

// ---- passes, as the checks put them together
Segment prompt_segment(std::span<const int32_t> tokens, int parent, Kv cached);  // kept
Segment canvas_segment(std::span<const int32_t> tokens, int parent, Kv cached,
                       std::span<const float> self_conditioning = {});
// Asks for the whole vocabulary at every row of `segment`.
void ask_rows(Batch& batch, int segment);
// The logits of asks [first, first + count), one after another.
std::vector<float> join_logits(const Output& output, size_t first, size_t count);
Kv prefill(Model& model, std::span<const int32_t> tokens, Kv cached);
std::vector<float> read_canvas(Model& model, std::span<const int32_t> tokens, Kv cached,
                               std::span<const float> self_conditioning = {});
// Rows of `values` [heads, rows, dim] from row `first` on.
std::vector<float> rows_from(std::span<const float> values, int heads, int rows, int dim, int first);

// ---- checks
Status check_states(const GoldenContext& context, const GoldenPrompt& prompt);             // encoder, cache, reads
Status check_generation(const GoldenContext& context, const GoldenPrompt& prompt);         // gen.*
void check_trees(const GoldenContext& context, const GoldenPrompt& prompt);                // equal bits, one prompt
void check_together(const GoldenContext& context, std::span<const GoldenPrompt> prompts);  // equal bits, all prompts

}  // namespace dgem::model
