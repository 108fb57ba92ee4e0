// What one thread computes, as a table of functions per instruction set. cpu_ops.cpp cuts the work into parts, hands
// them to the thread pool and calls these; the table is chosen once at start. Every function works row by row in an
// order that depends on the row's own sizes only (see ops.h).
#pragma once

#include "ops/ops.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace dgem::ops::cpu {

enum class Isa : uint8_t { reference, avx2, avx512, amx };

// Rows of activations that enter a product: row m starts at data + (index ? index[m] : m) · stride bytes.
struct Rows {
  const void* data = nullptr;
  Precision precision = Precision::f32;
  int64_t stride = 0;  // bytes
  const int32_t* index = nullptr;
  int64_t rows = 0, cols = 0;

  [[gnu::always_inline]] const void* row(int64_t m) const {
    return static_cast<const char*>(data) + (index ? index[m] : m) * stride;
  }
};

// Scratch memory of one thread, 64-byte aligned, grown on demand and kept.
class Scratch {
 public:
  // n elements of T; slot tells apart buffers that live at the same time.
  template <class T>
  T* get(int slot, size_t n) {
    return static_cast<T*>(get_bytes(slot, n * sizeof(T)));
  }
  ~Scratch();
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  void* get_bytes(int slot, size_t bytes);
  static constexpr int kSlots = 8;
  void* data_[kSlots] = {};
  size_t size_[kSlots] = {};
};

// Kernels that work on whole rows; all sizes in elements, arrays without gaps.
struct RowKernels {
  // out[r] = rms(x[r]) · w; out in `precision`.
  void (*rms_norm)(const float* x, int64_t rows, int64_t cols, const Vector& w, float eps, void* out, Precision precision);
  // x[r] = table[ids[r]] · scale.
  void (*embed)(const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x);
  // x[index[i]] = rms(x[index[i]] + m[i]); m may be null.
  void (*canvas_input)(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps);
  void (*rope_angles)(const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos,
                      float* sin);
  void (*head_norm_rope)(const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps, const float* cos,
                         const float* sin, int64_t angles, void* out, Precision precision);
  void (*branch)(const float* x, const float* a, int64_t rows, int64_t cols, const Ops::BranchNorms& norms, float* r,
                 void* dense_in, void* expert_in, Precision precision, float* router_in);
  void (*route)(const float* logits, int64_t rows, int64_t experts, int k, const Vector& per_expert_scale, int32_t* ids,
                float* weights);
  // out[i] = gelu(g[i]) · u[i].
  void (*gelu_mul)(const float* g, const float* u, int64_t count, void* out, Precision precision);
  // m[r] = Σ_j weights[r,j] · y[slot[r,j]], y [*, cols], in the order of j.
  void (*combine)(const float* y, const int32_t* slot, const float* weights, int k, int64_t rows, int64_t cols, float* m);
  void (*join)(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const Ops::JoinNorms& norms,
               const uint8_t* kind, float* out);
  void (*soft_cap)(float* z, int64_t count, float cap);
  // p[r] = softmax(z[r]) in float32, rounded to `precision` and stored so; [rows, cols].
  void (*softmax)(const float* z, int64_t rows, int64_t cols, void* p, Precision precision);
  // g[r, h] += Σ_v p[r, v] · table[v, h] for h in [h0, h1), v ascending; g [rows, table.cols].
  void (*soft_embed)(const void* p, Precision precision, int64_t rows, const Matrix& table, int64_t h0, int64_t h1, float* g,
                     Scratch& scratch);
  // Rows [row0, row1) of one query group (indices within the group) for all query heads of one kv head; `runs` are the
  // group's own.
  // q and out are the whole arrays [Rq, q_heads · D].
  void (*attention)(const AttentionShape& shape, const float* q, const QueryGroup& group, std::span<const KeyRun> runs,
                    Precision kv_precision, int64_t row0, int64_t row1, int kv_head, void* out, Precision precision,
                    Scratch& scratch);
};

// Matrix products. `w_rows` (may be null) lists rows of w to take in place of n0, n0+1, ...
struct GemmKernels {
  // Bytes of the packed form of x that `linear` wants, 0 if it takes rows as they are.
  size_t (*packed_bytes)(int64_t rows, int64_t cols);
  // Packs row tile `tile` (16 rows each) of x.
  void (*pack)(const Rows& x, int64_t tile, void* packed);
  // y[m · ldy + (n - n0)] = Σ_k x[m,k] · w[n,k] for m in [0, x.rows), n in [n0, n1).
  void (*linear)(const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1, const Rows& x, const void* packed, float* y,
                 int64_t ldy, Scratch& scratch);
};

struct Kernels {
  Isa isa = Isa::reference;
  const char* name = "";
  RowKernels rows;
  GemmKernels gemm_f32;   // activations float32
  GemmKernels gemm_bf16;  // activations bf16
};

const RowKernels& row_kernels_reference();
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
const GemmKernels& gemm_f32_reference();
const GemmKernels& gemm_f32_avx2();
const GemmKernels& gemm_f32_avx512();
const GemmKernels& gemm_bf16_reference();
const GemmKernels& gemm_bf16_avx2();
const GemmKernels& gemm_bf16_avx512();
const GemmKernels& gemm_bf16_amx();

// Instruction sets that this processor and system have, slowest first.
std::span<const Isa> available();
const char* name_of(Isa isa);
Kernels kernels_of(Isa isa);
// The set to use: DGEM_CPU if set (an error names the ones that exist), else the fastest.
Result<Isa> choose_isa(const char* dgem_cpu);

}  // namespace dgem::ops::cpu
