// Weights as float32, one row at a time: the plain reading of each format, for tools and tests.
#pragma once

#include "ops/views.h"

#include <cstdint>

namespace dgem::model {

// out[0 .. cols) = row `row` of the matrix.
void to_float(const ops::Matrix& matrix, int64_t row, float* out);
// Element i; all ones without data.
float to_float(const ops::Vector& vector, int64_t i);

}  // namespace dgem::model
