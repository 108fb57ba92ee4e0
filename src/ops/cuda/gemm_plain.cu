// Products in float32, for any format and size: a block of 32x32 outputs, weights decoded into shared memory. Each
// output is one sum over k in ascending order, by one thread.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"

namespace dgem::ops::cuda {
namespace {

constexpr int kM = 32, kN = 32, kK = 64, kThreads = 256;
constexpr int kStride = kK + 1;
constexpr int kOutputs = kM * kN / kThreads;

struct Tile {
  float x[kM][kStride];
  float w[kN][kStride];
};

// w[n][k] of outputs [n0, n0 + kN) and terms [k0, min(k0 + kK, k_end)); zero outside.
__device__ void load_weights(const Matrix& w, bool transposed, int64_t n0, int64_t k0, int64_t k_end,
                             float (&to)[kN][kStride]) {
  const int64_t outputs = transposed ? w.cols : w.rows;
  for (int i = threadIdx.x; i < kN * kK; i += kThreads) {
    // Neighbouring threads read neighbouring elements of a row of w.
    const int n = transposed ? i % kN : i / kK, k = transposed ? i / kN : i % kK;
    const bool inside = n0 + n < outputs && k0 + k < k_end;
    to[n][k] = !inside ? 0.0f : transposed ? code_at(w, k0 + k, n0 + n) * factor_at(w, k0 + k) : code_at(w, n0 + n, k0 + k);
  }
}

// The sums of this thread's outputs: row threadIdx.x / 8, columns threadIdx.x % 8 + 8 · j.
__device__ void multiply(const Tile& tile, float (&sums)[kOutputs]) {
  const int m = threadIdx.x / 8, n = threadIdx.x % 8;
#pragma unroll 8
  for (int k = 0; k < kK; ++k) {
    const float a = tile.x[m][k];
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) sums[j] = fmaf(a, tile.w[n + 8 * j][k], sums[j]);
  }
}

__global__ void plain_kernel(const Product p, int64_t terms, int64_t outputs) {
  __shared__ Tile tile;
  __shared__ int64_t source[kM];  // the row of x, or -1
  Matrix w = p.w, gate = p.gate_w;
  int64_t first = int64_t{blockIdx.y} * kM, rows = p.x.rows;
  if (p.tiles != nullptr) {  // a tile of the grouped product is cut into blocks of kM rows
    constexpr int kCut = kTileRows / kM;
    const ExpertTile t = p.tiles[blockIdx.y / kCut];
    first = t.begin + blockIdx.y % kCut * kM;
    rows = t.begin + t.rows;
    w = p.w_table[t.expert];
    if (p.gate_table != nullptr) gate = p.gate_table[t.expert];
  }
  if (first >= rows) return;
  if (threadIdx.x < kM) {
    const int64_t m = first + threadIdx.x;
    source[threadIdx.x] = m >= rows ? -1 : p.row_index ? p.row_index[m] : m;
  }
  const int64_t n0 = int64_t{blockIdx.x} * kN;
  const int64_t k_begin = p.transposed ? int64_t{blockIdx.z} * kPartRows : 0;
  const int64_t k_end = p.transposed ? min(terms, k_begin + kPartRows) : terms;
  float sums[kOutputs] = {}, gate_sums[kOutputs] = {};
  for (int64_t k0 = k_begin; k0 < k_end; k0 += kK) {
    __syncthreads();
    for (int i = threadIdx.x; i < kM * kK; i += kThreads) {
      const int64_t row = source[i / kK], k = k0 + i % kK;
      tile.x[i / kK][i % kK] = row >= 0 && k < k_end ? load(p.x.data, p.x.precision, row * p.x.cols + k) : 0.0f;
    }
    load_weights(w, p.transposed, n0, k0, k_end, tile.w);
    __syncthreads();
    multiply(tile, sums);
    if (gate.data == nullptr) continue;
    __syncthreads();
    load_weights(gate, false, n0, k0, k_end, tile.w);
    __syncthreads();
    multiply(tile, gate_sums);
  }
  const int64_t m = first + threadIdx.x / 8;
  if (m >= rows) return;
  for (int j = 0; j < kOutputs; ++j) {
    const int64_t n = n0 + threadIdx.x % 8 + 8 * j;
    if (n >= outputs) continue;
    if (p.transposed) {
      p.partial[(blockIdx.z * p.x.rows + m) * outputs + n] = sums[j];
    } else if (gate.data != nullptr) {
      const float g = gate_sums[j] * factor_at(gate, n), u = sums[j] * factor_at(w, n);
      store(p.act_out.data, p.act_out.precision, m * outputs + n, gelu(g) * u);
    } else {
      p.y[m * outputs + n] = sums[j] * factor_at(w, n);
    }
  }
}

__global__ void add_parts_kernel(const float* partial, int64_t parts, int64_t count, float scale, float* y) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float sum = 0.0f;
  for (int64_t p = 0; p < parts; ++p) sum += partial[p * count + i];
  y[i] = sum * scale;
}

}  // namespace

void plain_product(cudaStream_t stream, const Product& p) {
  const int64_t outputs = p.transposed ? p.w.cols : p.w.rows, terms = p.transposed ? p.w.rows : p.w.cols;
  const int64_t row_blocks = p.tiles ? p.tile_count * (kTileRows / kM) : (p.x.rows + kM - 1) / kM;
  const int64_t parts = p.transposed ? transposed_parts(terms) : 1;
  const dim3 grid(static_cast<unsigned>((outputs + kN - 1) / kN), static_cast<unsigned>(row_blocks),
                  static_cast<unsigned>(parts));
  plain_kernel<<<grid, kThreads, 0, stream>>>(p, terms, outputs);
}

void add_parts(cudaStream_t stream, const float* partial, int64_t parts, int64_t count, float scale, float* y) {
  add_parts_kernel<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(partial, parts, count,
                                                                                                      scale, y);
}

}  // namespace dgem::ops::cuda
