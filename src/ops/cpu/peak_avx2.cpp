#include "ops/cpu/peak.h"

#include <immintrin.h>

namespace dgem::ops::cpu {

double peak_f32_avx2(int64_t iterations) {
  constexpr int kSums = 12;
  __m256 sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+x"(a), "+x"(b));  // nothing moves out of the loop
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sum[i] = _mm256_fmadd_ps(a, sum[i], b);
  }
#pragma GCC unroll 24
  for (auto& s : sum) __asm__ volatile("" : "+x"(s));
  return static_cast<double>(iterations) * kSums * 8 * 2;
}

}  // namespace dgem::ops::cpu
