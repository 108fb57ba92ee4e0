// One denoising step's decisions (model.md 4): from a canvas and its logits to the next canvas.
#pragma once

#include "model/config.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dgem::model {

// Temperature with n denoising steps remaining of N (n = N at the first step): t_min + (t_max - t_min) · n / N.
double temperature(const GenerationConfig& config, int remaining);

// Per position of logits [C, V] already divided by the temperature.
struct TokenStatistics {
  std::vector<float> entropy;   // nats of softmax(logits)
  std::vector<int32_t> argmax;  // lowest id on a tie
};
TokenStatistics token_statistics(std::span<const float> logits, int positions);

// Draws one token per position from softmax(logits); `uniform` in [0, 1) per position picks it by the cumulative sum.
std::vector<int32_t> sample_tokens(std::span<const float> logits, std::span<const double> uniform);

// Which positions keep their sampled token: in ascending order of entropy, those whose *smaller* entropies sum to at
// most `bound`; the smallest always. Ties go by position.
std::vector<uint8_t> accept(std::span<const float> entropy, double bound);

// The next canvas: sampled where accepted, else renoise.
std::vector<int32_t> next_canvas(std::span<const uint8_t> accepted, std::span<const int32_t> sampled,
                                 std::span<const int32_t> renoise);

// The stop rule: argmax canvas unchanged over the last stability_threshold steps and mean entropy below
// confidence_threshold.
class StopRule {
 public:
  explicit StopRule(const GenerationConfig& config);
  bool step(std::span<const int32_t> argmax, std::span<const float> entropy);  // true: stop

 private:
  const GenerationConfig config_;
  std::vector<std::vector<int32_t>> history_;
};

// Random numbers by counter: the same (seed, block, step, position, use) gives the same number in any order of calls.
class CounterRandom {
 public:
  enum class Use : uint32_t { init, sample, renoise };
  explicit CounterRandom(uint64_t seed) : seed_(seed) {}
  uint64_t bits(int block, int step, int position, Use use) const;
  double uniform(int block, int step, int position, Use use) const;            // [0, 1)
  int32_t below(int32_t n, int block, int step, int position, Use use) const;  // uniform in [0, n)

 private:
  uint64_t seed_;
};

}  // namespace dgem::model
