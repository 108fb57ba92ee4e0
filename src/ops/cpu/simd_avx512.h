// Sixteen floats in a register: the interface of simd_avx2.h for AVX-512 (F, BW, VL, DQ). Include it only from
// *_avx512.cpp and *_amx.cpp: what is compiled there must not be shared with code for older machines, so all of it is
// inlined.
#pragma once

#include "ops/cpu/simd_math.h"

// GCC 12 warns about its own _mm512_undefined_ps where it inlines these intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace dgem::ops::cpu {

struct Avx512 {
  static constexpr int kWidth = 16;
  using V = __m512;

  DGEM_SIMD V zero() { return _mm512_setzero_ps(); }
  DGEM_SIMD V set1(float f) { return _mm512_set1_ps(f); }

  // A partial access touches n < kWidth elements, never a byte more; the rest of the register is 0.
  DGEM_SIMD V load(const float* p) { return _mm512_loadu_ps(p); }
  DGEM_SIMD V load_partial(const float* p, int n) { return _mm512_maskz_loadu_ps(lanes(n), p); }
  DGEM_SIMD void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  DGEM_SIMD void store_partial(float* p, V v, int n) { _mm512_mask_storeu_ps(p, lanes(n), v); }

  DGEM_SIMD V load_bf16(const uint16_t* p) { return widen_bf16(load_16x16(p)); }
  DGEM_SIMD V load_bf16_partial(const uint16_t* p, int n) { return widen_bf16(_mm256_maskz_loadu_epi16(lanes(n), p)); }
  // Round to nearest, ties to even; NaN stays NaN. (vcvtneps2bf16 would flush subnormals.)
  DGEM_SIMD void store_bf16(uint16_t* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(v)); }
  DGEM_SIMD void store_bf16_partial(uint16_t* p, V v, int n) { _mm256_mask_storeu_epi16(p, lanes(n), narrow_bf16(v)); }
  DGEM_SIMD V load_f16(const void* p) { return _mm512_cvtph_ps(load_16x16(p)); }
  DGEM_SIMD V load_f16_partial(const void* p, int n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes(n), p)); }

  DGEM_SIMD V add(V a, V b) { return _mm512_add_ps(a, b); }
  DGEM_SIMD V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  DGEM_SIMD V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  DGEM_SIMD V div(V a, V b) { return _mm512_div_ps(a, b); }
  DGEM_SIMD V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }  // a·b + c
  DGEM_SIMD V sqrt(V a) { return _mm512_sqrt_ps(a); }
  DGEM_SIMD V max(V a, V b) { return _mm512_max_ps(a, b); }
  DGEM_SIMD V min(V a, V b) { return _mm512_min_ps(a, b); }
  DGEM_SIMD V abs(V a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
  DGEM_SIMD V copy_sign(V magnitude, V sign) { return _mm512_or_ps(magnitude, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign)); }
  DGEM_SIMD V if_less(V a, V b, V yes, V no) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes); }
  DGEM_SIMD V round(V a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // a · 2^n for whole n in [-150, 128] and a in [0.5, 2), rounded once.
  DGEM_SIMD V scale2(V a, V n) { return _mm512_scalef_ps(a, n); }
  DGEM_SIMD V exp(V x) { return simd_exp<Avx512>(x); }
  DGEM_SIMD V tanh(V x) { return simd_tanh<Avx512>(x); }
  DGEM_SIMD V sigmoid(V x) { return simd_sigmoid<Avx512>(x); }

  // Always the same tree: element i with i + 8, then i + 4, i + 2, i + 1.
  DGEM_SIMD float reduce_add(V v) {
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  DGEM_SIMD float reduce_max(V v) {
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  // Element j of register i becomes element i of register j.
  DGEM_SIMD void transpose(V (&r)[kWidth]) {
    V a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
      a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {  // b[i + j]: element j of the four rows from i in each quarter
      b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int j = 0; j < 4; ++j) {
      const V even_low = _mm512_shuffle_f32x4(b[j], b[j + 4], 0x88);        // quarters 0, 2 of rows 0-3, 4-7
      const V even_high = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0x88);  // the same of rows 8-11, 12-15
      const V odd_low = _mm512_shuffle_f32x4(b[j], b[j + 4], 0xdd);         // quarters 1, 3
      const V odd_high = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0xdd);
      r[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
      r[j + 4] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
      r[j + 8] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
      r[j + 12] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
  }

 private:
  DGEM_SIMD __mmask16 lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  DGEM_SIMD __m256i load_16x16(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  DGEM_SIMD V widen_bf16(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }
  DGEM_SIMD __m256i narrow_bf16(V v) {
    const __m512i u = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
  }
};

}  // namespace dgem::ops::cpu
