// Narrow weights decoded in AVX-512 registers: to float32 by sixteen, to bf16 by thirty-two. Included only by
// *_avx512.cpp and *_amx.cpp.
#pragma once

#include "ops/cpu/simd_avx512.h"
#include "ops/cpu/weight_tables.h"
#include "ops/views.h"

namespace dgem::ops::cpu {

struct DecodeAvx512 {
  // Sixteen E2M1 codes from eight bytes.
  DGEM_SIMD __m512 e2m1(const char* p) {
    // Each byte in a 64-bit lane; its high nibble moves to the upper half. The permutation looks at four bits.
    const __m512i wide = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m512i codes = _mm512_or_si512(wide, _mm512_slli_epi64(wide, 28));
    const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f,
                                         -3.0f, -4.0f, -6.0f);
    return _mm512_permutexvar_ps(codes, values);
  }
  // n <= 16 E4M3 values. The bits make a float that is 2^120 too small, subnormals included; NaN is not kept.
  DGEM_SIMD __m512 fp8(const char* p, int n) {
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1u), p));
    const __m512i magnitude = _mm512_slli_epi32(_mm512_and_si512(wide, _mm512_set1_epi32(0x7f)), 20);
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(wide, _mm512_set1_epi32(0x80)), 24);
    const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(magnitude), _mm512_set1_ps(0x1p120f));
    return _mm512_or_ps(value, _mm512_castsi512_ps(sign));
  }
};

// Asks for `bytes` of memory from p on; p may lie anywhere.
DGEM_SIMD void prefetch_bytes(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(static_cast<const char*>(p) + i, _MM_HINT_T1);
}

// One row of a weight whose values bf16 holds exactly; load gives 32 of them. NVFP4 lacks the global factor, FP8 the
// row's. prefetch asks for the values [k, k + count), past the end of the row if need be.
template <Format kFormat>
struct Bf16Row;

template <>
struct Bf16Row<Format::bf16> {
  const char* data;
  Bf16Row() = default;
  [[gnu::always_inline]] Bf16Row(const Matrix& w, int64_t row)
      : data(static_cast<const char*>(w.data) + row * w.row_bytes()) {}
  [[gnu::always_inline]] __m512i load(int64_t k) const { return _mm512_loadu_si512(data + 2 * k); }
  [[gnu::always_inline]] __m512i load_partial(int64_t k, int n) const {
    return _mm512_maskz_loadu_epi16((__mmask32{1} << n) - 1, data + 2 * k);
  }
  [[gnu::always_inline]] void prefetch(int64_t k, int64_t count) const { prefetch_bytes(data + 2 * k, 2 * count); }
};

template <>
struct Bf16Row<Format::fp8> {
  const char* data;
  Bf16Row() = default;
  [[gnu::always_inline]] Bf16Row(const Matrix& w, int64_t row)
      : data(static_cast<const char*>(w.data) + row * w.row_bytes()) {}
  [[gnu::always_inline]] __m512i load(int64_t k) const {
    return decode(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + k)));
  }
  [[gnu::always_inline]] __m512i load_partial(int64_t k, int n) const {
    return decode(_mm256_maskz_loadu_epi8((__mmask32{1} << n) - 1, data + k));
  }
  [[gnu::always_inline]] void prefetch(int64_t k, int64_t count) const { prefetch_bytes(data + k, count); }

 private:
  // Normal values: the exponent moves from bias 7 to bias 127. Subnormals (mantissa · 2^-9) are looked up.
  DGEM_SIMD __m512i decode(__m256i bytes) {
    const __m512i wide = _mm512_cvtepu8_epi16(bytes);
    const __m512i magnitude = _mm512_and_si512(wide, _mm512_set1_epi16(0x7f));
    const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
    // bf16 of 0..7 times 2^-9.
    const __m512i small_values =
        _mm512_broadcast_i32x4(_mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
    const __m512i small = _mm512_permutexvar_epi16(magnitude, small_values);
    const __mmask32 subnormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
    const __m512i value = _mm512_mask_blend_epi16(subnormal, normal, small);
    return _mm512_or_si512(value, _mm512_slli_epi16(_mm512_andnot_si512(_mm512_set1_epi16(0x7f), wide), 8));
  }
};

template <>
struct Bf16Row<Format::nvfp4> {
  const char* data;
  const uint8_t* scales;
  Bf16Row() = default;
  [[gnu::always_inline]] Bf16Row(const Matrix& w, int64_t row)
      : data(static_cast<const char*>(w.data) + row * w.row_bytes()), scales(w.block_scales + row * (w.cols / 16)) {}
  [[gnu::always_inline]] __m512i load(int64_t k) const {
    const int64_t block = k / 16;
    return decode(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data + k / 2)), scales[block], scales[block + 1]);
  }
  // A row ends with one block of 16 where its length is no multiple of 32.
  [[gnu::always_inline]] __m512i load_partial(int64_t k, int) const {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(data + k / 2));
    return _mm512_zextsi256_si512(_mm512_castsi512_si256(decode(bytes, scales[k / 16], 0)));
  }
  [[gnu::always_inline]] void prefetch(int64_t k, int64_t count) const {
    prefetch_bytes(data + k / 2, count / 2);
    prefetch_bytes(scales + k / 16, count / 16);
  }

 private:
  // The table holds code · scale of the first block in its lower half and of the second block in its upper half, so
  // that bit 4 of the index chooses the block.
  DGEM_SIMD __m512i decode(__m128i bytes, uint8_t scale0, uint8_t scale1) {
    const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(kScaledE2m1.value[scale0]));
    const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(kScaledE2m1.value[scale1]));
    const __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    // Two bytes to a 64-bit lane, then each nibble to the low bits of a 16-bit lane.
    const __m512i pairs = _mm512_cvtepu16_epi64(bytes);
    const __m512i nibbles = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x200c200820042000), pairs);
    const __m512i half = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
    // (nibbles & 15) | half
    const __m512i index = _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi16(15), half, 0xea);
    return _mm512_permutexvar_epi16(index, table);
  }
};

}  // namespace dgem::ops::cpu
