// Row kernels that are the same in every instruction set, and decoding of table rows.
#pragma once

#include "ops/cpu/kernels.h"

namespace dgem::ops::cpu {

// out[c - c0] = table[row, c] for c in [c0, c1), any format.
void decode_row(const Matrix& table, int64_t row, int64_t c0, int64_t c1, float* out);

// RowKernels::rope_angles and RowKernels::route.
void rope_angles(const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos, float* sin);
void route(const float* logits, int64_t rows, int64_t experts, int k, const Vector& per_expert_scale, int32_t* ids,
           float* weights);

// Element i of a 1-D weight; all ones if there is none.
float weight_at(const Vector& w, int64_t i);

}  // namespace dgem::ops::cpu
