// Products of bf16 activations on the tensor cores: a block of 64x64 outputs, 64 terms at a time. The terms of the next
// two steps are on their way while the present ones are multiplied: activations straight to shared memory, weights to
// registers, from which they are decoded to shared memory.
// Each output is summed over k in ascending steps of 16, whatever else is in the block.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/ptx/mma.cuh"
#include "ops/cuda/weight_units.cuh"

namespace dgem::ops::cuda {
namespace {

constexpr int kM = kTileRows, kN = 64, kK = 64, kThreads = 128;
constexpr int kStride = kK + 8;  // elements; rows of 8 land in different banks
constexpr int kUnitsPerRow = kK / kUnit;
constexpr int kUnitsPerThread = 64 * kUnitsPerRow / kThreads;  // of each operand

struct Tiles {
  __nv_bfloat16 x[3][kM][kStride];
  __nv_bfloat16 w[2][kN][kStride];  // [n][k], of transposed products [k][n]
};

// What a block computes.
struct Block {
  Matrix w, gate;
  int64_t first, rows;  // of the product: outputs [first, min(first + kM, rows))
  int64_t n0;           // first output column
  int64_t k0, k1;       // terms
};

// A gated block has 32 output columns; groups of 8 rows of w are taken from gate and up in turns, so that a thread
// holds both sums of its outputs.
template <bool kGated>
__device__ int64_t weight_row(int j, int64_t n0) {
  return kGated ? n0 + j / 16 * 8 + j % 8 : n0 + j;
}

template <Format kFormat>
using Weights = WeightUnit<kFormat>[kUnitsPerThread];

// This thread's units of both operands: row and first column of unit i in a tile.
__device__ __forceinline__ int unit_row(int i) { return (threadIdx.x + i * kThreads) / kUnitsPerRow; }
__device__ __forceinline__ int unit_column() { return threadIdx.x % kUnitsPerRow * kUnit; }
static_assert(kThreads % kUnitsPerRow == 0, "all units of a thread are in the same columns");

// Where this thread's units come from in the step at term k0, or -1: rows of x by elements, weights by units. The rest
// of the way is the same for all units of a thread, which keeps the arithmetic of addresses out of the loop.
struct Sources {
  int64_t x[kUnitsPerThread], w[kUnitsPerThread];
};

template <bool kGated, bool kTransposed>
__device__ __forceinline__ Sources find_sources(const Product& p, const Block& block) {
  Sources sources;
  const int at = unit_column();
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    const int row = unit_row(i);
    const int64_t m = block.first + row, n = weight_row<kGated>(row, block.n0);
    sources.x[i] = m >= block.rows ? -1 : (p.row_index ? p.row_index[m] : m) * p.x.cols + block.k0 + at;
    if constexpr (kTransposed) {
      sources.w[i] = block.n0 + at < block.w.cols ? ((block.k0 + row) * block.w.cols + block.n0 + at) / kUnit : -1;
    } else {
      sources.w[i] = n < block.w.rows ? (n * block.w.cols + block.k0 + at) / kUnit : -1;
    }
  }
  return sources;
}

// `done` terms behind k0.
template <Format kFormat, bool kGated, bool kTransposed>
__device__ __forceinline__ void load_weights(const Block& block, const Sources& sources, int done, Weights<kFormat>& w) {
  const int left = static_cast<int>(block.k1 - block.k0) - done;
  const int64_t ahead = kTransposed ? done / kUnit * block.w.cols : done / kUnit;
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    const int row = unit_row(i);
    const bool of_gate = kGated && row / 8 % 2 == 0;
    w[i].clear();
    if (sources.w[i] >= 0 && (kTransposed ? row : unit_column()) < left) {
      w[i].load(of_gate ? block.gate.data : block.w.data, of_gate ? block.gate.block_scales : block.w.block_scales,
                sources.w[i] + ahead);
    }
  }
}

