#include "ops/cpu/cpu_ops.h"

#include "base/numeric.h"
#include "ops/cpu/cpu_ops_impl.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace dgem::ops::cpu {
namespace {

constexpr int64_t kRowWork = 16384;  // elements that are worth a part of their own in row-wise operations
constexpr int64_t kHugePage = 2 << 20;

// Slots of the shared scratch memory.
enum SharedSlot { kPacked, kProbabilities };
enum ThreadSlot { kGate = 4, kUp = 5 };  // below are the kernels' own

const char* offset(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* offset(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

}  // namespace

CpuOps::CpuOps(const Kernels& kernels, Precision precision, int threads)
    : kernels_(kernels), precision_(precision), pool_(threads), scratch_(pool_.size()) {}

std::string CpuOps::name() const {
  return fmt::format("cpu ({}, {} thread{}, {} activations)", kernels_.name, pool_.size(), pool_.size() == 1 ? "" : "s",
                     name_of(precision_));
}

Buffer CpuOps::allocate(size_t bytes) {
  const size_t alignment = bytes >= size_t{kHugePage} ? kHugePage : 64;
  const size_t size = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, size);
  if (p == nullptr) throw Fault(fmt::format("out of memory: {} bytes could not be allocated", size));
  if (alignment == size_t{kHugePage}) madvise(p, size, MADV_HUGEPAGE);
  return Buffer(static_cast<std::byte*>(p), [](std::byte* q) { std::free(q); });
}

void CpuOps::upload(void* device, const void* host, size_t bytes) { std::memcpy(device, host, bytes); }
void CpuOps::download(void* host, const void* device, size_t bytes) { std::memcpy(host, device, bytes); }
void CpuOps::copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

void CpuOps::embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x) {
  over(rows, kRowWork / table.cols,
       [&](int64_t r0, int64_t r1, int) { kernels_.rows.embed(table, ids + r0, r1 - r0, scale, x + r0 * table.cols); });
}

void CpuOps::gather(const void* from, const int32_t* index, int64_t rows, int64_t row_bytes, void* to) {
  for (int64_t i = 0; i < rows; ++i) std::memcpy(offset(to, i * row_bytes), offset(from, index[i] * row_bytes), row_bytes);
}

void CpuOps::rms_norm(const float* x, const Vector& w, float eps, Act out) {
  const int64_t row_bytes = out.cols * bytes_of(out.precision);
  over(out.rows, kRowWork / out.cols, [&](int64_t r0, int64_t r1, int) {
    kernels_.rows.rms_norm(x + r0 * out.cols, r1 - r0, out.cols, w, eps, offset(out.data, r0 * row_bytes), out.precision);
  });
}

void CpuOps::rms_norm(const float* x, int64_t rows, int64_t cols, const Vector& w, float eps, float* out) {
  rms_norm(x, w, eps, Act{out, Precision::f32, rows, cols});
}

void CpuOps::canvas_input(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps) {
  over(rows, kRowWork / cols, [&](int64_t r0, int64_t r1, int) {
    kernels_.rows.canvas_input(x, index + r0, r1 - r0, cols, m ? m + r0 * cols : nullptr, eps);
  });
}

const void* CpuOps::pack(const GemmKernels& gemm, const Rows& x) {
  const size_t bytes = gemm.packed_bytes(x.rows, x.cols);
  if (bytes == 0) return nullptr;
  char* packed = shared_.get<char>(kPacked, bytes);
  const int64_t tiles = (x.rows + 15) / 16;
  over(tiles, 1, [&](int64_t t0, int64_t t1, int) {
    for (int64_t t = t0; t < t1; ++t) gemm.pack(x, t, packed);
  });
  return packed;
}

namespace {

// A product cut into blocks of output columns, and of rows where there are many: the rows of a block stay in the second
// level cache while the weights stream through.
struct Blocks {
  static constexpr int64_t kRows = 512;
  int64_t cols;  // output columns of a block
  int64_t row_blocks;
  std::vector<int64_t> first;  // first column block of each weight; last: the number of column blocks

