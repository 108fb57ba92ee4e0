// Number formats in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace dgem::ops::cuda::ptx {

// Two E4M3 values (low byte first) -> two floats; exact.
__device__ __forceinline__ float2 e4m3x2_to_float2(uint32_t pair) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(pair)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

// Two floats -> two bf16 in one word, the first in the low half; to nearest even.
__device__ __forceinline__ uint32_t bf16x2(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Four E2M1 codes, one per nibble of the low half of `codes` -> bf16 values: two words, element order kept. Each byte of
// a value is looked up by a byte permutation; E2M1 magnitudes in bf16 are 0000 3f00 3f80 3fc0 4000 4040 4080 40c0.
__device__ __forceinline__ void e2m1x4_to_bf16(uint32_t codes, uint32_t& low, uint32_t& high) {
  const uint32_t magnitudes = codes & 0x7777u;
  const uint32_t top = __byte_perm(0x3f3f3f00u, 0x40404040u, magnitudes);
  const uint32_t bottom = __byte_perm(0xc0800000u, 0xc0804000u, magnitudes);
  low = __byte_perm(bottom, top, 0x5140) | ((codes & 0x8u) << 12) | ((codes & 0x80u) << 24);
  high = __byte_perm(bottom, top, 0x7362) | ((codes & 0x800u) << 4) | ((codes & 0x8000u) << 16);
}

}  // namespace dgem::ops::cuda::ptx
