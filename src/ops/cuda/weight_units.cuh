// Sixteen weights at a time: as they lie in memory, and decoded to bf16. The decoded values are exact but for a factor
// (the scale of an fp8 row, the global one of nvfp4) that belongs to the sum.
#pragma once

#include "ops/cuda/ptx/convert.cuh"
#include "ops/views.h"

namespace dgem::ops::cuda {

constexpr int kUnit = 16;

template <Format kFormat>
struct WeightUnit;

template <>
struct WeightUnit<Format::bf16> {
  uint4 a, b;
  __device__ void clear() { a = b = make_uint4(0, 0, 0, 0); }
  // Unit u of a matrix (data, block_scales) whose rows are whole units; u counts through all rows.
  __device__ void load(const void* data, const uint8_t*, int64_t u) {
    const uint4* from = static_cast<const uint4*>(data) + 2 * u;
    a = __ldg(from);
    b = __ldg(from + 1);
  }
  __device__ void decode(uint4& low, uint4& high) const {
    low = a;
    high = b;
  }
};

template <>
struct WeightUnit<Format::fp8> {
  uint4 a;
  __device__ void clear() { a = make_uint4(0, 0, 0, 0); }
  __device__ void load(const void* data, const uint8_t*, int64_t u) { a = __ldg(static_cast<const uint4*>(data) + u); }
  __device__ static uint32_t pair(uint32_t codes) {
    const float2 v = ptx::e4m3x2_to_float2(codes);
    return ptx::bf16x2(v.x, v.y);
  }
  __device__ void decode(uint4& low, uint4& high) const {
    low = make_uint4(pair(a.x), pair(a.x >> 16), pair(a.y), pair(a.y >> 16));
    high = make_uint4(pair(a.z), pair(a.z >> 16), pair(a.w), pair(a.w >> 16));
  }
};

template <>
struct WeightUnit<Format::nvfp4> {
  uint2 codes;
  uint32_t scale;
  __device__ void clear() {
    codes = make_uint2(0, 0);
    scale = 0;
  }
  __device__ void load(const void* data, const uint8_t* block_scales, int64_t u) {
    codes = __ldg(static_cast<const uint2*>(data) + u);
    scale = __ldg(block_scales + u);
  }
  __device__ static uint4 eight(uint32_t codes, uint32_t scales) {
    uint4 v;
    ptx::e2m1x4_to_bf16(codes & 0xffffu, v.x, v.y);
    ptx::e2m1x4_to_bf16(codes >> 16, v.z, v.w);
    return make_uint4(ptx::multiply_bf16x2(v.x, scales), ptx::multiply_bf16x2(v.y, scales),
                      ptx::multiply_bf16x2(v.z, scales), ptx::multiply_bf16x2(v.w, scales));
  }
  __device__ void decode(uint4& low, uint4& high) const {
    const float s = ptx::e4m3x2_to_float2(scale).x;
    const uint32_t scales = ptx::bf16x2(s, s);
    low = eight(codes.x, scales);
    high = eight(codes.y, scales);
  }
};

}  // namespace dgem::ops::cuda
