#include "ops/cpu/peak.h"
#include "ops/cpu/simd_avx512.h"

namespace dgem::ops::cpu {

constexpr int kSums = 24;

double peak_f32_avx512(int64_t iterations) {
  __m512 sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int64_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+v"(a), "+v"(b));  // nothing moves out of the loop
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_fmadd_ps(a, sum[i], b);
  }
#pragma GCC unroll 24
  for (auto& s : sum) __asm__ volatile("" : "+v"(s));
  return static_cast<double>(iterations) * kSums * 16 * 2;
}

double peak_bf16_avx512(int64_t iterations) {
  __m512 sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512i a = _mm512_set1_epi16(0x3c00), b = _mm512_set1_epi16(0x3c23);
  for (int64_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i)
      sum[i] = _mm512_dpbf16_ps(sum[i], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
#pragma GCC unroll 24
  for (auto& s : sum) __asm__ volatile("" : "+v"(s));
  return static_cast<double>(iterations) * kSums * 32 * 2;
}

}  // namespace dgem::ops::cpu
