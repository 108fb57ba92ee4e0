#include "model/dequantize.h"

#include "base/numeric.h"

namespace dgem::model {
namespace {

void nvfp4_row(const ops::Matrix& matrix, int64_t row, float* out) {
  const auto* packed = static_cast<const uint8_t*>(matrix.data) + row * (matrix.cols / 2);
  const uint8_t* scales = matrix.block_scales + row * (matrix.cols / 16);
  for (int64_t c = 0; c < matrix.cols; ++c) {
    const uint8_t byte = packed[c / 2];
    const auto code = static_cast<uint8_t>(c % 2 == 0 ? byte & 15 : byte >> 4);
    out[c] = e2m1_to_float(code) * (e4m3_to_float(scales[c / 16]) * matrix.scale);
  }
}

}  // namespace

void to_float(const ops::Matrix& matrix, int64_t row, float* out) {
  const int64_t first = row * matrix.cols;
  switch (matrix.format) {
    case ops::Format::f32: {
      const float* from = static_cast<const float*>(matrix.data) + first;
      for (int64_t c = 0; c < matrix.cols; ++c) out[c] = from[c];
      return;
    }
    case ops::Format::bf16: {
      const bf16* from = static_cast<const bf16*>(matrix.data) + first;
      for (int64_t c = 0; c < matrix.cols; ++c) out[c] = dgem::to_float(from[c]);
      return;
    }
    case ops::Format::f16: {
      const uint16_t* from = static_cast<const uint16_t*>(matrix.data) + first;
      for (int64_t c = 0; c < matrix.cols; ++c) out[c] = f16_to_float(from[c]);
      return;
    }
    case ops::Format::fp8: {
      const uint8_t* from = static_cast<const uint8_t*>(matrix.data) + first;
      const float scale = to_float(matrix.row_scales, row);
      for (int64_t c = 0; c < matrix.cols; ++c) out[c] = e4m3_to_float(from[c]) * scale;
      return;
    }
    case ops::Format::nvfp4: nvfp4_row(matrix, row, out); return;
  }
}

float to_float(const ops::Vector& vector, int64_t i) {
  if (vector.data == nullptr) return 1.0f;
  switch (vector.format) {
    case ops::Format::bf16: return dgem::to_float(static_cast<const bf16*>(vector.data)[i]);
    case ops::Format::f16: return f16_to_float(static_cast<const uint16_t*>(vector.data)[i]);
    default: return static_cast<const float*>(vector.data)[i];
  }
}

}  // namespace dgem::model
