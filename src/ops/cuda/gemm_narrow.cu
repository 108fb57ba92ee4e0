// Products of float32 rows with few outputs (the router): a block takes some rows, a warp one output after the other.
// Lanes sum every 32nd group of 8 terms in ascending order, then the lanes are added in a fixed order.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"

namespace dgem::ops::cuda {
namespace {

constexpr int kRows = 4, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kTerms = 8;  // of a lane at a time
constexpr int64_t kMaxTerms = 3072, kMaxOutputs = 512;

__global__ void __launch_bounds__(kThreads) narrow_kernel(const Product p) {
  extern __shared__ float x[];  // [kRows][p.w.cols]
  const int64_t first = int64_t{blockIdx.x} * kRows, terms = p.w.cols, outputs = p.w.rows;
  const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(p.x.data) + first * terms);
  const int64_t present = min(int64_t{kRows}, p.x.rows - first) * terms;
  for (int64_t i = 4 * threadIdx.x; i < kRows * terms; i += 4 * kThreads) {
    *reinterpret_cast<float4*>(x + i) = i < present ? from[i / 4] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int64_t n = threadIdx.x / 32; n < outputs; n += kWarps) {
    const auto* w = reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(p.w.data) + n * terms);
    float sums[kRows] = {};
#pragma unroll 4
    for (int64_t k = kTerms * lane; k < terms; k += kTerms * 32) {
      const uint4 packed = __ldg(w + k / kTerms);
      const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4 v = *reinterpret_cast<const float4*>(x + r * terms + k + 4 * half);
          const uint32_t low = pairs[2 * half], high = pairs[2 * half + 1];
          sums[r] = fmaf(v.x, __uint_as_float(low << 16), sums[r]);
          sums[r] = fmaf(v.y, __uint_as_float(low & 0xffff0000u), sums[r]);
          sums[r] = fmaf(v.z, __uint_as_float(high << 16), sums[r]);
          sums[r] = fmaf(v.w, __uint_as_float(high & 0xffff0000u), sums[r]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = warp_sum(sums[r]);
      if (lane == r && first + r < p.x.rows) p.y[(first + r) * outputs + n] = sum;
    }
  }
}

}  // namespace

bool narrow_shape(const Product& p) {
  return p.x.precision == Precision::f32 && p.w.format == Format::bf16 && p.w.cols % kTerms == 0 && p.w.cols <= kMaxTerms &&
         p.w.rows <= kMaxOutputs && p.gate_w.data == nullptr && p.tiles == nullptr && !p.transposed;
}

void narrow_product(cudaStream_t stream, const Product& p) {
  const auto blocks = static_cast<unsigned>((p.x.rows + kRows - 1) / kRows);
  narrow_kernel<<<blocks, kThreads, static_cast<size_t>(kRows * p.w.cols) * sizeof(float), stream>>>(p);
}

}  // namespace dgem::ops::cuda