  Blocks(int64_t rows, std::span<const Matrix> weights, int threads) {
    int64_t total = 0;
    for (const Matrix& w : weights) total += w.rows;
    // At least six blocks a thread, so that a slow thread does not hold up the rest; whole tiles of 32.
    cols = std::clamp<int64_t>(total / (int64_t{6} * threads) / 32 * 32, 32, 128);
    row_blocks = std::max<int64_t>(1, (rows + kRows / 2) / kRows);
    first.push_back(0);
    for (const Matrix& w : weights) first.push_back(first.back() + (w.rows + cols - 1) / cols);
  }
  int parts() const { return static_cast<int>(first.back() * row_blocks); }

  struct Block {
    size_t weight;
    int64_t n0, n1, m0, m1;
  };
  Block at(int part, std::span<const Matrix> weights, int64_t rows) const {
    const int64_t block = part % first.back(), row_block = part / first.back();
    size_t weight = 0;
    while (first[weight + 1] <= block) ++weight;
    const int64_t n0 = (block - first[weight]) * cols;
    // Row blocks begin at whole tiles of 16.
    const auto edge = [&](int64_t i) { return i == row_blocks ? rows : rows * i / row_blocks / 16 * 16; };
    return {weight, n0, std::min(n0 + cols, weights[weight].rows), edge(row_block), edge(row_block + 1)};
  }
};

// Rows [m0, m1) of x, and their part of its packed form (whole tiles of 16 rows).
struct RowSlice {
  Rows rows;
  const void* packed;
  RowSlice(const GemmKernels& gemm, const Rows& x, const void* all, int64_t m0, int64_t m1)
      : rows(x), packed(all ? offset(all, static_cast<int64_t>(gemm.packed_bytes(m0, x.cols))) : nullptr) {
    rows.data = x.row(m0);
    rows.rows = m1 - m0;
  }
};

}  // namespace

void CpuOps::linear(const Act& x, std::span<const Matrix> weights, std::span<float* const> y) {
  const GemmKernels& g = gemm(x.precision);
  const Rows rows = rows_of(x);
  const void* packed = pack(g, rows);
  const Blocks blocks(x.rows, weights, pool_.size());
  pool_.run(blocks.parts(), [&](int part, int thread) {
    const auto b = blocks.at(part, weights, x.rows);
    const Matrix& w = weights[b.weight];
    DGEM_CHECK(w.cols == x.cols);
    const RowSlice slice(g, rows, packed, b.m0, b.m1);
    g.linear(w, nullptr, b.n0, b.n1, slice.rows, slice.packed, y[b.weight] + b.m0 * w.rows + b.n0, w.rows, scratch_[thread]);
  });
}

void CpuOps::linear_f32(const float* x, int64_t rows, const Matrix& w, float* y) {
  // Cut by rows: the router has few columns.
  over(rows, 8, [&](int64_t m0, int64_t m1, int thread) {
    const Rows part{x + m0 * w.cols, Precision::f32, w.cols * 4, nullptr, m1 - m0, w.cols};
    kernels_.gemm_f32.linear(w, nullptr, 0, w.rows, part, nullptr, y + m0 * w.rows, w.rows, scratch_[thread]);
  });
}

