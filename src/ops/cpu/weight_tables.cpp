#include "ops/cpu/weight_tables.h"

#include <bit>

namespace dgem::ops::cpu {
namespace {

constexpr bool is_nan(int byte) { return (byte & 0x7f) == 0x7f; }

constexpr float e4m3_value(int byte) {
  const int exponent = (byte >> 3) & 15, mantissa = byte & 7;
  if (is_nan(byte)) return std::bit_cast<float>(0x7fc00000u);
  // (1 + mantissa/8) · 2^(exponent-7), or mantissa/8 · 2^-6: in units of 2^-9, the smallest step.
  float v = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) * 0x1p-9f;
  for (int e = 1; e < exponent; ++e) v *= 2.0f;
  return (byte & 0x80) != 0 ? -v : v;
}

constexpr auto make_e4m3() {
  E4m3Table t{};
  for (int i = 0; i < 256; ++i) t.value[i] = e4m3_value(i);
  return t;
}

constexpr auto make_scaled() {
  constexpr float kMagnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  ScaledE2m1Table t{};
  for (int s = 0; s < 256; ++s) {
    for (int code = 0; code < 16; ++code) {
      if (is_nan(s)) {
        t.value[s][code] = 0x7fc0;
        continue;
      }
      const float v = kMagnitude[code & 7] * e4m3_value(s);
      t.value[s][code] = static_cast<uint16_t>(std::bit_cast<uint32_t>((code & 8) != 0 ? -v : v) >> 16);
    }
  }
  return t;
}

}  // namespace

alignas(64) constinit const E4m3Table kE4m3 = make_e4m3();
alignas(64) constinit const ScaledE2m1Table kScaledE2m1 = make_scaled();

}  // namespace dgem::ops::cpu
