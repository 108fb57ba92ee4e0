#include "model/quantize_rows.h"

#include "base/numeric.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace dgem::model {
namespace {

constexpr int kBlock = 16;
constexpr float kLargestCode = 6.0f, kLargestScale = 448.0f;
constexpr uint8_t kLargestScaleCode = 0x7e;  // 448 as E4M3

float largest_magnitude(const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// Nearest FP4 magnitude of m >= 0. FP4 keeps one bit after the leading one, and multiples of 0.5 below 1: adding and
// taking off 1.5 · 2^22 times m's power of two (held within 1 .. 4) rounds to that, ties to even as float_to_e2m1 does.
// Floats at or above 0 compare like their bits; compilers vectorize integer comparisons, but not float ones.
float round_to_e2m1(float m) {
  constexpr int32_t kOne = std::bit_cast<int32_t>(1.0f), kFour = std::bit_cast<int32_t>(4.0f);
  constexpr int32_t kSix = std::bit_cast<int32_t>(kLargestCode), kMagic = std::bit_cast<int32_t>(0x1.8p22f) - kOne;
  int32_t power = std::bit_cast<int32_t>(m) & 0x7f800000;
  power = power < kOne ? kOne : power;
  power = power > kFour ? kFour : power;
  const float magic = std::bit_cast<float>(power + kMagic);
  const int32_t rounded = std::bit_cast<int32_t>((m + magic) - magic);
  return std::bit_cast<float>(rounded > kSix ? kSix : rounded);
}

// Squared error in units of largest², which neither overflows nor vanishes.
float block_error(const float* magnitudes, float largest, float unit) {
  const float inverse = 1.0f / unit;
  float squares[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const float m = magnitudes[i] * inverse;
    const float d = m - round_to_e2m1(m);
    squares[i] = d * d;
  }
  for (int half = kBlock / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) squares[i] += squares[i + half];
  }
  return squares[0] * (unit / largest) * (unit / largest);
}

// The E4M3 code of the best scale.
uint8_t search_scale(const float* block, float global) {
  float magnitudes[kBlock];
  for (int i = 0; i < kBlock; ++i) magnitudes[i] = std::fabs(block[i]);
  const float largest = largest_magnitude(block, kBlock);
  if (largest == 0.0f) return 0;
  const int six = float_to_e4m3(largest / (6.0f * global)), four = float_to_e4m3(largest / (4.0f * global));
  uint8_t best = 1;
  float best_error = std::numeric_limits<float>::infinity();
  for (const int code : std::array{six, six - 1, six + 1, six - 2, four, four - 1}) {
    const auto clamped = static_cast<uint8_t>(std::clamp<int>(code, 1, kLargestScaleCode));
    const float error = block_error(magnitudes, largest, e4m3_to_float(clamped) * global);
    if (error < best_error) {
      best_error = error;
      best = clamped;
    }
  }
  return best;
}

double squared(float x) { return static_cast<double>(x) * static_cast<double>(x); }

// Packs one block with the scale `unit` (0: all its values are 0); returns its squared error.
double pack_block(const float* block, float unit, uint8_t* packed) {
  float rounded[kBlock];
  for (int i = 0; i < kBlock; ++i) rounded[i] = unit > 0.0f ? round_to_e2m1(std::fabs(block[i]) / unit) : 0.0f;
  double error = 0.0;
  uint8_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    codes[i] = float_to_e2m1(std::copysign(rounded[i], block[i]));
    error += squared(std::fabs(block[i]) - rounded[i] * unit);
  }
  for (int i = 0; i < kBlock; i += 2) packed[i / 2] = static_cast<uint8_t>(codes[i] | codes[i + 1] << 4);
  return error;
}

}  // namespace

float nvfp4_global(float largest) {
  if (largest == 0.0f) return 1.0f;
  return std::max(largest / (kLargestCode * kLargestScale), std::numeric_limits<float>::min());
}

double quantize_nvfp4_row(const float* row, int64_t cols, float global, uint8_t* packed, uint8_t* scales) {
  double error = 0.0;
  for (int64_t b = 0; b < cols / kBlock; ++b) {
    const float* block = row + b * kBlock;
    scales[b] = search_scale(block, global);
    error += pack_block(block, e4m3_to_float(scales[b]) * global, packed + b * kBlock / 2);
  }
  return error;
}

double quantize_fp8_row(const float* row, int64_t cols, uint8_t* out, float* scale) {
  const float largest = largest_magnitude(row, cols);
  *scale = largest == 0.0f ? 1.0f : std::max(largest / kLargestScale, std::numeric_limits<float>::min());
  double error = 0.0;
  for (int64_t c = 0; c < cols; ++c) {
    out[c] = float_to_e4m3(row[c] / *scale);
    error += squared(row[c] - e4m3_to_float(out[c]) * *scale);
  }
  return error;
}

}  // namespace dgem::model
