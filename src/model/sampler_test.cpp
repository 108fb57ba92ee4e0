#include "model/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace dgem::model {
namespace {

using Use = CounterRandom::Use;

// The vectors published with Random123 (kat_vectors, philox4x32 with 10 rounds): first two of the four result words.
TEST(CounterRandom, GivesThePublishedVectors) {
  EXPECT_EQ(CounterRandom(0).bits(0, 0, 0, Use::init), 0xe169c58d6627e8d5u);
  EXPECT_EQ(CounterRandom(~uint64_t{0}).bits(-1, -1, -1, static_cast<Use>(~0u)), 0x41c83b0e408f276du);
  EXPECT_EQ(CounterRandom(0x299f31d0a4093822u)
                .bits(0x13198a2e, static_cast<int>(0x85a308d3u), 0x243f6a88, static_cast<Use>(0x03707344u)),
            0x94fdccebd16cfe09u);
}

TEST(CounterRandom, EveryCoordinateMatters) {
  const CounterRandom random(7);
  const CounterRandom other(8), far(7u | uint64_t{1} << 40);
  std::vector<uint64_t> seen = {random.bits(0, 0, 0, Use::init),   random.bits(1, 0, 0, Use::init),
                                random.bits(0, 1, 0, Use::init),   random.bits(0, 0, 1, Use::init),
                                random.bits(0, 0, 0, Use::sample), random.bits(0, 0, 0, Use::renoise),
                                other.bits(0, 0, 0, Use::init),    far.bits(0, 0, 0, Use::init)};
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

RC_GTEST_PROP(CounterRandom, NumbersLieInTheirRange, (uint64_t seed, int position)) {
  const CounterRandom random(seed);
  const double u = random.uniform(1, 2, position, Use::sample);
  RC_ASSERT(u >= 0.0 && u < 1.0);
  const int32_t n = *rc::gen::inRange<int32_t>(1, std::numeric_limits<int32_t>::max());
  const int32_t drawn = random.below(n, 1, 2, position, Use::sample);
  RC_ASSERT(drawn >= 0 && drawn < n);
  // The same draw seen two ways: floor(n · u), but for the last bits.
  RC_ASSERT(std::abs(drawn - std::floor(n * u)) <= 1.0);
}

TEST(CounterRandom, FillsARangeEvenly) {
  constexpr int kBins = 10, kDraws = 20000;
  int count[kBins] = {};
  const CounterRandom random(42);
  for (int i = 0; i < kDraws; ++i) ++count[random.below(kBins, 0, 0, i, Use::init)];
  for (const int c : count) EXPECT_NEAR(c, kDraws / kBins, 5 * std::sqrt(kDraws / kBins));  // 5 standard deviations
}

TEST(Temperature, FallsFromTheFirstStepOn) {
  const GenerationConfig config;  // 0.4 to 0.8 in 48 steps
  EXPECT_DOUBLE_EQ(temperature(config, 48), 0.8);
  EXPECT_DOUBLE_EQ(temperature(config, 24), 0.6);
  EXPECT_NEAR(temperature(config, 1), 0.40833, 1e-5);
}

double brute_entropy(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double z = 0.0, moment = 0.0;
  for (const float x : logits) {
    z += std::exp(x - top);
    moment += std::exp(x - top) * (x - top);
  }
  return std::log(z) - moment / z;
}

std::vector<float> random_logits(int64_t count, float spread, uint64_t seed) {
  const CounterRandom random(seed);
  std::vector<float> logits(count);
  for (int64_t i = 0; i < count; ++i) {
    logits[i] = spread * static_cast<float>(2.0 * random.uniform(0, 0, static_cast<int>(i), Use::init) - 1.0);
  }
  return logits;
}

TEST(TokenStatistics, AgreeWithTheDefinition) {
  constexpr int kPositions = 3;
  for (const int vocab : {1, 2, 17, 411, 1023, 1024, 1025, 5000}) {
    for (const float spread : {0.0f, 0.01f, 5.0f, 75.0f}) {
      const std::vector<float> logits = random_logits(int64_t{kPositions} * vocab, spread, vocab);
      const TokenStatistics statistics = token_statistics(logits, kPositions);
      for (int p = 0; p < kPositions; ++p) {
        const std::span<const float> row = std::span(logits).subspan(static_cast<size_t>(p) * vocab, vocab);
        EXPECT_NEAR(statistics.entropy[p], brute_entropy(row), 2e-6) << vocab << " " << spread;
        EXPECT_EQ(statistics.argmax[p], std::max_element(row.begin(), row.end()) - row.begin()) << vocab << " " << spread;
      }
    }
  }
}

TEST(TokenStatistics, TakeTheLowestIdOnATie) {
  std::vector<float> logits(3000, 1.0f);
  EXPECT_EQ(token_statistics(logits, 1).argmax[0], 0);
  logits[2500] = logits[1100] = logits[1300] = 2.0f;  // in two blocks
  EXPECT_EQ(token_statistics(logits, 1).argmax[0], 1100);
}

TEST(TokenStatistics, SurviveWhatIsNoNumber) {
  std::vector<float> logits(40, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(token_statistics(logits, 1).argmax[0], 0);
  const double uniform = 0.5;
  const int32_t drawn = sample_tokens(logits, {&uniform, 1})[0];
  EXPECT_TRUE(drawn >= 0 && drawn < 40);
}

// Over an even grid of uniform numbers, each token comes as often as its probability says, up to one on each side.
TEST(SampleTokens, FollowTheSoftmax) {
  constexpr int kVocab = 2100, kDraws = 4000;
  const std::vector<float> row = random_logits(kVocab, 6.0f, 3);
  std::vector<float> logits;
  std::vector<double> grid;
  for (int i = 0; i < kDraws; ++i) {
    logits.insert(logits.end(), row.begin(), row.end());
    grid.push_back((i + 0.5) / kDraws);
  }
  const std::vector<int32_t> drawn = sample_tokens(logits, grid);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  double total = 0.0;
  for (const float x : row) total += std::exp(static_cast<double>(x));
  for (int v = 0; v < kVocab; ++v) {
    const auto often = std::count(drawn.begin(), drawn.end(), v);
    EXPECT_NEAR(static_cast<double>(often), kDraws * std::exp(static_cast<double>(row[v])) / total, 1.0 + 1e-3) << v;
  }
}

TEST(SampleTokens, StayInRangeAtTheEnds) {
  const std::vector<float> row = {-75.0f, 75.0f, -75.0f};
  std::vector<float> logits;
  for (int i = 0; i < 3; ++i) logits.insert(logits.end(), row.begin(), row.end());
  const std::vector<double> uniform = {1e-9, 0.5, 1.0 - 1e-9};
  EXPECT_EQ(sample_tokens(logits, uniform), (std::vector<int32_t>{1, 1, 1}));
}

// By the definition, one position at a time. The entropies are multiples of 1/64, so that every sum is exact.
RC_GTEST_PROP(Accept, IsTheDefinition, ()) {
  const auto units = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40)));
  const double bound = *rc::gen::inRange(0, 120) / 64.0;
  std::vector<float> entropy;
  for (const int u : units) entropy.push_back(static_cast<float>(u) / 64.0f);
  const std::vector<uint8_t> accepted = accept(entropy, bound);
  RC_ASSERT(accepted.size() == entropy.size());
  for (size_t i = 0; i < entropy.size(); ++i) {
    double before = 0.0;
    for (size_t j = 0; j < entropy.size(); ++j) {
      if (std::pair(entropy[j], j) < std::pair(entropy[i], i)) before += entropy[j];
    }
    RC_ASSERT((accepted[i] != 0) == (before <= bound));
  }
}