template <Format kFormat>
__device__ __forceinline__ void store_weights(const Weights<kFormat>& w, __nv_bfloat16 (&to)[kN][kStride]) {
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    auto* unit = reinterpret_cast<uint4*>(&to[unit_row(i)][unit_column()]);
    w[i].decode(unit[0], unit[1]);
  }
}

// Starts the copies of the step `done` terms behind k0.
__device__ __forceinline__ void copy_rows(const Act& x, const Block& block, const Sources& sources, int done,
                                          __nv_bfloat16 (&to)[kM][kStride]) {
  const bool inside = unit_column() < static_cast<int>(block.k1 - block.k0) - done;
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    const bool there = inside && sources.x[i] >= 0;
    const auto* from = static_cast<const __nv_bfloat16*>(x.data) + (there ? sources.x[i] + done : 0);
    const uint32_t address = ptx::shared_address(&to[unit_row(i)][unit_column()]);
    ptx::copy_async(address, from, there);
    ptx::copy_async(address + 16, from + 8, there);
  }
  ptx::commit_copies();
}

// Each of the 4 warps has 64 rows of 16 columns: 4 tiles of 16 rows, 2 of 8 columns.
using Sums = float[4][2][4];

// The first `row_tiles` tiles of 16 rows hold rows of the product.
template <bool kTransposed>
__device__ __forceinline__ void multiply(const __nv_bfloat16 (&x)[kM][kStride], const __nv_bfloat16 (&w)[kN][kStride],
                                         int row_tiles, Sums& sums) {
  const int lane = threadIdx.x % 32, n = threadIdx.x / 32 * 16;
#pragma unroll
  for (int k = 0; k < kK; k += 16) {
    uint32_t b[4];
    if constexpr (kTransposed) {
      ptx::load_tiles_transposed(b, ptx::shared_address(&w[k + lane / 8 % 2 * 8 + lane % 8][n + lane / 16 * 8]));
    } else {
      ptx::load_tiles(b, ptx::shared_address(&w[n + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= row_tiles) break;
      uint32_t a[4];
      ptx::load_tiles(a, ptx::shared_address(&x[16 * i + lane % 16][k + lane / 16 * 8]));
      ptx::multiply_add(sums[i][0], a, b[0], b[1]);
      ptx::multiply_add(sums[i][1], a, b[2], b[3]);
    }
  }
}

// Calls f(row, column, i, j, e) for each sum of this thread, row and column counted within the block.
template <class F>
__device__ void for_each_sum(F&& f) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        f(16 * i + lane / 4 + e / 2 * 8, warp * 16 + 8 * j + lane % 4 * 2 + e % 2, i, j, e);
      }
    }
  }
}

template <bool kGated, bool kTransposed>
__device__ void write(const Product& p, const Block& block, const Sums& sums) {
  const int64_t outputs = kTransposed ? block.w.cols : block.w.rows;
  for_each_sum([&](int row, int column, int i, int j, int e) {
    const int64_t m = block.first + row, n = weight_row<kGated>(column, block.n0);
    if (m >= block.rows || n >= outputs) return;
    if constexpr (kGated) {
      if (j == 1) return;  // up: used together with the gate before it
      const float g = sums[i][j][e] * factor_at(block.gate, n), u = sums[i][1][e] * factor_at(block.w, n);
      store(p.act_out.data, Precision::bf16, m * outputs + n, gelu(g) * u);
    } else if constexpr (kTransposed) {
      p.partial[(blockIdx.z * p.x.rows + m) * outputs + n] = sums[i][j][e] * factor_at(block.w, 0);
    } else {
      p.y[m * outputs + n] = sums[i][j][e] * factor_at(block.w, n);
    }
  });
}

