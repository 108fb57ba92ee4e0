// The kernel interface: everything that the model computes, on plain views of device memory. The model's forward pass
// is written once over this class; a device (cpu/, later cuda/) implements it. Names: R rows, H hidden size, D head
// dimension. Unless said otherwise float* arrays are float32 row-major without gaps and all pointers are device memory.
//
// Every function computes each row by itself, in an order that does not depend on the other rows, on the number of
// rows or on the number of threads: a row's result has the same bits in any batch.
#pragma once

#include "base/result.h"
#include "ops/views.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace dgem::ops {

constexpr float kNormEpsilonDefault = 1e-6f;

// Device memory, released when the last reference goes.
using Buffer = std::shared_ptr<std::byte>;

// A stretch of keys and values at absolute positions [position, position + count): row i of k and v (stride
// kv_heads · D elements of the activation precision) belongs to position + i.
struct KeyRun {
  const void* k = nullptr;
  const void* v = nullptr;
  int position = 0;
  int count = 0;
};

// Query rows that see the same runs. Rows [row, row + rows) of q; runs [run, run + runs) of the run table, which lie
// at ascending positions and together cover every position from `first_key` on that any of the rows may see.
struct QueryGroup {
  int row = 0, rows = 0;
  int run = 0, runs = 0;
  // Prompt rows (causal): row i has position `position` + i and sees keys at k <= that and, with a window W,
  // k > position + i - W. Canvas rows: every row sees all keys in [first_key, end_key).
  bool canvas = false;
  int position = 0;   // prompt only
  int first_key = 0;  // canvas only (a window is already taken into account)
  int end_key = 0;    // canvas only
};

struct AttentionShape {
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  int window = 0;  // 0: none
};

struct ExpertWeights {
  std::span<const Matrix> gate, up, down;  // one each per expert: [M, H], [M, H], [H, M]
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string name() const = 0;  // e.g. "cpu (amx, 2 threads)"
  virtual Precision precision() const = 0;

  // ---- memory. Throws Fault when there is none.
  virtual Buffer allocate(size_t bytes) = 0;
  virtual void upload(void* device, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;  // within the device
  // The device's view of a weight of the mapped checkpoint (the same view on the CPU).
  virtual Matrix place(const Matrix& host) = 0;
  virtual Vector place(const Vector& host) = 0;

  // ---- rows
  // x[r] = table[ids[r]] · scale, ids in [0, table.rows).
  virtual void embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x) = 0;
  // to[i] = from[index[i]], rows of row_bytes.
  virtual void gather(const void* from, const int32_t* index, int64_t rows, int64_t row_bytes, void* to) = 0;
  // out = x · (mean(x²) + eps)^(-1/2) · w, per row of w-size or x.cols.
  virtual void rms_norm(const float* x, const Vector& w, float eps, Act out) = 0;
  virtual void rms_norm(const float* x, int64_t rows, int64_t cols, const Vector& w, float eps, float* out) = 0;
  // For the rows listed in `index` (R of them): x[index[i]] = rms(x[index[i]] + m[i]); m == nullptr counts as zero.
  virtual void canvas_input(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps) = 0;

  // ---- matrix products
  // y_i = x · W_iᵀ, y_i [x.rows, W_i.rows]; all W_i have x.cols columns.
  virtual void linear(const Act& x, std::span<const Matrix> weights, std::span<float* const> y) = 0;
  // The same in float32 whatever the activation precision (the router).
  virtual void linear_f32(const float* x, int64_t rows, const Matrix& w, float* y) = 0;
  // h = gelu(x · gateᵀ) ⊙ (x · upᵀ), gelu in its tanh form; h [x.rows, gate.rows].
  virtual void gated(const Act& x, const Matrix& gate, const Matrix& up, Act h) = 0;
  // One row of y per (row, id) pair: y[i] = x[rows[i]] · table[ids[i]]; x [n, H].
  virtual void dot_rows(const Act& x, const Matrix& table, const int32_t* rows, const int32_t* ids, int64_t pairs,
                        float* y) = 0;

  // ---- attention (model.md 3.5, 3.6)
  // cos and sin [R, angles] of positions[r] · frequencies[i], angles in float32.
  virtual void rope_angles(const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos,
                           float* sin) = 0;
  // Per head of D: out = rope(rms(x) · w). Pair (i, i + D/2) is turned by angle i for i < angles; the other pairs pass.
  // x [R, heads · D]; `out` float32 or the activation precision. angles == 0: no rotation (values).
  virtual void head_norm_rope(const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps,
                              const float* cos, const float* sin, int64_t angles, void* out, Precision out_precision) = 0;
  // out[r] = concat over heads of softmax(q·kᵀ) · v over the keys that row r sees, scale 1; q [Rq, q_heads · D] float32.
  // Query head h uses key head h / (q_heads / kv_heads). Sums run over keys in blocks anchored at absolute positions,
  // so that the bits do not depend on how the keys are cut into runs. groups and runs are host memory.
  virtual void attention(const AttentionShape& shape, const float* q, std::span<const QueryGroup> groups,
                         std::span<const KeyRun> runs, Act out) = 0;

  // ---- the layer's joints (model.md 3.4)
  // r = x + rms_w(a; post): then dense_in = rms_w(r; dense), expert_in = rms_w(r; expert) and
  // router_in = rms(r) ⊙ router_scale · H^(-1/2). r may be x.
  struct BranchNorms {
    Vector post, dense, expert, router_scale;
    float eps = kNormEpsilonDefault;
  };
  virtual void branch(const float* x, const float* a, int64_t rows, int64_t cols, const BranchNorms& norms, float* r,
                      Act dense_in, Act expert_in, float* router_in) = 0;
  // ids[r], weights[r] [k]: the k largest of logits [R, experts] (ties: lowest index), ids ascending; weights are their
  // softmax times per_expert_scale.
  virtual void route(const float* logits, int64_t rows, int64_t experts, int k, const Vector& per_expert_scale, int32_t* ids,
                     float* weights) = 0;
  // m[r] = Σ_j weights[r,j] · expert_{ids[r,j]}(x[r]) in the order of ids; expert_e(t) = down(gelu(gate·t) ⊙ up·t).
  virtual void experts(const Act& x, const ExpertWeights& w, const int32_t* ids, const float* weights, int k, float* m) = 0;
  // out = (r + rms_w(rms_w(d; dense) + rms_w(m; expert); post)) · scalars[kind[row]]; out may be r.
  struct JoinNorms {
    Vector dense, expert, post;
    float eps = kNormEpsilonDefault;
    float scalars[2] = {1.0f, 1.0f};  // encoder, decoder
  };
  virtual void join(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const JoinNorms& norms,
                    const uint8_t* kind, float* out) = 0;

  // ---- head
  // z = cap · tanh(z / cap), in place.
  virtual void soft_cap(float* z, int64_t count, float cap) = 0;
  // g[r] = scale · Σ_v softmax(z[r])_v · table[v], z [R, V]; the probabilities are rounded to the activation precision.
  virtual void soft_embed(const float* z, int64_t rows, const Matrix& table, float scale, float* g) = 0;
};

}  // namespace dgem::ops
