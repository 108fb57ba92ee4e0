// Matrix products on AMX tiles (tdpbf16ps). The weights are the left operand, as they lie in memory: sixteen rows of a
// weight times 32 inner elements make a tile. The activations are the right operand, packed once per product. So the
// result comes out transposed, and is turned where it is stored.
#include "ops/cpu/decode_avx512.h"
#include "ops/cpu/gemm_f32_of_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/output_scale.h"
#include "ops/cpu/tile_config.h"

namespace dgem::ops::cpu {
namespace {

constexpr int64_t kTileBytes = 1024;  // 16 rows of 64 bytes
constexpr int64_t kInner = 32;        // inner elements of a tile
// Weights are decoded in blocks of four tiles of rows by eight along the inner dimension: 32 KB, which stay in the first
// level cache while all of x goes by.
constexpr int64_t kRowTiles = 4, kChunk = 8;

int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }

// Packed x: for each tile of 16 rows, for each 32 inner elements, 16 pairs of them by 16 rows.
size_t packed_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(tiles(rows, 16) * tiles(cols, kInner) * kTileBytes);
}

void pack(const Rows& x, int64_t tile, void* packed) {
  const int64_t inner = tiles(x.cols, kInner);
  char* to = static_cast<char*>(packed) + tile * inner * kTileBytes;
  const int rows = static_cast<int>(x.rows - tile * 16 < 16 ? x.rows - tile * 16 : 16);
  const char* row[16];
  for (int i = 0; i < rows; ++i) row[i] = static_cast<const char*>(x.row(tile * 16 + i));
  for (int64_t t = 0; t < inner; ++t) {
    const int64_t left = x.cols - t * kInner;
    const __mmask32 mask = left >= kInner ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    __m512 r[16];
    for (int i = 0; i < 16; ++i) {
      r[i] = i < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, row[i] + t * 64)) : _mm512_setzero_ps();
    }
    Avx512::transpose(r);
    for (int i = 0; i < 16; ++i) _mm512_store_ps(to + t * kTileBytes + i * 64, r[i]);
  }
}

// Weights that are needed later, fetched into the second level cache bit by bit while others are multiplied: in the order
// in which they lie in memory, which memory serves best.
class FetchAhead {
 public:
  FetchAhead() = default;
  // Rows [row, row + rows) of w in `steps` steps; nothing if there are none.
  FetchAhead(const Matrix& w, int64_t row, int64_t rows, int64_t steps) {
    if (rows <= 0) return;
    data_ = static_cast<const char*>(w.data) + row * w.row_bytes();
    step_ = tiles(rows * w.row_bytes(), 64 * steps) * 64;
    if (w.format != Format::nvfp4) return;
    scales_ = reinterpret_cast<const char*>(w.block_scales) + row * (w.cols / 16);
    scale_step_ = tiles(rows * (w.cols / 16), 64 * steps) * 64;
  }
  explicit operator bool() const { return data_ != nullptr; }
  void step() {
    prefetch_bytes(data_, step_);
    prefetch_bytes(scales_, scale_step_);
    data_ += step_;
    scales_ += scale_step_;
  }

 private:
  const char* data_ = nullptr;
  const char* scales_ = nullptr;
  int64_t step_ = 0, scale_step_ = 0;
};

// Writes `count` tiles of 16 weight rows from inner tile `first` on, as bf16, to `to`; rows past `rows` are zero. With
// `next` it asks for the chunk behind.
template <Format kFormat>
void decode_tiles(const Bf16Row<kFormat>* row, int rows, int64_t cols, int64_t first, int64_t count, bool next, char* to) {
  const int64_t whole = first + count <= cols / kInner ? count : cols / kInner - first;
  for (int i = 0; i < 16; ++i) {
    char* to_row = to + i * 64;
    if (i >= rows) {
      for (int64_t t = 0; t < count; ++t) _mm512_store_si512(to_row + t * kTileBytes, _mm512_setzero_si512());
      continue;
    }
    const Bf16Row<kFormat> r = row[i];
    if (next) r.prefetch((first + count) * kInner, kChunk * kInner);
    if (whole == kChunk) {
#pragma GCC unroll 8
      for (int64_t t = 0; t < kChunk; ++t) _mm512_store_si512(to_row + t * kTileBytes, r.load((first + t) * kInner));
      continue;
    }
    for (int64_t t = 0; t < whole; ++t) _mm512_store_si512(to_row + t * kTileBytes, r.load((first + t) * kInner));
    if (whole < count) {
      const int64_t k = (first + whole) * kInner;
      _mm512_store_si512(to_row + whole * kTileBytes, r.load_partial(k, static_cast<int>(cols - k)));
    }
  }
}