template <Format kFormat, bool kGated, bool kTransposed>
__global__ void __launch_bounds__(kThreads, 4) tensor_kernel(const __grid_constant__ Product p) {
  __shared__ __align__(16) Tiles tiles;
  Block block{p.w, p.gate_w, int64_t{blockIdx.y} * kM, p.x.rows, int64_t{blockIdx.x} * (kGated ? kN / 2 : kN), 0, p.w.cols};
  if constexpr (kTransposed) {
    block.k0 = int64_t{blockIdx.z} * kPartRows;
    block.k1 = min(p.w.rows, block.k0 + kPartRows);
  } else if (p.tiles != nullptr) {
    const ExpertTile tile = p.tiles[blockIdx.y];
    block.first = tile.begin;
    block.rows = tile.begin + tile.rows;
    block.w = p.w_table[tile.expert];
    if constexpr (kGated) block.gate = p.gate_table[tile.expert];
  }
  if (block.first >= block.rows) return;
  const Sources sources = find_sources<kGated, kTransposed>(p, block);
  const int row_tiles = static_cast<int>(min(int64_t{4}, (block.rows - block.first + 15) / 16));
  const int terms = static_cast<int>(block.k1 - block.k0);
  Sums sums = {};
  Weights<kFormat> w[2];
  for (int s = 0; s < 2; ++s) {
    copy_rows(p.x, block, sources, s * kK, tiles.x[s]);
    load_weights<kFormat, kGated, kTransposed>(block, sources, s * kK, w[s]);
  }
  int x_stage = 0;
  for (int k = 0; k < terms; k += 2 * kK) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      if (s == 1 && k + kK >= terms) break;
      // One barrier a step is enough: what is written before and after it was last read before the barrier of the step
      // before (weights: of the one before that).
      ptx::wait_for_copies<1>();
      store_weights<kFormat>(w[s], tiles.w[s]);
      __syncthreads();
      copy_rows(p.x, block, sources, k + (s + 2) * kK, tiles.x[x_stage == 0 ? 2 : x_stage - 1]);
      load_weights<kFormat, kGated, kTransposed>(block, sources, k + (s + 2) * kK, w[s]);
      multiply<kTransposed>(tiles.x[x_stage], tiles.w[s], row_tiles, sums);
      x_stage = x_stage == 2 ? 0 : x_stage + 1;
    }
  }
  write<kGated, kTransposed>(p, block, sums);
}

bool exact_in_bf16(Format f) { return f == Format::bf16 || f == Format::fp8 || f == Format::nvfp4; }

template <Format kFormat>
void start(cudaStream_t stream, const Product& p) {
  const bool gated = p.gate_w.data != nullptr;
  const int64_t outputs = p.transposed ? p.w.cols : p.w.rows, columns = gated ? kN / 2 : kN;
  const dim3 grid(static_cast<unsigned>((outputs + columns - 1) / columns),
                  static_cast<unsigned>(p.tiles ? p.tile_count : (p.x.rows + kM - 1) / kM),
                  p.transposed ? static_cast<unsigned>(transposed_parts(p.w.rows)) : 1u);
  if (p.transposed) {
    if constexpr (kFormat != Format::fp8) tensor_kernel<kFormat, false, true><<<grid, kThreads, 0, stream>>>(p);
  } else if (gated) {
    tensor_kernel<kFormat, true, false><<<grid, kThreads, 0, stream>>>(p);
  } else {
    tensor_kernel<kFormat, false, false><<<grid, kThreads, 0, stream>>>(p);
  }
}

}  // namespace

bool tensor_core_shape(const Product& p) {
  if (p.x.precision != Precision::bf16 || !exact_in_bf16(p.w.format) || p.w.cols % kUnit != 0 || p.x.cols % kUnit != 0)
    return false;
  // The scales of fp8 rows are factors of terms, not of sums, where the product is over the rows.
  if (p.transposed) return p.w.format != Format::fp8;
  return p.gate_w.data == nullptr || p.gate_w.format == p.w.format;
}

void tensor_product(cudaStream_t stream, const Product& p) {
  switch (p.w.format) {
    case Format::bf16: return start<Format::bf16>(stream, p);
    case Format::fp8: return start<Format::fp8>(stream, p);
    default: return start<Format::nvfp4>(stream, p);
  }
}

}  // namespace dgem::ops::cuda
