#include "model/synth_random.h"

#include "base/numeric.h"
#include "base/result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace dgem::model {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

// SplitMix64 (Steele, Lea, Flood 2014): the output for one counter value.
uint64_t random_word(uint64_t key, uint64_t counter) {
  uint64_t z = key + counter * kStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A normal variable in 4096 equally likely steps: the middle quantile of each step.
constexpr int kQuantileBits = 12;
constexpr size_t kQuantiles = size_t{1} << kQuantileBits;
using Quantiles = std::array<float, kQuantiles>;

double normal_quantile(double p) {
  double low = -10.0, high = 10.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return low;
}

const Quantiles& quantiles() {
  static const Quantiles table = [] {
    Quantiles t;
    for (size_t i = 0; i < kQuantiles; ++i)
      t[i] = static_cast<float>(normal_quantile((static_cast<double>(i) + 0.5) / kQuantiles));
    return t;
  }();
  return table;
}

// 16 normal values, quantized.
struct Block {
  uint64_t codes = 0;
  uint8_t scale = 0;
};
constexpr size_t kBlocks = 4096;
constexpr uint64_t kSignBits = 0x8888888888888888u;

Block quantize_block(uint64_t key, float global) {
  std::array<float, 16> values;
  float largest = 0.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = quantiles()[random_word(key, i) >> (64 - kQuantileBits)];
    largest = std::max(largest, std::fabs(values[i]));
  }
  Block block;
  block.scale = float_to_e4m3(largest / (6.0f * global));
  const float unit = e4m3_to_float(block.scale) * global;
  for (size_t i = 0; i < values.size(); ++i) block.codes |= uint64_t{float_to_e2m1(values[i] / unit)} << (4 * i);
  return block;
}

const std::array<Block, kBlocks>& blocks() {
  static const std::array<Block, kBlocks> table = [] {
    std::array<Block, kBlocks> t;
    for (size_t i = 0; i < kBlocks; ++i) t[i] = quantize_block(random_word(kStep, i), nvfp4_global_scale(1.0f));
    return t;
  }();
  return table;
}

// Block `index` of a module: one of the table's, with its signs drawn anew.
Block draw_block(uint64_t key, uint64_t index) {
  const uint64_t word = random_word(key, index);
  Block block = blocks()[(word * 0xd6e8feb86659fd93u) >> 52];
  block.codes ^= word & kSignBits;
  return block;
}

template <class T>
void store(std::byte* out, size_t i, T value) {
  std::memcpy(out + i * sizeof(T), &value, sizeof(T));
}

// Four elements share a word: their 16 bits' upper 12 choose the quantile.
template <class T, class Convert>
void fill_normal(const Draw& draw, uint64_t first, std::span<std::byte> out, Convert convert) {
  std::array<T, kQuantiles> table;
  for (size_t i = 0; i < kQuantiles; ++i) table[i] = convert(quantiles()[i] * draw.width);
  const size_t count = out.size() / sizeof(T);
  for (size_t i = 0; i < count; i += 4) {
    uint64_t word = random_word(draw.key, (first + i) / 4);
    for (size_t j = i; j < std::min(i + 4, count); ++j, word >>= 16) {
      store(out.data(), j, table[(word & 0xffffu) >> (16 - kQuantileBits)]);
    }
  }
}

template <class T, class Convert>
void fill_uniform(const Draw& draw, uint64_t first, std::span<std::byte> out, Convert convert) {
  for (size_t i = 0; i < out.size() / sizeof(T); ++i) {
    const float unit = static_cast<float>(random_word(draw.key, first + i) >> 40) * 0x1p-24f;
    store(out.data(), i, convert(draw.low + draw.width * unit));
  }
}

}  // namespace

uint64_t draw_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return random_word(hash, random_word(seed, 1));
}

float nvfp4_global_scale(float deviation) { return deviation * quantiles().back() / (6.0f * 448.0f); }

void fill(const Draw& draw, int64_t offset, std::span<std::byte> out) {
  DGEM_CHECK(offset % kDrawAlignment == 0, "{}", offset);
  const auto start = static_cast<uint64_t>(offset);
  const auto same = [](float f) { return f; };
  switch (draw.kind) {
    case DrawKind::uniform_f32: return fill_uniform<float>(draw, start / 4, out, same);
    case DrawKind::uniform_bf16: return fill_uniform<bf16>(draw, start / 2, out, to_bf16);
    case DrawKind::normal_f32: return fill_normal<float>(draw, start / 4, out, same);
    case DrawKind::normal_bf16: return fill_normal<bf16>(draw, start / 2, out, to_bf16);
    case DrawKind::constant_f32:
      for (size_t i = 0; i < out.size() / sizeof(float); ++i) store(out.data(), i, draw.low);
      return;
    case DrawKind::nvfp4_codes:
      for (size_t i = 0; i < out.size() / 8; ++i) store(out.data(), i, draw_block(draw.key, start / 8 + i).codes);
      return;
    case DrawKind::nvfp4_scales:
      for (size_t i = 0; i < out.size(); ++i) store(out.data(), i, draw_block(draw.key, start + i).scale);
      return;
  }
}

}  // namespace dgem::model