void CpuOps::gated(const Act& x, const Matrix& gate, const Matrix& up, Act h) {
  const GemmKernels& g = gemm(x.precision);
  const Rows rows = rows_of(x);
  const void* packed = pack(g, rows);
  const std::span<const Matrix> weights(&gate, 1);
  const Blocks blocks(x.rows, weights, pool_.size());
  pool_.run(blocks.parts(), [&](int part, int thread) {
    const auto b = blocks.at(part, weights, x.rows);
    const int64_t n = b.n1 - b.n0, m = b.m1 - b.m0;
    Scratch& scratch = scratch_[thread];
    const RowSlice slice(g, rows, packed, b.m0, b.m1);
    float* gate_out = scratch.get<float>(kGate, m * n);
    float* up_out = scratch.get<float>(kUp, m * n);
    g.linear(gate, nullptr, b.n0, b.n1, slice.rows, slice.packed, gate_out, n, scratch);
    g.linear(up, nullptr, b.n0, b.n1, slice.rows, slice.packed, up_out, n, scratch);
    for (int64_t r = 0; r < m; ++r) {
      void* to = offset(h.data, ((b.m0 + r) * h.cols + b.n0) * bytes_of(h.precision));
      kernels_.rows.gelu_mul(gate_out + r * n, up_out + r * n, n, to, h.precision);
    }
  });
}

void CpuOps::dot_rows(const Act& x, const Matrix& table, const int32_t* rows, const int32_t* ids, int64_t pairs, float* y) {
  const GemmKernels& g = gemm(x.precision);
  constexpr int64_t kMost = 64;
  // Stretches of pairs with the same row of x.
  std::vector<int64_t> first;
  for (int64_t i = 0; i < pairs; ++i) {
    if (i == 0 || rows[i] != rows[i - 1] || i - first.back() == kMost) first.push_back(i);
  }
  const int64_t row_bytes = x.cols * bytes_of(x.precision);
  pool_.run(static_cast<int>(first.size()), [&](int part, int thread) {
    const int64_t i = first[part];
    const int64_t n = (part + 1 < static_cast<int>(first.size()) ? first[part + 1] : pairs) - i;
    const Rows row{offset(x.data, rows[i] * row_bytes), x.precision, row_bytes, nullptr, 1, x.cols};
    const size_t bytes = g.packed_bytes(1, x.cols);
    void* packed = bytes > 0 ? scratch_[thread].get<char>(kGate, bytes) : nullptr;
    if (packed != nullptr) g.pack(row, 0, packed);
    g.linear(table, ids + i, 0, n, row, packed, y + i, n, scratch_[thread]);
  });
}

void CpuOps::rope_angles(const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos,
                         float* sin) {
  over(rows, std::max<int64_t>(1, 2048 / angles), [&](int64_t r0, int64_t r1, int) {
    kernels_.rows.rope_angles(positions + r0, r1 - r0, frequencies, angles, cos + r0 * angles, sin + r0 * angles);
  });
}

void CpuOps::head_norm_rope(const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps,
                            const float* cos, const float* sin, int64_t angles, void* out, Precision out_precision) {
  const int64_t cols = int64_t{heads} * head_dim;
  over(rows, kRowWork / cols, [&](int64_t r0, int64_t r1, int) {
    kernels_.rows.head_norm_rope(x + r0 * cols, r1 - r0, heads, head_dim, w, eps, cos + r0 * angles, sin + r0 * angles,
                                 angles, offset(out, r0 * cols * bytes_of(out_precision)), out_precision);
  });
}

void CpuOps::attention(const AttentionShape& shape, const float* q, std::span<const QueryGroup> groups,
                       std::span<const KeyRun> runs, Act out) {
  // A part is a tile of query rows and one key head; tiles of about 64 query vectors share the work on each key.
  const int64_t tile = std::max(1, 64 / (shape.q_heads / shape.kv_heads));
  struct Part {
    const QueryGroup* group;
    int64_t row0, row1;
  };
  std::vector<Part> parts;
  for (const QueryGroup& group : groups) {
    for (int64_t r = 0; r < group.rows; r += tile) parts.push_back({&group, r, std::min<int64_t>(r + tile, group.rows)});
  }
  pool_.run(static_cast<int>(parts.size()) * shape.kv_heads, [&](int i, int thread) {
    // The last rows of a prompt see the most keys: begin with them.
    const Part& part = parts[parts.size() - 1 - static_cast<size_t>(i / shape.kv_heads)];
    const auto seen = runs.subspan(part.group->run, part.group->runs);
    kernels_.rows.attention(shape, q, *part.group, seen, precision_, part.row0, part.row1, i % shape.kv_heads, out.data,
                            out.precision, scratch_[thread]);
  });
}

