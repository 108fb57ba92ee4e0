// Rows of float32 weights into the packed formats, with the error that this makes.
#pragma once

#include <cstdint>

namespace dgem::model {

// The modelopt global factor for weights of at most this magnitude: block scales up to 448 then reach it. Above 0.
float nvfp4_global(float largest);

// Packs a row of finite values: packed [cols/2], scales [cols/16] E4M3; cols a multiple of 16. For each block several
// scales are tried - around (largest / 6), where the largest value is the largest code, and around (largest / 4), where
// the codes are spaced more evenly - and the one of least squared error is kept. Returns the row's squared error.
double quantize_nvfp4_row(const float* row, int64_t cols, float global, uint8_t* packed, uint8_t* scales);

// E4M3 with one scale: out [cols], *scale = largest / 448. Returns the row's squared error.
double quantize_fp8_row(const float* row, int64_t cols, uint8_t* out, float* scale);

}  // namespace dgem::model
