#include "ops/cpu/peak.h"
#include "ops/cpu/tile_config.h"

namespace dgem::ops::cpu {

double peak_bf16_amx(int64_t iterations) {
  const TileConfig config;
  _tile_loadconfig(&config);
  alignas(64) uint16_t ones[512];
  for (auto& v : ones) v = 0x3c00;
  __asm__ volatile("" ::"r"(ones) : "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(iterations) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace dgem::ops::cpu
