// Tables by which kernels decode narrow weights. Plain data, so that every instruction set may share it.
#pragma once

#include <cstdint>

namespace dgem::ops::cpu {

// E4M3 byte -> value (NaN for 0x7f and 0xff).
struct E4m3Table {
  float value[256];
};
extern const E4m3Table kE4m3;
// E4M3 scale byte, E2M1 code -> bf16 bits of code · scale. The product has at most 6 significant bits: it is exact.
struct ScaledE2m1Table {
  uint16_t value[256][16];
};
extern const ScaledE2m1Table kScaledE2m1;

}  // namespace dgem::ops::cpu
