// Matrix products for AVX2: float32 arithmetic for both activation precisions.
#include "ops/cpu/gemm_dot.h"
#include "ops/cpu/simd_avx2.h"

namespace dgem::ops::cpu {
namespace {

struct Decode {
  // Eight E2M1 codes from four bytes.
  DGEM_SIMD __m256 e2m1(const char* p) {
    int32_t bytes;
    __builtin_memcpy(&bytes, p, 4);
    // Each byte in a 64-bit lane; its high nibble moves to the upper half.
    const __m256i wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes));
    const __m256i codes = _mm256_or_si256(wide, _mm256_slli_epi64(wide, 28));
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256 magnitude = _mm256_permutevar8x32_ps(magnitudes, codes);  // looks at the low three bits
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(INT32_MIN));
    return _mm256_or_ps(magnitude, _mm256_castsi256_ps(sign));
  }
  // n <= 8 E4M3 values. The bits make a float that is 2^120 too small, subnormals included; NaN is not kept.
  DGEM_SIMD __m256 fp8(const char* p, int n) {
    int64_t bytes = 0;
    if (n == 8) {
      __builtin_memcpy(&bytes, p, 8);
    } else {
      for (int i = 0; i < n; ++i) bytes |= int64_t{static_cast<uint8_t>(p[i])} << (8 * i);
    }
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes));
    const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(0x7f)), 20);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(0x80)), 24);
    const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p120f));
    return _mm256_or_ps(value, _mm256_castsi256_ps(sign));
  }
};

}  // namespace

const GemmKernels& gemm_f32_avx2() {
  static constexpr GemmKernels kTable = {no_packed_bytes, no_pack, linear_dot<Avx2, Decode, Precision::f32, 4, 2>};
  return kTable;
}
const GemmKernels& gemm_bf16_avx2() {
  static constexpr GemmKernels kTable = {no_packed_bytes, no_pack, linear_dot<Avx2, Decode, Precision::bf16, 4, 2>};
  return kTable;
}

}  // namespace dgem::ops::cpu
