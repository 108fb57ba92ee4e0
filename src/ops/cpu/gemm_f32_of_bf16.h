// F32 and F16 weights under bf16 activations: bf16 cannot hold them, so the product is taken in float32.
#pragma once

#include "ops/cpu/kernels.h"

namespace dgem::ops::cpu {

void linear_wide_weights_avx512(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x,
                                const void* packed, float* y, int64_t ldy, Scratch& scratch);

}  // namespace dgem::ops::cpu
