#include "ops/cpu/rows_shared.h"

#include "base/numeric.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace dgem::ops::cpu {
namespace {

std::array<float, 256> make_e4m3_values() {
  std::array<float, 256> values;
  for (int i = 0; i < 256; ++i) values[static_cast<size_t>(i)] = e4m3_to_float(static_cast<uint8_t>(i));
  return values;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = make_e4m3_values();
  return values;
}

float element(const void* data, Format format, int64_t i) {
  switch (format) {
    case Format::f32: return static_cast<const float*>(data)[i];
    case Format::bf16: return to_float(static_cast<const bf16*>(data)[i]);
    case Format::f16: return f16_to_float(static_cast<const uint16_t*>(data)[i]);
    case Format::fp8:
    case Format::nvfp4: break;  // these need scales
  }
  DGEM_CHECK(false, "a plain element of format {}", ops::name_of(format));
  return 0.0f;
}

void decode_nvfp4(const Matrix& table, int64_t row, int64_t c0, int64_t c1, float* out) {
  const auto* codes = static_cast<const uint8_t*>(table.data) + row * table.row_bytes();
  const uint8_t* scales = table.block_scales + row * (table.cols / 16);
  for (int64_t c = c0; c < c1; ++c) {
    const int shift = (c & 1) != 0 ? 4 : 0;
    out[c - c0] = e2m1_to_float(static_cast<uint8_t>(codes[c / 2] >> shift)) * (e4m3_values()[scales[c / 16]] * table.scale);
  }
}

}  // namespace

float weight_at(const Vector& w, int64_t i) { return w.data == nullptr ? 1.0f : element(w.data, w.format, i); }

void decode_row(const Matrix& table, int64_t row, int64_t c0, int64_t c1, float* out) {
  const void* data = static_cast<const char*>(table.data) + row * table.row_bytes();
  switch (table.format) {
    case Format::f32:
    case Format::bf16:
    case Format::f16:
      for (int64_t c = c0; c < c1; ++c) out[c - c0] = element(data, table.format, c);
      return;
    case Format::fp8: {
      const float scale = weight_at(table.row_scales, row);
      for (int64_t c = c0; c < c1; ++c) out[c - c0] = e4m3_values()[static_cast<const uint8_t*>(data)[c]] * scale;
      return;
    }
    case Format::nvfp4: decode_nvfp4(table, row, c0, c1, out); return;
  }
}

void rope_angles(const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos, float* sin) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < angles; ++i) {
      // The angle is rounded to float32 as in the model; its cosine and sine are those of the rounded angle.
      const float angle = static_cast<float>(positions[r]) * frequencies[i];
      cos[r * angles + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin[r * angles + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void route(const float* logits, int64_t rows, int64_t experts, int k, const Vector& per_expert_scale, int32_t* ids,
           float* weights) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* z = logits + r * experts;
    int32_t* id = ids + r * k;
    // Insertion into the list of the best so far, largest first; an equal logit goes behind, so the lower index wins.
    int count = 0;
    for (int32_t e = 0; e < experts; ++e) {
      int at = count;
      while (at > 0 && z[e] > z[id[at - 1]]) --at;
      if (at == k) continue;
      count = std::min(count + 1, k);
      for (int j = count - 1; j > at; --j) id[j] = id[j - 1];
      id[at] = e;
    }
    const double largest = z[id[0]];
    std::sort(id, id + count);
    double sum = 0.0;
    for (int j = 0; j < k; ++j) sum += std::exp(z[id[j]] - largest);
    for (int j = 0; j < k; ++j) {
      weights[r * k + j] = static_cast<float>(std::exp(z[id[j]] - largest) / sum * weight_at(per_expert_scale, id[j]));
    }
  }
}

}  // namespace dgem::ops::cpu
