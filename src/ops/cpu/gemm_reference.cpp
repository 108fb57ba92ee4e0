// Matrix products, plainly: each weight decoded by itself, each sum in double precision.
#include "base/numeric.h"
#include "ops/cpu/kernels.h"

#include <cstring>

namespace dgem::ops::cpu {
namespace {

float scalar_at(const void* data, Format format, int64_t i) {
  const char* p = static_cast<const char*>(data);
  if (format == Format::f32) {
    float f;
    std::memcpy(&f, p + 4 * i, 4);
    return f;
  }
  uint16_t half;
  std::memcpy(&half, p + 2 * i, 2);
  return format == Format::bf16 ? to_float(bf16{half}) : f16_to_float(half);
}

double weight_at(const Matrix& w, int64_t n, int64_t k) {
  const int64_t i = n * w.cols + k;
  switch (w.format) {
    case Format::f32:
    case Format::bf16:
    case Format::f16: return scalar_at(w.data, w.format, i);
    case Format::fp8:
      return double{e4m3_to_float(static_cast<const uint8_t*>(w.data)[i])} *
             scalar_at(w.row_scales.data, w.row_scales.format, n);
    case Format::nvfp4: {
      const uint8_t byte = static_cast<const uint8_t*>(w.data)[i / 2];
      const uint8_t code = k % 2 == 0 ? byte & 15u : byte >> 4;
      return double{e2m1_to_float(code)} * e4m3_to_float(w.block_scales[i / 16]) * w.scale;
    }
  }
  return 0;
}

size_t packed_bytes(int64_t, int64_t) { return 0; }
void pack(const Rows&, int64_t, void*) {}

void linear(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, const void*, float* y,
            int64_t ldy, Scratch& scratch) {
  const Format format = x.precision == Precision::f32 ? Format::f32 : Format::bf16;
  double* row = scratch.get<double>(0, w.cols);
  for (int64_t n = n0; n < n1; ++n) {
    for (int64_t k = 0; k < w.cols; ++k) row[k] = weight_at(w, w_rows ? w_rows[n] : n, k);
    for (int64_t m = 0; m < x.rows; ++m) {
      double sum = 0;
      for (int64_t k = 0; k < w.cols; ++k) sum += row[k] * scalar_at(x.row(m), format, k);
      y[m * ldy + (n - n0)] = static_cast<float>(sum);
    }
  }
}

}  // namespace

const GemmKernels& gemm_f32_reference() {
  static constexpr GemmKernels kTable = {packed_bytes, pack, linear};
  return kTable;
}
const GemmKernels& gemm_bf16_reference() { return gemm_f32_reference(); }  // it asks x for its precision

}  // namespace dgem::ops::cpu
