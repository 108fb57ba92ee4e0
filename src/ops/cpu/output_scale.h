// The factor that a product's column gets once its sum is complete: NVFP4's global factor, FP8's of the weight's row.
#pragma once

#include "ops/cpu/simd_math.h"
#include "ops/views.h"

namespace dgem::ops::cpu {

DGEM_SIMD float output_scale(const Matrix& w, int64_t row) {
  if (w.format == Format::nvfp4) return w.scale;
  if (w.format != Format::fp8) return 1.0f;
  if (w.row_scales.format == Format::f32) return static_cast<const float*>(w.row_scales.data)[row];
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(w.row_scales.data)[row]} << 16;  // F32 or BF16
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

}  // namespace dgem::ops::cpu
