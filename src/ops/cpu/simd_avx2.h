// Eight floats in a register: the interface that the kernel templates use, for AVX2 with FMA and F16C. Include it only
// from *_avx2.cpp: what is compiled there must not be shared with code for older machines, so all of it is inlined.
#pragma once

#include "ops/cpu/simd_math.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace dgem::ops::cpu {

struct Avx2 {
  static constexpr int kWidth = 8;
  using V = __m256;

  DGEM_SIMD V zero() { return _mm256_setzero_ps(); }
  DGEM_SIMD V set1(float f) { return _mm256_set1_ps(f); }

  // A partial access touches n < kWidth elements, never a byte more; the rest of the register is 0.
  DGEM_SIMD V load(const float* p) { return _mm256_loadu_ps(p); }
  DGEM_SIMD V load_partial(const float* p, int n) { return _mm256_maskload_ps(p, lanes(n)); }
  DGEM_SIMD void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  DGEM_SIMD void store_partial(float* p, V v, int n) { _mm256_maskstore_ps(p, lanes(n), v); }

  DGEM_SIMD V load_bf16(const uint16_t* p) { return widen_bf16(load_8x16(p)); }
  DGEM_SIMD V load_bf16_partial(const uint16_t* p, int n) { return widen_bf16(load_8x16_partial(p, n)); }
  // Round to nearest, ties to even; NaN stays NaN.
  DGEM_SIMD void store_bf16(uint16_t* p, V v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(v)); }
  DGEM_SIMD void store_bf16_partial(uint16_t* p, V v, int n) {
    alignas(16) uint16_t values[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(values), narrow_bf16(v));
    for (int i = 0; i < n; ++i) p[i] = values[i];
  }
  DGEM_SIMD V load_f16(const void* p) { return _mm256_cvtph_ps(load_8x16(p)); }
  DGEM_SIMD V load_f16_partial(const void* p, int n) { return _mm256_cvtph_ps(load_8x16_partial(p, n)); }

  DGEM_SIMD V add(V a, V b) { return _mm256_add_ps(a, b); }
  DGEM_SIMD V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  DGEM_SIMD V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  DGEM_SIMD V div(V a, V b) { return _mm256_div_ps(a, b); }
  DGEM_SIMD V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }  // a·b + c
  DGEM_SIMD V sqrt(V a) { return _mm256_sqrt_ps(a); }
  DGEM_SIMD V max(V a, V b) { return _mm256_max_ps(a, b); }
  DGEM_SIMD V min(V a, V b) { return _mm256_min_ps(a, b); }
  DGEM_SIMD V abs(V a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  DGEM_SIMD V copy_sign(V magnitude, V sign) { return _mm256_or_ps(magnitude, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign)); }
  DGEM_SIMD V if_less(V a, V b, V yes, V no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  DGEM_SIMD V round(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // a · 2^n for whole n in [-150, 128] and a in [0.5, 2), rounded once.
  DGEM_SIMD V scale2(V a, V n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(a, power2(half)), power2(_mm256_sub_epi32(whole, half)));
  }
  DGEM_SIMD V exp(V x) { return simd_exp<Avx2>(x); }
  DGEM_SIMD V tanh(V x) { return simd_tanh<Avx2>(x); }
  DGEM_SIMD V sigmoid(V x) { return simd_sigmoid<Avx2>(x); }

  // Always the same tree: element i with i + 4, then i + 2, then i + 1.
  DGEM_SIMD float reduce_add(V v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  DGEM_SIMD float reduce_max(V v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  // Element j of register i becomes element i of register j.
  DGEM_SIMD void transpose(V (&r)[kWidth]) {
    V a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {  // b[i + j]: element j of the four rows from i in each half
      b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int j = 0; j < 4; ++j) {
      r[j] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x20);
      r[j + 4] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x31);
    }
  }

 private:
  DGEM_SIMD __m256i lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  DGEM_SIMD __m128i load_8x16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  DGEM_SIMD __m128i load_8x16_partial(const void* p, int n) {
    alignas(16) uint16_t values[8] = {};
    for (int i = 0; i < n; ++i) std::memcpy(&values[i], static_cast<const char*>(p) + 2 * i, 2);
    return _mm_load_si128(reinterpret_cast<const __m128i*>(values));
  }
  DGEM_SIMD V widen_bf16(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }
  DGEM_SIMD __m128i narrow_bf16(V v) {
    const __m256i u = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    return _mm256_castsi256_si128(packed);
  }
  DGEM_SIMD V power2(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace dgem::ops::cpu
