#include "model/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace dgem::model {
namespace {

// A row of logits is read in blocks that stay in the first-level cache, and only once.
constexpr int kBlock = 1024;
// Below this distance from the largest logit a weight counts as exp(kLowest): less than 1e-37, and never subnormal.
constexpr float kLowest = -87.0f;

// exp(x) for x in [kLowest, 0], to 1e-7 relative: 2^n times the Taylor series of the rest. Plain arithmetic, so that
// loops over it become vector code and give the same bits on every processor.
inline float exp_negative(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts; the first product is exact
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + (127u << 23));
}

float largest(const float* x, int n) {
  constexpr int kLanes = 16;
  float best[kLanes];
  std::fill(best, best + kLanes, -std::numeric_limits<float>::infinity());
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
  }
  for (; i < n; ++i) best[0] = x[i] > best[0] ? x[i] : best[0];
  return *std::max_element(best, best + kLanes);
}

// d[i] = x[i] - top and e[i] = exp(d[i]) for i < n <= kBlock; zeros up to kBlock.
void exponentials(const float* x, int n, float top, float* d, float* e) {
  for (int i = 0; i < n; ++i) {
    const float v = x[i] - top;
    d[i] = v > kLowest ? v : kLowest;
    e[i] = exp_negative(d[i]);
  }
  std::fill(d + n, d + kBlock, 0.0f);
  std::fill(e + n, e + kBlock, 0.0f);
}

// Sum of kBlock values by halving; overwrites them.
float tree_sum(float* e) {
  for (int width = kBlock / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) e[i] += e[i + width];
  }
  return e[0];
}

// With d = logit - top over some logits: weight = Σ exp(d), moment = Σ exp(d) · d.
struct Sums {
  double top = 0.0, weight = 0.0, moment = 0.0;

  void raise(double to) {
    const double down = top - to, factor = std::exp(down);
    moment = (moment + down * weight) * factor;
    weight *= factor;
    top = to;
  }
  void add(Sums other) {
    if (other.top > top)
      raise(other.top);
    else
      other.raise(top);
    weight += other.weight;
    moment += other.moment;
  }
};

struct Scratch {
  alignas(64) float d[kBlock];
  alignas(64) float e[kBlock];
};

int32_t sample_row(const float* x, int64_t vocab, double uniform, Scratch& s, std::vector<Sums>& blocks) {
  blocks.clear();
  double top = -std::numeric_limits<double>::infinity();
  for (int64_t at = 0; at < vocab; at += kBlock) {
    const int n = static_cast<int>(std::min<int64_t>(kBlock, vocab - at));
    const float block_top = largest(x + at, n);
    exponentials(x + at, n, block_top, s.d, s.e);
    blocks.push_back({block_top, tree_sum(s.e), 0.0});
    top = std::max<double>(top, block_top);
  }
  double total = 0.0;
  for (Sums& b : blocks) {
    b.raise(top);
    total += b.weight;
  }
  // The block whose stretch of the cumulative sum holds the target, then the token within it. If rounding carries the
  // target past the end, the last one is taken.
  double target = uniform * total;
  size_t chosen = 0;
  while (chosen + 1 < blocks.size() && !(target < blocks[chosen].weight)) target -= blocks[chosen++].weight;
  const int64_t at = static_cast<int64_t>(chosen) * kBlock;
  const int n = static_cast<int>(std::min<int64_t>(kBlock, vocab - at));
  const float block_top = largest(x + at, n);
  exponentials(x + at, n, block_top, s.d, s.e);
  target *= std::exp(top - block_top);
  int i = 0;
  while (i + 1 < n && !(target < s.e[i])) target -= s.e[i++];
  return static_cast<int32_t>(at + i);
}

}  // namespace

double temperature(const GenerationConfig& config, int remaining) {
  return config.t_min + (config.t_max - config.t_min) * (static_cast<double>(remaining) / config.max_denoising_steps);
}

