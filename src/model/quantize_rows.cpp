#include "model/quantize_rows.h"

#include "base/numeric.h"

#include <algorithm>
#include <array>
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

// Nearest FP4 magnitude of m >= 0. Adding and taking off 1.5 · 2^(22..24) rounds to multiples of 0.5, 1 or 2, ties to
// even as float_to_e2m1 does; written without branches, so that compilers vectorize it.
float round_to_e2m1(float m) {
  const float magic = m < 2.0f ? 0x1.8p22f : m < 4.0f ? 0x1.8p23f : 0x1.8p24f;
  return std::min((m + magic) - magic, kLargestCode);
}

// Squared error in units of largest², which neither overflows nor vanishes.
float block_error(const float* magnitudes, float largest, float unit) {
  const float inverse = 1.0f / unit;
  float difference[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const float m = magnitudes[i] * inverse;
    difference[i] = m - round_to_e2m1(m);
  }
  float sum = 0.0f;
  for (const float d : difference) sum += d * d;
  return sum * (unit / largest) * (unit / largest);
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
    const float unit = e4m3_to_float(scales[b]) * global;
    for (int i = 0; i < kBlock; i += 2) {
      uint8_t codes[2] = {0, 0};
      for (int j = 0; j < 2; ++j) {
        if (unit > 0.0f) codes[j] = float_to_e2m1(block[i + j] / unit);
        error += squared(block[i + j] - e2m1_to_float(codes[j]) * unit);
      }
      packed[(b * kBlock + i) / 2] = static_cast<uint8_t>(codes[0] | codes[1] << 4);
    }
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
