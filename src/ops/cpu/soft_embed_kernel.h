// g += p · table for a slice of columns (RowKernels::soft_embed). Rows of the table are decoded into float32 panels that
// stay in the second level cache while all rows of p pass over them.
#pragma once

#include "ops/cpu/row_kernels_tile.h"
#include "ops/cpu/rows_shared.h"

namespace dgem::ops::cpu {

template <class S>
class SoftEmbed {
 public:
  static void run(const void* p, Precision precision, int64_t rows, const Matrix& table, int64_t h0, int64_t h1, float* g,
                  Scratch& scratch) {
    float* panels = scratch.get<float>(0, kBlock * kSlice);
    float* lines = scratch.get<float>(1, kGroup * kSlice + kMaxTile<S> * (kBlock + kPanel<S>));
    float* probabilities = lines + kGroup * kSlice;      // [tile, kBlock]
    float* sums = probabilities + kMaxTile<S> * kBlock;  // [tile, kPanel]
    for (int64_t h = h0; h < h1; h += kSlice) {
      const int64_t end = h + kSlice < h1 ? h + kSlice : h1;
      for (int64_t v = 0; v < table.rows; v += kBlock) {
        const int64_t count = v + kBlock < table.rows ? kBlock : table.rows - v;
        pack(table, v, count, h, end, lines, panels);
        int64_t tile;
        for (int64_t r = 0; r < rows; r += tile) {
          tile = next_tile<S>(rows - r);
          for (int64_t i = 0; i < tile; ++i) {
            for_lanes<S>(count, [&](int64_t k, int n) DGEM_INLINE_LAMBDA {
              store<S>(probabilities + i * kBlock + k, load<S>(p, precision, (r + i) * table.rows + v + k, n), n);
            });
          }
          for (int64_t c = h; c < end; c += kPanel<S>) {
            const float* panel = panels + (c - h) * kBlock;
            with_tile<S>(static_cast<int>(tile), [&](auto size) DGEM_INLINE_LAMBDA {
              tile_product<S, decltype(size)::kCount, kBlock, 1, false>(probabilities, panel, count, sums, kPanel<S>);
            });
            const int64_t width = end - c < kPanel<S> ? end - c : kPanel<S>;
            for (int64_t i = 0; i < tile; ++i) add(sums + i * kPanel<S>, width, g + (r + i) * table.cols + c);
          }
        }
      }
    }
  }

 private:
  static constexpr int kBlock = 128;      // rows of the table that make one partial sum
  static constexpr int64_t kSlice = 256;  // columns that are decoded at a time
  static constexpr int64_t kGroup = 8;    // rows that are decoded at a time

  static void add(const float* from, int64_t count, float* to) {
    for_lanes<S>(count, [&](int64_t i, int n)
                            DGEM_INLINE_LAMBDA { store<S>(to + i, S::add(load<S>(to + i, n), load<S>(from + i, n)), n); });
  }

  // panels[c / kPanel][k][c % kPanel] = table[v + k, h + c] for c in [0, end - h), 0 in the rest of the last panel.
  // A few rows at a time, panel by panel: so both sides are read and written in short stretches.
  static void pack(const Matrix& table, int64_t v, int64_t count, int64_t h, int64_t end, float* lines, float* panels) {
    const bool coded = table.format == Format::fp8 || table.format == Format::nvfp4;
    const int64_t width = end - h;
    for (int64_t k0 = 0; k0 < count; k0 += kGroup) {
      const int64_t k1 = k0 + kGroup < count ? k0 + kGroup : count;
      for (int64_t k = k0; k < k1; ++k) {
        if (coded) {
          decode_row(table, v + k, h, end, lines + (k - k0) * kSlice);
        } else if (v + k + kGroup < table.rows) {
          fetch(table, v + k + kGroup, h, end);
        }
      }
      for (int64_t c = 0; c < width; c += kPanel<S>) {
        for (int64_t k = k0; k < k1; ++k) {
          float* to = panels + c * kBlock + k * kPanel<S>;
          for (int64_t i = c; i < c + kPanel<S>; i += S::kWidth, to += S::kWidth) {
            const int64_t left = width - i;
            const int n = left >= S::kWidth ? S::kWidth : left > 0 ? static_cast<int>(left) : 0;
            S::store(to, coded ? load<S>(lines + (k - k0) * kSlice + i, n)
                               : load<S>(table.data, table.format, (v + k) * table.cols + h + i, n));
          }
        }
      }
    }
  }

  // Rows of a table are too far apart for the hardware to guess the next.
  static void fetch(const Matrix& table, int64_t row, int64_t h, int64_t end) {
    const int64_t element_bytes = table.format == Format::f32 ? 4 : 2;
    const char* p = static_cast<const char*>(table.data) + (row * table.cols + h) * element_bytes;
    for (int64_t b = 0; b < (end - h) * element_bytes; b += 64) __builtin_prefetch(p + b);
  }
};

}  // namespace dgem::ops::cpu