// c += w · x over `count` inner tiles, for two tiles of weight rows and one or two of x. Tiles 0-3 hold c.
template <bool kTwo>
[[gnu::always_inline]] inline void multiply(const char* w0, const char* w1, const char* x0, const char* x1, int64_t count) {
  for (int64_t t = 0; t < count; ++t) {
    _tile_loadd(4, w0 + t * kTileBytes, 64);
    _tile_loadd(5, w1 + t * kTileBytes, 64);
    _tile_loadd(6, x0 + t * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (kTwo) {
      _tile_loadd(7, x1 + t * kTileBytes, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
}

template <bool kTwo>
[[gnu::always_inline]] inline void load_sums(const char* c) {
  _tile_loadd(0, c, 64);
  _tile_loadd(1, c + kTileBytes, 64);
  if constexpr (kTwo) {
    _tile_loadd(2, c + 2 * kTileBytes, 64);
    _tile_loadd(3, c + 3 * kTileBytes, 64);
  }
}

template <bool kTwo>
[[gnu::always_inline]] inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTwo) {
    _tile_zero(2);
    _tile_zero(3);
  }
}

template <bool kTwo>
[[gnu::always_inline]] inline void store_sums(char* c) {
  _tile_stored(0, c, 64);
  _tile_stored(1, c + kTileBytes, 64);
  if constexpr (kTwo) {
    _tile_stored(2, c + 2 * kTileBytes, 64);
    _tile_stored(3, c + 3 * kTileBytes, 64);
  }
}

// GCC's tile intrinsics do not say that they read memory: keeps the stores before them there.
[[gnu::always_inline]] inline void memory_barrier() { __asm__ volatile("" ::: "memory"); }

template <bool kTwo>
void step(bool first, const char* w, const char* x, int64_t x_stride, int64_t count, char* c) {
  memory_barrier();
  if (first) {
    zero_sums<kTwo>();
  } else {
    load_sums<kTwo>(c);
  }
  multiply<kTwo>(w, w + kChunk * kTileBytes, x, x + x_stride, count);
  store_sums<kTwo>(c);
  memory_barrier();
}

// Turns a tile of sums [16 columns of y, 16 rows of y] and stores its part of y, each column times its scale.
void store_turned(const char* c, __m512 scale, int rows, int columns, float* y, int64_t ldy) {
  __m512 r[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_ps(c + i * 64);
  Avx512::transpose(r);
  const __mmask16 mask = static_cast<__mmask16>((1u << columns) - 1u);
  for (int i = 0; i < rows; ++i) _mm512_mask_storeu_ps(y + i * ldy, mask, _mm512_mul_ps(r[i], scale));
}

// Columns [n0, n0 + columns) of y, at most kMostColumns. Along the inner dimension chunk by chunk, so that the chunk of
// x, too, stays near while the weights go by.
constexpr int kMostColumns = 256;
constexpr int64_t kMostAhead = 512 << 10;  // bytes of the next panel that may wait in the second level cache

template <Format kFormat>
void linear_panel(const Matrix& w, const int32_t* w_rows, int64_t n0, int columns, const Rows& x, const char* packed,
                  float* y, int64_t ldy, bool fetched, FetchAhead ahead, Scratch& scratch) {
  const int64_t inner = tiles(w.cols, kInner), row_tiles = tiles(x.rows, 16);
  const int64_t x_stride = inner * kTileBytes;
  const int64_t pairs = tiles(columns, 32);
  char* decoded = scratch.get<char>(0, kRowTiles * kChunk * kTileBytes);
  char* sums = scratch.get<char>(1, static_cast<size_t>(2 * pairs * row_tiles * kTileBytes));  // [pair][row tile][2]
  Bf16Row<kFormat> row[kMostColumns];
  alignas(64) float scale[kMostColumns] = {};
  for (int i = 0; i < columns; ++i) {
    const int64_t index = w_rows ? w_rows[n0 + i] : n0 + i;
    row[i] = Bf16Row<kFormat>(w, index);
    scale[i] = output_scale(w, index);
  }
  const auto rows_of_tile = [&](int64_t tile) {
    const int64_t left = columns - tile * 16;
    return static_cast<int>(left < 0 ? 0 : left < 16 ? left : 16);
  };
  for (int64_t t = 0; t < inner; t += kChunk) {
    const int64_t count = inner - t < kChunk ? inner - t : kChunk;
    for (int64_t tile = 0; tile < 2 * pairs; tile += kRowTiles) {
      const int64_t block = 2 * pairs - tile < kRowTiles ? 2 * pairs - tile : kRowTiles;
      for (int64_t i = 0; i < block; ++i) {
        const bool next = !fetched && t + count < inner;
        decode_tiles(row + (tile + i) * 16, rows_of_tile(tile + i), w.cols, t, count, next,
                     decoded + i * kChunk * kTileBytes);
      }
      if (ahead) ahead.step();
      for (int64_t m = 0; m < row_tiles; m += 2) {
        const char* x_tile = packed + m * x_stride + t * kTileBytes;
        for (int64_t i = 0; i < block; i += 2) {
          char* c = sums + 2 * ((tile + i) / 2 * row_tiles + m) * kTileBytes;
          const char* weights = decoded + i * kChunk * kTileBytes;
          if (m + 1 < row_tiles) {
            step<true>(t == 0, weights, x_tile, x_stride, count, c);
          } else {
            step<false>(t == 0, weights, x_tile, x_stride, count, c);
          }
        }
      }
    }
  }
  for (int64_t tile = 0; tile < 2 * pairs; ++tile) {
    const int n = rows_of_tile(tile);
    for (int64_t m = 0; n > 0 && m < row_tiles; ++m) {
      const int rows = static_cast<int>(x.rows - m * 16 < 16 ? x.rows - m * 16 : 16);
      const char* c = sums + (2 * (tile / 2 * row_tiles + m) + tile % 2) * kTileBytes;
      store_turned(c, _mm512_load_ps(scale + tile * 16), rows, n, y + m * 16 * ldy + tile * 16, ldy);
    }
  }
}

template <Format kFormat>
void linear_tiles(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, const char* packed,
                  float* y, int64_t ldy, Scratch& scratch) {
  // Few rows of x: their sums stay in the first level cache too. Many: a wider panel, so that x is fetched less often.
  const int64_t panel = x.rows <= 64 ? 16 * kRowTiles : kMostColumns;
  bool fetched = false;  // the panel's weights, while the panel before was multiplied
  for (int64_t n = n0; n < n1; n += panel) {
    const int columns = static_cast<int>(n1 - n < panel ? n1 - n : panel);
    FetchAhead ahead;
    const int64_t left = n1 - n - columns, next = left < panel ? left : panel;
    if (w_rows == nullptr && next * w.row_bytes() <= kMostAhead) {
      ahead = FetchAhead(w, n + columns, next, tiles(tiles(w.cols, kInner), kChunk) * tiles(columns, 16 * kRowTiles));
    }
    linear_panel<kFormat>(w, w_rows, n, columns, x, packed, y + (n - n0), ldy, fetched, ahead, scratch);
    fetched = static_cast<bool>(ahead);
  }
}

void linear(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, const void* packed, float* y,
            int64_t ldy, Scratch& scratch) {
  if (w.format == Format::f32 || w.format == Format::f16) {
    return linear_wide_weights_avx512(w, w_rows, n0, n1, x, packed, y, ldy, scratch);
  }
  const TileConfig config;
  _tile_loadconfig(&config);
  const char* p = static_cast<const char*>(packed);
  switch (w.format) {
    case Format::fp8: linear_tiles<Format::fp8>(w, w_rows, n0, n1, x, p, y, ldy, scratch); break;
    case Format::nvfp4: linear_tiles<Format::nvfp4>(w, w_rows, n0, n1, x, p, y, ldy, scratch); break;
    default: linear_tiles<Format::bf16>(w, w_rows, n0, n1, x, p, y, ldy, scratch); break;
  }
  _tile_release();
}

}  // namespace

const GemmKernels& gemm_bf16_amx() {
  static constexpr GemmKernels kTable = {packed_bytes, pack, linear};
  return kTable;
}

}  // namespace dgem::ops::cpu
