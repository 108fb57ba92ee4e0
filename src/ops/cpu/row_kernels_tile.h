// The register tile that attention and soft_embed are made of: R rows of a small matrix product.
#pragma once

#include "ops/cpu/row_kernels_simd.h"

namespace dgem::ops::cpu {

// Columns of a tile and of a panel: the right-hand side is packed in panels [K, kPanel<S>].
template <class S>
constexpr int kPanel = 2 * S::kWidth;

// The largest tile: 2 · kMaxTile accumulators, two registers of the panel and one for broadcasts.
template <class S>
constexpr int kMaxTile = S::kWidth == 16 ? 12 : 6;

// Rows of the next tile where `rows` are left. Splits any number of rows into few tiles of the sizes that with_tile has.
template <class S>
DGEM_SIMD int next_tile(int64_t rows) {
  if (rows >= kMaxTile<S>) return kMaxTile<S>;
  for (int size = 8; size > 1; size /= 2) {
    if (size < kMaxTile<S> && rows >= size) return size;
  }
  return 1;
}

// c[r, j] = (kAdd ? c[r, j] : 0) + Σ_{k in [0, count)} a[r · AR + k · AK] · panel[k, j] for R rows and kPanel columns, one
// fused multiply-add after the other in the order of k: a row's result depends neither on R nor on how the sum is cut
// into calls.
template <class S, int R, int AR, int AK, bool kAdd>
[[gnu::always_inline]] static inline void tile_product(const float* a, const float* panel, int64_t count, float* c,
                                                       int64_t ldc) {
  using V = typename S::V;
  V sum[R][2];
  DGEM_UNROLL
  for (int r = 0; r < R; ++r) {
    sum[r][0] = kAdd ? S::load(c + r * ldc) : S::zero();
    sum[r][1] = kAdd ? S::load(c + r * ldc + S::kWidth) : S::zero();
  }
  for (int64_t k = 0; k < count; ++k) {
    const V b0 = S::load(panel + k * kPanel<S>), b1 = S::load(panel + k * kPanel<S> + S::kWidth);
    DGEM_UNROLL
    for (int r = 0; r < R; ++r) {
      const V factor = S::set1(a[r * AR]);
      sum[r][0] = S::fma(factor, b0, sum[r][0]);
      sum[r][1] = S::fma(factor, b1, sum[r][1]);
    }
    a += AK;
  }
  DGEM_UNROLL
  for (int r = 0; r < R; ++r) {
    S::store(c + r * ldc, sum[r][0]);
    S::store(c + r * ldc + S::kWidth, sum[r][1]);
  }
}

// A tile size as a type.
template <int kRows>
struct TileSize {
  static constexpr int kCount = kRows;
};

// f(TileSize<rows>) for a size that next_tile gives.
template <class S, class F>
DGEM_SIMD void with_tile(int rows, F&& f) {
  switch (rows) {
    case 8:
      if constexpr (kMaxTile < S >> 8) f(TileSize<8>());
      return;
    case 4: f(TileSize<4>()); return;
    case 2: f(TileSize<2>()); return;
    case 1: f(TileSize<1>()); return;
    default: f(TileSize<kMaxTile<S>>()); return;
  }
}

}  // namespace dgem::ops::cpu