TEST(Accept, AlwaysTakesTheSmallest) {
  EXPECT_EQ(accept(std::vector<float>{9.0f, 5.0f, 7.0f}, 0.1), (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_EQ(accept(std::vector<float>{9.0f, 5.0f, 7.0f}, -1.0), (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_EQ(accept(std::vector<float>{4.0f, 4.0f}, 0.1), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(accept(std::vector<float>{std::nanf(""), 5.0f}, 0.1), (std::vector<uint8_t>{0, 1}));
  EXPECT_TRUE(accept({}, 0.1).empty());
}

TEST(NextCanvas, MixesSampledAndRenoise) {
  EXPECT_EQ(next_canvas(std::vector<uint8_t>{1, 0, 1}, std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{7, 8, 9}),
            (std::vector<int32_t>{1, 8, 3}));
}

GenerationConfig stopping(int stability, double confidence) {
  GenerationConfig config;
  config.stability_threshold = stability;
  config.confidence_threshold = confidence;
  return config;
}

TEST(StopRule, NeedsAStableAndConfidentCanvas) {
  const std::vector<int32_t> a = {1, 2}, b = {1, 3};
  const std::vector<float> sure = {0.0f, 0.1f}, unsure = {0.0f, 3.0f};  // means 0.05 and 1.5
  StopRule rule(stopping(1, 0.1));
  EXPECT_FALSE(rule.step(a, sure));    // nothing before it
  EXPECT_FALSE(rule.step(b, sure));    // changed
  EXPECT_FALSE(rule.step(b, unsure));  // not confident
  EXPECT_TRUE(rule.step(b, sure));
  StopRule at_bound(stopping(1, 0.5));
  const std::vector<float> half = {0.5f, 0.5f};
  EXPECT_FALSE(at_bound.step(a, half));
  EXPECT_FALSE(at_bound.step(a, half));  // the mean must be below
}

TEST(StopRule, LooksBackAsFarAsItIsTold) {
  const std::vector<int32_t> a = {1}, b = {2};
  const std::vector<float> sure = {0.0f};
  EXPECT_TRUE(StopRule(stopping(0, 0.1)).step(a, sure));
  StopRule two(stopping(2, 0.1));
  EXPECT_FALSE(two.step(a, sure));
  EXPECT_FALSE(two.step(b, sure));
  EXPECT_FALSE(two.step(b, sure));  // a is still among the last two
  EXPECT_TRUE(two.step(b, sure));
}

}  // namespace
}  // namespace dgem::model
