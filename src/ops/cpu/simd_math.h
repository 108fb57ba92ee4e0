// Transcendental functions written once over a SIMD struct (simd_avx2.h, simd_avx512.h). The polynomials interpolate at
// Chebyshev nodes; every set does the same operations in the same order, so the bits are equal across sets.
#pragma once

#define DGEM_SIMD [[gnu::always_inline]] static inline

namespace dgem::ops::cpu {

// e^x within 2e-7 (relative; below 2^-126 to the last subnormal bit). Less than about -104 and -inf give 0, more than
// 88.73 infinity, NaN stays NaN. x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r² q(r).
template <class S>
DGEM_SIMD typename S::V simd_exp(typename S::V x) {
  // max and min return their second operand if one of the two is NaN.
  x = S::min(S::set1(89.0f), S::max(S::set1(-104.0f), x));
  const auto n = S::round(S::mul(x, S::set1(0x1.715476p+0f)));
  auto r = S::fma(n, S::set1(-0x1.62e4p-1f), x);  // n times 15 bits is exact
  r = S::fma(n, S::set1(-0x1.7f7d1cp-20f), r);
  auto q = S::set1(0x1.6d113cp-10f);
  q = S::fma(q, r, S::set1(0x1.120ba2p-7f));
  q = S::fma(q, r, S::set1(0x1.55551ap-5f));
  q = S::fma(q, r, S::set1(0x1.5554dcp-3f));
  q = S::fma(q, r, S::set1(0.5f));
  return S::scale2(S::add(S::fma(q, S::mul(r, r), r), S::set1(1.0f)), n);
}

// 1 / (1 + e^-x).
template <class S>
DGEM_SIMD typename S::V simd_sigmoid(typename S::V x) {
  const auto one = S::set1(1.0f);
  return S::div(one, S::add(one, simd_exp<S>(S::sub(S::zero(), x))));
}

// tanh within 3e-7 (relative): a polynomial where 1 - 2 / (e^2|x| + 1) would cancel.
template <class S>
DGEM_SIMD typename S::V simd_tanh(typename S::V x) {
  const auto one = S::set1(1.0f);
  const auto magnitude = S::abs(x);
  const auto e = simd_exp<S>(S::add(magnitude, magnitude));
  const auto large = S::copy_sign(S::sub(one, S::div(S::set1(2.0f), S::add(e, one))), x);
  const auto u = S::mul(x, x);
  auto p = S::set1(0x1.2977d8p-9f);
  p = S::fma(p, u, S::set1(-0x1.10bbf4p-7f));
  p = S::fma(p, u, S::set1(0x1.648e8ep-6f));
  p = S::fma(p, u, S::set1(-0x1.ba0718p-5f));
  p = S::fma(p, u, S::set1(0x1.1110e4p-3f));
  p = S::fma(p, u, S::set1(-0x1.555556p-2f));
  const auto small = S::fma(S::mul(p, u), x, x);
  return S::if_less(magnitude, S::set1(0.625f), small, large);
}

}  // namespace dgem::ops::cpu
