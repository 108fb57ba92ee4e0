// What the kernel templates share: loads and stores of any format, loops over whole and partial registers, and sums in
// an order that depends on the length only. S is a SIMD struct (simd_avx2.h, simd_avx512.h).
//
// These templates are compiled for one instruction set and must stay apart from code for older machines: nothing here
// may instantiate an inline function that other translation units use too (no containers, no checks with messages).
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd_math.h"

namespace dgem::ops::cpu {

#define DGEM_INLINE_LAMBDA __attribute__((always_inline))
#ifdef __clang__
#define DGEM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DGEM_UNROLL _Pragma("GCC unroll 32")
#endif

// f(i, n) for i = 0, kWidth, ...: n elements from i, kWidth of them but for the last call.
template <class S, class F>
DGEM_SIMD void for_lanes(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + S::kWidth <= count; i += S::kWidth) f(i, S::kWidth);
  if (i < count) f(i, static_cast<int>(count - i));
}

// n elements from p; the rest of the register is 0.
template <class S>
DGEM_SIMD typename S::V load(const float* p, int n) {
  return n == S::kWidth ? S::load(p) : S::load_partial(p, n);
}

// n elements from p; the rest of the register is `rest`.
template <class S>
DGEM_SIMD typename S::V load_or(const float* p, int n, float rest) {
  if (n == S::kWidth) return S::load(p);
  float values[S::kWidth];
  for (int i = 0; i < S::kWidth; ++i) values[i] = i < n ? p[i] : rest;
  return S::load(values);
}

template <class S>
DGEM_SIMD void store(float* p, typename S::V v, int n) {
  n == S::kWidth ? S::store(p, v) : S::store_partial(p, v, n);
}

// Elements [i, i + n) of an array of f32, bf16 or f16.
template <class S>
DGEM_SIMD typename S::V load(const void* data, Format format, int64_t i, int n) {
  if (format == Format::f32) return load<S>(static_cast<const float*>(data) + i, n);
  const uint16_t* p = static_cast<const uint16_t*>(data) + i;
  if (format == Format::bf16) return n == S::kWidth ? S::load_bf16(p) : S::load_bf16_partial(p, n);
  return n == S::kWidth ? S::load_f16(p) : S::load_f16_partial(p, n);
}

template <class S>
DGEM_SIMD typename S::V load(const void* data, Precision precision, int64_t i, int n) {
  return load<S>(data, precision == Precision::f32 ? Format::f32 : Format::bf16, i, n);
}

template <class S>
DGEM_SIMD typename S::V load(const Vector& w, int64_t i, int n) {
  return w.data == nullptr ? S::set1(1.0f) : load<S>(w.data, w.format, i, n);
}

template <class S>
DGEM_SIMD void store(void* data, Precision precision, int64_t i, typename S::V v, int n) {
  if (precision == Precision::f32) {
    store<S>(static_cast<float*>(data) + i, v, n);
  } else {
    uint16_t* p = static_cast<uint16_t*>(data) + i;
    n == S::kWidth ? S::store_bf16(p, v) : S::store_bf16_partial(p, v, n);
  }
}

// (mean(f(i)²) + eps)^(-1/2) over i in [0, n); f(i, count) gives the register of `count` elements from i.
template <class S, class F>
DGEM_SIMD float inverse_rms(int64_t n, float eps, F&& f) {
  auto sum = S::zero();
  for_lanes<S>(n, [&](int64_t i, int count) DGEM_INLINE_LAMBDA {
    const auto v = f(i, count);
    sum = S::fma(v, v, sum);
  });
  return 1.0f / __builtin_sqrtf(S::reduce_add(sum) / static_cast<float>(n) + eps);
}

}  // namespace dgem::ops::cpu