TokenStatistics token_statistics(std::span<const float> logits, int positions) {
  DGEM_CHECK(positions > 0 && logits.size() % positions == 0 && !logits.empty());
  const int64_t vocab = static_cast<int64_t>(logits.size()) / positions;
  TokenStatistics out;
  out.entropy.resize(positions);
  out.argmax.resize(positions);
  Scratch s;
  for (int p = 0; p < positions; ++p) {
    const float* x = logits.data() + p * vocab;
    Sums all;
    int64_t best_block = 0;
    for (int64_t at = 0; at < vocab; at += kBlock) {
      const int n = static_cast<int>(std::min<int64_t>(kBlock, vocab - at));
      const float top = largest(x + at, n);
      exponentials(x + at, n, top, s.d, s.e);
      for (int i = 0; i < kBlock; ++i) s.d[i] *= s.e[i];
      const Sums block{top, tree_sum(s.e), tree_sum(s.d)};
      if (at == 0) {
        all = block;
        continue;
      }
      if (block.top > all.top) best_block = at;
      all.add(block);
    }
    const int n = static_cast<int>(std::min<int64_t>(kBlock, vocab - best_block));
    const float* begin = x + best_block;
    const float* found = std::find(begin, begin + n, static_cast<float>(all.top));
    out.argmax[p] = found == begin + n ? 0 : static_cast<int32_t>(found - x);  // not found: no number is among them
    out.entropy[p] = static_cast<float>(std::log(all.weight) - all.moment / all.weight);
  }
  return out;
}

std::vector<int32_t> sample_tokens(std::span<const float> logits, std::span<const double> uniform) {
  DGEM_CHECK(!uniform.empty() && logits.size() % uniform.size() == 0 && !logits.empty());
  const int64_t vocab = static_cast<int64_t>(logits.size() / uniform.size());
  std::vector<int32_t> out(uniform.size());
  Scratch s;
  std::vector<Sums> blocks;
  for (size_t p = 0; p < uniform.size(); ++p) {
    out[p] = sample_row(logits.data() + static_cast<int64_t>(p) * vocab, vocab, uniform[p], s, blocks);
  }
  return out;
}

std::vector<uint8_t> accept(std::span<const float> entropy, double bound) {
  std::vector<float> key(entropy.begin(), entropy.end());
  for (float& k : key) {
    if (std::isnan(k)) k = std::numeric_limits<float>::infinity();  // sorting needs an order
  }
  std::vector<int> order(key.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key[a] < key[b]; });
  std::vector<uint8_t> accepted(key.size(), 0);
  double smaller = 0.0;
  for (size_t i = 0; i < order.size() && (i == 0 || smaller <= bound); ++i) {
    accepted[order[i]] = 1;
    smaller += key[order[i]];
  }
  return accepted;
}

std::vector<int32_t> next_canvas(std::span<const uint8_t> accepted, std::span<const int32_t> sampled,
                                 std::span<const int32_t> renoise) {
  DGEM_CHECK(accepted.size() == sampled.size() && accepted.size() == renoise.size());
  std::vector<int32_t> canvas(accepted.size());
  for (size_t i = 0; i < canvas.size(); ++i) canvas[i] = accepted[i] ? sampled[i] : renoise[i];
  return canvas;
}

StopRule::StopRule(const GenerationConfig& config) : config_(config) {}

bool StopRule::step(std::span<const int32_t> argmax, std::span<const float> entropy) {
  const size_t needed = static_cast<size_t>(std::max(0, config_.stability_threshold));
  const bool stable = history_.size() >= needed && std::all_of(history_.begin(), history_.end(), [&](const auto& past) {
                        return std::equal(past.begin(), past.end(), argmax.begin(), argmax.end());
                      });
  history_.emplace_back(argmax.begin(), argmax.end());
  if (history_.size() > needed) history_.erase(history_.begin());
  const double mean = std::accumulate(entropy.begin(), entropy.end(), 0.0) / static_cast<double>(entropy.size());
  return stable && mean < config_.confidence_threshold;
}

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the seed is the key, the place the
// counter; the result is the first two words.
uint64_t CounterRandom::bits(int block, int step, int position, Use use) const {
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(step), static_cast<uint32_t>(block),
                   static_cast<uint32_t>(use)};
  uint32_t key0 = static_cast<uint32_t>(seed_), key1 = static_cast<uint32_t>(seed_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return uint64_t{c[1]} << 32 | c[0];
}

double CounterRandom::uniform(int block, int step, int position, Use use) const {
  return static_cast<double>(bits(block, step, position, use) >> 11) * 0x1p-53;
}

int32_t CounterRandom::below(int32_t n, int block, int step, int position, Use use) const {
  // The high word of bits · n; with 64 bits no n is favoured by more than 2^-33.
  const uint64_t b = bits(block, step, position, use), m = static_cast<uint32_t>(n);
  return static_cast<int32_t>(((b >> 32) * m + ((b & 0xffffffffu) * m >> 32)) >> 32);
}

}  // namespace dgem::model
