// Matrix products by float32 dot products: lanes run along the inner dimension, a tile of kMr rows of x times kNr rows of
// w stays in registers, weights are decoded where they are loaded. Written once over the SIMD structs; the order of a
// sum depends on the inner dimension alone. Included only by gemm_*_avx2.cpp and gemm_*_avx512.cpp.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/output_scale.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/weight_tables.h"

namespace dgem::ops::cpu {

// kWidth weights of one row, decoded to float32 (NVFP4: without the global factor, FP8: without the row's). `Decode`
// gives the two narrow formats; it differs by instruction set.
template <class S, class Decode, Format kFormat>
struct WeightRow {
  const char* data;
  const uint8_t* scales;

  WeightRow() = default;
  WeightRow(const Matrix& w, int64_t row)
      : data(static_cast<const char*>(w.data) + row * w.row_bytes()),
        scales(kFormat == Format::nvfp4 ? w.block_scales + row * (w.cols / 16) : nullptr) {}

  [[gnu::always_inline]] typename S::V load(int64_t k) const {
    if constexpr (kFormat == Format::f32) return S::load(reinterpret_cast<const float*>(data) + k);
    if constexpr (kFormat == Format::bf16) return S::load_bf16(reinterpret_cast<const uint16_t*>(data) + k);
    if constexpr (kFormat == Format::f16) return S::load_f16(data + 2 * k);
    if constexpr (kFormat == Format::fp8) return Decode::fp8(data + k, S::kWidth);
    if constexpr (kFormat == Format::nvfp4) return S::mul(Decode::e2m1(data + k / 2), S::set1(kE4m3.value[scales[k / 16]]));
  }
  // n < kWidth; never for NVFP4, whose rows are whole blocks.
  [[gnu::always_inline]] typename S::V load_partial(int64_t k, int n) const {
    if constexpr (kFormat == Format::f32) return S::load_partial(reinterpret_cast<const float*>(data) + k, n);
    if constexpr (kFormat == Format::bf16) return S::load_bf16_partial(reinterpret_cast<const uint16_t*>(data) + k, n);
    if constexpr (kFormat == Format::f16) return S::load_f16_partial(data + 2 * k, n);
    if constexpr (kFormat == Format::fp8) return Decode::fp8(data + k, n);
    return S::zero();
  }
};

template <class S, Precision kPrecision>
DGEM_SIMD typename S::V load_x(const void* row, int64_t k) {
  if constexpr (kPrecision == Precision::f32) return S::load(static_cast<const float*>(row) + k);
  return S::load_bf16(static_cast<const uint16_t*>(row) + k);
}
template <class S, Precision kPrecision>
DGEM_SIMD typename S::V load_x_partial(const void* row, int64_t k, int n) {
  if constexpr (kPrecision == Precision::f32) return S::load_partial(static_cast<const float*>(row) + k, n);
  return S::load_bf16_partial(static_cast<const uint16_t*>(row) + k, n);
}

template <class S, class Decode, Precision kPrecision, Format kFormat, int kMr, int kNr>
void dot_tile(const WeightRow<S, Decode, kFormat>* w, const void* const* x, int64_t cols, float* out) {
  typename S::V sum[kMr][kNr];
  for (auto& row : sum) {
    for (auto& s : row) s = S::zero();
  }
  const int64_t whole = cols / S::kWidth * S::kWidth;
  for (int64_t k = 0; k < whole; k += S::kWidth) {
    typename S::V weight[kNr];
    for (int j = 0; j < kNr; ++j) weight[j] = w[j].load(k);
    for (int i = 0; i < kMr; ++i) {
      const typename S::V value = load_x<S, kPrecision>(x[i], k);
      for (int j = 0; j < kNr; ++j) sum[i][j] = S::fma(value, weight[j], sum[i][j]);
    }
  }
  if (const int rest = static_cast<int>(cols - whole); rest > 0) {
    for (int j = 0; j < kNr; ++j) {
      const typename S::V weight = w[j].load_partial(whole, rest);
      for (int i = 0; i < kMr; ++i) {
        sum[i][j] = S::fma(load_x_partial<S, kPrecision>(x[i], whole, rest), weight, sum[i][j]);
      }
    }
  }
  for (int i = 0; i < kMr; ++i) {
    for (int j = 0; j < kNr; ++j) out[i * kNr + j] = S::reduce_add(sum[i][j]);
  }
}

template <class S, class Decode, Precision kPrecision, Format kFormat, int kMr, int kNr>
void dot_tile_rows(int rows, const WeightRow<S, Decode, kFormat>* w, const void* const* x, int64_t cols, float* out) {
  if constexpr (kMr > 1) {
    if (rows < kMr) return dot_tile_rows<S, Decode, kPrecision, kFormat, kMr - 1, kNr>(rows, w, x, cols, out);
  }
  dot_tile<S, Decode, kPrecision, kFormat, kMr, kNr>(w, x, cols, out);
}

// Walks the tiles of a product: x in chunks that stay in the second level cache, w in rows of kNr.
template <int kMr, int kNr, class Row, class Tile>
void walk_tiles(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, float* y, int64_t ldy,
                const Tile& tile) {
  constexpr int64_t kChunk = 48;
  for (int64_t m_chunk = 0; m_chunk < x.rows; m_chunk += kChunk) {
    const int64_t m_end = m_chunk + kChunk < x.rows ? m_chunk + kChunk : x.rows;
    for (int64_t n = n0; n < n1; n += kNr) {
      Row row[kNr];
      float scale[kNr];
      const int columns = static_cast<int>(n1 - n < kNr ? n1 - n : kNr);
      for (int j = 0; j < kNr; ++j) {
        const int64_t at = n + (j < columns ? j : 0);  // a tile that sticks out computes its first column again
        const int64_t index = w_rows ? w_rows[at] : at;
        row[j] = Row(w, index);
        scale[j] = output_scale(w, index);
      }
      for (int64_t m = m_chunk; m < m_end; m += kMr) {
        const int rows = static_cast<int>(m_end - m < kMr ? m_end - m : kMr);
        const void* x_row[kMr];
        for (int i = 0; i < rows; ++i) x_row[i] = x.row(m + i);
        float out[kMr * kNr];
        tile(rows, row, x_row, out);
        for (int i = 0; i < rows; ++i) {
          for (int j = 0; j < columns; ++j) y[(m + i) * ldy + (n - n0) + j] = out[i * kNr + j] * scale[j];
        }
      }
    }
  }
}

template <class S, class Decode, Precision kPrecision, Format kFormat, int kMr, int kNr>
void linear_format(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, float* y, int64_t ldy) {
  using Row = WeightRow<S, Decode, kFormat>;
  walk_tiles<kMr, kNr, Row>(w, w_rows, n0, n1, x, y, ldy,
                            [&](int rows, const Row* row, const void* const* x_row, float* out) {
                              dot_tile_rows<S, Decode, kPrecision, kFormat, kMr, kNr>(rows, row, x_row, w.cols, out);
                            });
}

// GemmKernels::linear for activations of kPrecision.
template <class S, class Decode, Precision kPrecision, int kMr, int kNr>
void linear_dot(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, const void*, float* y,
                int64_t ldy, Scratch&) {
  switch (w.format) {
    case Format::f32: return linear_format<S, Decode, kPrecision, Format::f32, kMr, kNr>(w, w_rows, n0, n1, x, y, ldy);
    case Format::bf16: return linear_format<S, Decode, kPrecision, Format::bf16, kMr, kNr>(w, w_rows, n0, n1, x, y, ldy);
    case Format::f16: return linear_format<S, Decode, kPrecision, Format::f16, kMr, kNr>(w, w_rows, n0, n1, x, y, ldy);
    case Format::fp8: return linear_format<S, Decode, kPrecision, Format::fp8, kMr, kNr>(w, w_rows, n0, n1, x, y, ldy);
    case Format::nvfp4: return linear_format<S, Decode, kPrecision, Format::nvfp4, kMr, kNr>(w, w_rows, n0, n1, x, y, ldy);
  }
}

inline size_t no_packed_bytes(int64_t, int64_t) { return 0; }
inline void no_pack(const Rows&, int64_t, void*) {}

}  // namespace dgem::ops::cpu