void CpuOps::branch(const float* x, const float* a, int64_t rows, int64_t cols, const BranchNorms& norms, float* r,
                    Act dense_in, Act expert_in, float* router_in) {
  const int64_t size = bytes_of(dense_in.precision);
  over(rows, kRowWork / cols, [&](int64_t r0, int64_t r1, int) {
    const int64_t at = r0 * cols;
    kernels_.rows.branch(x + at, a + at, r1 - r0, cols, norms, r + at, offset(dense_in.data, at * size),
                         offset(expert_in.data, at * size), dense_in.precision, router_in + at);
  });
}

void CpuOps::route(const float* logits, int64_t rows, int64_t experts, int k, const Vector& per_expert_scale, int32_t* ids,
                   float* weights) {
  over(rows, 32, [&](int64_t r0, int64_t r1, int) {
    kernels_.rows.route(logits + r0 * experts, r1 - r0, experts, k, per_expert_scale, ids + r0 * k, weights + r0 * k);
  });
}

void CpuOps::join(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const JoinNorms& norms,
                  const uint8_t* kind, float* out) {
  over(rows, kRowWork / cols, [&](int64_t r0, int64_t r1, int) {
    const int64_t at = r0 * cols;
    kernels_.rows.join(r + at, d + at, m + at, r1 - r0, cols, norms, kind + r0, out + at);
  });
}

void CpuOps::soft_cap(float* z, int64_t count, float cap) {
  over(count, kRowWork, [&](int64_t i0, int64_t i1, int) { kernels_.rows.soft_cap(z + i0, i1 - i0, cap); });
}

void CpuOps::soft_embed(const float* z, int64_t rows, const Matrix& table, float scale, float* g) {
  const int64_t vocab = table.rows, hidden = table.cols;
  const int64_t row_bytes = vocab * bytes_of(precision_);
  char* p = shared_.get<char>(kProbabilities, rows * row_bytes);
  over(rows, 1, [&](int64_t r0, int64_t r1, int) {
    kernels_.rows.softmax(z + r0 * vocab, r1 - r0, vocab, p + r0 * row_bytes, precision_);
  });
  std::memset(g, 0, rows * hidden * sizeof(float));
  // Wide slices, since each reads its part of every row of the table; more parts come from cutting the rows.
  constexpr int64_t kSlice = 256, kRows = 64;
  const int64_t slices = (hidden + kSlice - 1) / kSlice, row_parts = (rows + kRows - 1) / kRows;
  pool_.run(static_cast<int>(slices * row_parts), [&](int part, int thread) {
    const int64_t h0 = part % slices * kSlice, h1 = std::min(h0 + kSlice, hidden);
    const int64_t r0 = part / slices * kRows, r1 = std::min(r0 + kRows, rows);
    kernels_.rows.soft_embed(p + r0 * row_bytes, precision_, r1 - r0, table, h0, h1, g + r0 * hidden, scratch_[thread]);
    for (int64_t r = r0; r < r1; ++r) {
      for (int64_t h = h0; h < h1; ++h) g[r * hidden + h] *= scale;
    }
  });
}

Result<std::shared_ptr<Ops>> make_cpu_ops(const CpuOptions& options) {
  const char* wanted = options.isa.empty() ? std::getenv("DGEM_CPU") : options.isa.c_str();
  DGEM_ASSIGN(const Isa isa, choose_isa(wanted));
  return std::shared_ptr<Ops>(std::make_shared<CpuOps>(kernels_of(isa), options.precision, options.threads));
}

}  // namespace dgem::ops::cpu
