// The number formats of checkpoints, converted one value at a time (the kernels have their own vector forms).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace dgem {

struct bf16 {
  uint16_t bits = 0;
};

inline float to_float(bf16 v) { return std::bit_cast<float>(uint32_t{v.bits} << 16); }

// Round to nearest, ties to even; a NaN stays a NaN.
inline bf16 to_bf16(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  u += 0x7fffu + ((u >> 16) & 1u);
  return {static_cast<uint16_t>(u >> 16)};
}

// IEEE binary16.
inline float f16_to_float(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude < 0x400u) {  // zero or subnormal: magnitude · 2^-24
    const float f = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

// E4M3fn: bias 7, largest 448, no infinity, 0x7f and 0xff are NaN (OCP 8-bit floating point).
inline float e4m3_to_float(uint8_t v) {
  const uint32_t sign = uint32_t{v & 0x80u} << 24;
  const uint32_t magnitude = v & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8u) {  // zero or subnormal: magnitude · 2^-9
    const float f = static_cast<float>(magnitude) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

// Nearest E4M3, ties to even, saturating at 448; NaN stays NaN.
uint8_t float_to_e4m3(float f);

// E2M1 (FP4): bit 3 is the sign, bits 0-2 index {0, 0.5, 1, 1.5, 2, 3, 4, 6}. Uses the low four bits.
inline float e2m1_to_float(uint8_t code) {
  constexpr float kMagnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float m = kMagnitude[code & 7u];
  return (code & 8u) != 0 ? -m : m;
}

// Nearest E2M1 of f in units of the block scale, ties to the even code, saturating at 6.
uint8_t float_to_e2m1(float f);

}  // namespace dgem
