// Matrix products for AVX-512: float32 arithmetic, and bf16 dot products (vdpbf16ps) where the weights are exact in bf16.
#include "ops/cpu/decode_avx512.h"
#include "ops/cpu/gemm_dot.h"
#include "ops/cpu/gemm_f32_of_bf16.h"

namespace dgem::ops::cpu {
namespace {

constexpr int kMr = 6, kNr = 4;  // 24 sums, 4 weights and a row of x fill the 32 registers

// The sums over the lanes of sixteen registers, lane i that of v[i]. Halves are added pairwise, so that it takes 45
// operations in place of 128; each register's own tree is always the same.
DGEM_SIMD __m512 reduce_add_16(const __m512* v) {
  __m512 a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d lo = _mm512_castps_pd(a[2 * i]), hi = _mm512_castps_pd(a[2 * i + 1]);
    b[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi)), _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi)));
  }
  // Now lane l of b[i] sums a quarter of v[4 i + l % 4]: the quarters lie in the four parts of 128 bits.
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_add_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
  }
  return _mm512_add_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}

template <Format kFormat, int kRows>
void dot_tile_bf16(const Bf16Row<kFormat>* w, const void* const* x, int64_t cols, float* out) {
  __m512 sum[kRows][kNr];
  for (auto& row : sum) {
    for (auto& s : row) s = _mm512_setzero_ps();
  }
  const int64_t whole = cols / 32 * 32;
  for (int64_t k = 0; k < whole; k += 32) {
    __m512i weight[kNr];
    for (int j = 0; j < kNr; ++j) weight[j] = w[j].load(k);
    for (int i = 0; i < kRows; ++i) {
      const __m512i value = _mm512_loadu_si512(static_cast<const uint16_t*>(x[i]) + k);
      for (int j = 0; j < kNr; ++j) {
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], reinterpret_cast<__m512bh>(value), reinterpret_cast<__m512bh>(weight[j]));
      }
    }
  }
  if (const int rest = static_cast<int>(cols - whole); rest > 0) {
    const __mmask32 mask = (__mmask32{1} << rest) - 1;
    for (int j = 0; j < kNr; ++j) {
      const __m512i weight = w[j].load_partial(whole, rest);
      for (int i = 0; i < kRows; ++i) {
        const __m512i value = _mm512_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(x[i]) + whole);
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], reinterpret_cast<__m512bh>(value), reinterpret_cast<__m512bh>(weight));
      }
    }
  }
  constexpr int kSums = kRows * kNr;
  __m512 group[16];
#pragma GCC unroll 2
  for (int first = 0; first < kSums; first += 16) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      group[i] = first + i < kSums ? sum[(first + i) / kNr][(first + i) % kNr] : _mm512_setzero_ps();
    }
    const int left = kSums - first < 16 ? kSums - first : 16;
    _mm512_mask_storeu_ps(out + first, static_cast<__mmask16>((1u << left) - 1u), reduce_add_16(group));
  }
}

template <Format kFormat, int kRows>
void dot_tile_bf16_rows(int rows, const Bf16Row<kFormat>* w, const void* const* x, int64_t cols, float* out) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return dot_tile_bf16_rows<kFormat, kRows - 1>(rows, w, x, cols, out);
  }
  dot_tile_bf16<kFormat, kRows>(w, x, cols, out);
}

template <Format kFormat>
void linear_bf16_format(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, float* y,
                        int64_t ldy) {
  using Row = Bf16Row<kFormat>;
  walk_tiles<kMr, kNr, Row>(w, w_rows, n0, n1, x, y, ldy,
                            [&](int rows, const Row* row, const void* const* x_row, float* out) {
                              dot_tile_bf16_rows<kFormat, kMr>(rows, row, x_row, w.cols, out);
                            });
}

void linear_bf16(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, const void* packed, float* y,
                 int64_t ldy, Scratch& scratch) {
  switch (w.format) {
    case Format::bf16: return linear_bf16_format<Format::bf16>(w, w_rows, n0, n1, x, y, ldy);
    case Format::fp8: return linear_bf16_format<Format::fp8>(w, w_rows, n0, n1, x, y, ldy);
    case Format::nvfp4: return linear_bf16_format<Format::nvfp4>(w, w_rows, n0, n1, x, y, ldy);
    case Format::f32:
    case Format::f16: return linear_wide_weights_avx512(w, w_rows, n0, n1, x, packed, y, ldy, scratch);
  }
}

}  // namespace

void linear_wide_weights_avx512(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x,
                                const void* packed, float* y, int64_t ldy, Scratch& scratch) {
  linear_dot<Avx512, DecodeAvx512, Precision::bf16, kMr, kNr>(w, w_rows, n0, n1, x, packed, y, ldy, scratch);
}

const GemmKernels& gemm_f32_avx512() {
  static constexpr GemmKernels kTable = {no_packed_bytes, no_pack,
                                         linear_dot<Avx512, DecodeAvx512, Precision::f32, kMr, kNr>};
  return kTable;
}
const GemmKernels& gemm_bf16_avx512() {
  static constexpr GemmKernels kTable = {no_packed_bytes, no_pack, linear_bf16};
  return kTable;
}

}  // namespace dgem::ops::cpu
