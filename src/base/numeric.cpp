#include "base/numeric.h"

#include <cmath>

namespace dgem {

uint8_t float_to_e4m3(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  uint32_t magnitude = bits & 0x7fffffffu;
  const float absolute = std::bit_cast<float>(magnitude);
  if (std::isnan(f)) return sign | 0x7fu;
  if (absolute >= 448.0f) return sign | 0x7eu;
  if (absolute < 0x1p-6f) {  // zero or subnormal: a multiple of 2^-9; 8 of them are the first normal, whose code is 8
    return sign | static_cast<uint8_t>(std::nearbyint(absolute * 0x1p9f));
  }
  magnitude += 0x7ffffu + ((magnitude >> 20) & 1u);
  return sign | static_cast<uint8_t>((magnitude >> 20) - ((127u - 7u) << 3));
}

uint8_t float_to_e2m1(float f) {
  const float a = std::fabs(f);
  // One step for each midpoint passed; a midpoint itself goes to the even code. A NaN, which has no code, passes none.
  const int code =
      int{a > 0.25f} + int{a >= 0.75f} + int{a > 1.25f} + int{a >= 1.75f} + int{a > 2.5f} + int{a >= 3.5f} + int{a > 5.0f};
  return static_cast<uint8_t>(code | (std::signbit(f) ? 8 : 0));
}

}  // namespace dgem
