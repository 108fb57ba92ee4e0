// What kernels share: elements of weights and activations, and sums over a warp or a block in a fixed order.
#pragma once

#include "ops/cuda/ptx/convert.cuh"
#include "ops/views.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace dgem::ops::cuda {

__device__ __forceinline__ float scalar_at(const void* data, Format format, int64_t i) {
  switch (format) {
    case Format::f32: return static_cast<const float*>(data)[i];
    case Format::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    default: return __half2float(static_cast<const __half*>(data)[i]);
  }
}

__device__ __forceinline__ float weight_at(const Vector& w, int64_t i) {
  return w.data == nullptr ? 1.0f : scalar_at(w.data, w.format, i);
}

// Element (n, k) without the scale of the row (fp8) or the matrix (nvfp4), which factor_at gives.
__device__ __forceinline__ float code_at(const Matrix& w, int64_t n, int64_t k) {
  const int64_t i = n * w.cols + k;
  const auto* bytes = static_cast<const uint8_t*>(w.data);
  if (w.format == Format::fp8) return ptx::e4m3x2_to_float2(bytes[i]).x;
  if (w.format != Format::nvfp4) return scalar_at(w.data, w.format, i);
  uint32_t low, high;
  ptx::e2m1x4_to_bf16(k % 2 == 0 ? bytes[i / 2] & 15u : bytes[i / 2] >> 4, low, high);
  return __uint_as_float(low << 16) * ptx::e4m3x2_to_float2(w.block_scales[i / 16]).x;
}
__device__ __forceinline__ float factor_at(const Matrix& w, int64_t n) {
  if (w.format == Format::fp8) return weight_at(w.row_scales, n);
  return w.format == Format::nvfp4 ? w.scale : 1.0f;
}

__device__ __forceinline__ float load(const void* data, Precision precision, int64_t i) {
  return scalar_at(data, precision == Precision::f32 ? Format::f32 : Format::bf16, i);
}
__device__ __forceinline__ void store(void* data, Precision precision, int64_t i, float value) {
  if (precision == Precision::f32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
  }
}

__device__ __forceinline__ float gelu(float x) {
  const float t = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return x / (1.0f + expf(-2.0f * t));  // 0.5 x (1 + tanh t)
}

// All lanes get the result.
__device__ __forceinline__ float warp_sum(float v) {
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
  return v;
}

// Over a block of kThreads; all threads get the result.
template <int kThreads, class F>
__device__ __forceinline__ float block_reduce(float v, F warp_reduce, float neutral) {
  __shared__ float parts[kThreads / 32];
  v = warp_reduce(v);
  __syncthreads();  // parts may still be read from the reduction before
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return warp_reduce(lane < kThreads / 32 ? parts[lane] : neutral);
}
template <int kThreads>
__device__ __forceinline__ float block_sum(float v) {
  return block_reduce<kThreads>(
      v, [](float x) { return warp_sum(x); }, 0.0f);
}

__device__ __forceinline__ float inverse_rms(float sum_of_squares, int64_t n, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(n) + eps);
}

}  // namespace dgem::ops::cuda
