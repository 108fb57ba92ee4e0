// The AMX tile configuration of all kernels: eight tiles of 16 rows of 64 bytes. Included only by *_amx.cpp.
#pragma once

#include "ops/cpu/simd_avx512.h"

#include <cstdint>

namespace dgem::ops::cpu {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace dgem::ops::cpu
