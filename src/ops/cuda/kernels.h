// The kernels as host functions that start them on a stream. All pointers are device memory unless said otherwise; sizes
// are checked by the caller, errors are left to cudaGetLastError. What each function computes is said in ops.h.
#pragma once

#include "ops/views.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dgem::ops::cuda {

// ---- rows.cu
// Whether this build has code for the current device.
cudaError_t probe_kernels();
void embed(cudaStream_t, const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x);
void gather(cudaStream_t, const void* from, const int32_t* index, int64_t rows, int64_t row_bytes, void* to);
void rms_norm(cudaStream_t, const float* x, const Vector& w, float eps, const Act& out);
void canvas_input(cudaStream_t, float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps);
void rope_angles(cudaStream_t, const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos,
                 float* sin);
void head_norm_rope(cudaStream_t, const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps,
                    const float* cos, const float* sin, int64_t angles, void* out, Precision precision);
void soft_cap(cudaStream_t, float* z, int64_t count, float cap);
void softmax(cudaStream_t, const float* z, const Act& p);
void dot_rows(cudaStream_t, const Act& x, const Matrix& table, const int32_t* rows, const int32_t* ids, int64_t pairs,
              float* y);

// ---- joints.cu
struct BranchWeights {
  Vector post, dense, expert, router_scale;
  float eps;
};
struct JoinWeights {
  Vector dense, expert, post;
  float eps;
  float scalars[2];
};
void branch(cudaStream_t, const float* x, const float* a, int64_t rows, int64_t cols, const BranchWeights& w, float* r,
            const Act& dense_in, const Act& expert_in, float* router_in);
void join(cudaStream_t, const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const JoinWeights& w,
          const uint8_t* kind, float* out);
void route(cudaStream_t, const float* logits, int64_t rows, int experts, int k, const Vector& per_expert_scale, int32_t* ids,
           float* weights);

// Rows of a grouped product, sorted by expert: places [begin, begin + rows) belong to `expert`. A tile has at most
// kTileRows of them; tiles behind the last one in use have rows == 0.
constexpr int kTileRows = 64;
struct ExpertTile {
  int32_t expert, begin, rows;
};
// Sorts the (row, j) pairs by expert, stably. counts [experts] and first [experts + 1] are scratch; row_of [rows · k]
// tells the row of a place, place_of [rows · k] the place of pair r · k + j; tiles [max_tiles(rows · k, experts)].
inline int64_t max_tiles(int64_t places, int64_t experts) {
  const int64_t used = places < experts ? places : experts;  // experts that can have rows
  return (places - used) / kTileRows + used;
}
void plan_experts(cudaStream_t, const int32_t* ids, int64_t rows, int k, int experts, int32_t* counts, int32_t* first,
                  int32_t* row_of, int32_t* place_of, ExpertTile* tiles);
// m[r] = Σ_j weights[r,j] · y[place_of[r,j]], in the order of j.
void combine(cudaStream_t, const float* y, const int32_t* place_of, const float* weights, int k, int64_t rows, int64_t cols,
             float* m);

// ---- gemm_tensor.cu, gemm_narrow.cu, gemm_plain.cu: y = x · Wᵀ with one order of summation for each shape of W,
// whatever the rows beside. Activations in bf16 go through the tensor cores where the weights are exact in bf16 up to a
// scale and their rows are made of whole groups of 16; all else is multiplied in float32.
struct Product {
  Act x;                               // its rows are those of the product; grouped, rows of x are taken by row_index
  const int32_t* row_index = nullptr;  // row m of the product reads row row_index[m] of x
  Matrix w;                            // or, grouped, the first of w_table, which has the shape and format of all
  Matrix gate_w;                       // set: a gated product, act_out = gelu(x · gate_wᵀ) ⊙ (x · wᵀ)
  float* y = nullptr;                  // [rows, w.rows]
  Act act_out;                         // in place of y, of gated products
  const ExpertTile* tiles = nullptr;   // grouped: rows are places, each tile's are multiplied by its expert's matrix
  int64_t tile_count = 0;
  const Matrix* w_table = nullptr;     // grouped: one matrix per expert
  const Matrix* gate_table = nullptr;  // grouped and gated
  bool transposed = false;             // x · W, W [x.cols, n]: the product over the rows of W; into `partial`
  float* partial = nullptr;            // sums of the parts, [transposed_parts(W.rows), rows, n]
};
bool tensor_core_shape(const Product& p);
void tensor_product(cudaStream_t, const Product& p);
bool narrow_shape(const Product& p);  // float32 rows, few outputs
void narrow_product(cudaStream_t, const Product& p);
void plain_product(cudaStream_t, const Product& p);
// A transposed product is summed in parts over the rows of W, which are added in order.
constexpr int64_t kPartRows = 8192;
inline int64_t transposed_parts(int64_t w_rows) { return (w_rows + kPartRows - 1) / kPartRows; }
void add_parts(cudaStream_t, const float* partial, int64_t parts, int64_t count, float scale, float* y);

// ---- attention.cu
struct AttentionRun {
  const void *k, *v;
  int32_t position, count;
};
// Up to kTileVectors query vectors of one group and key head. Vector i of a group is head i % h of row i / h, with h
// query heads for each key head.
constexpr int kTileVectors = 16;
struct AttentionTile {
  int32_t row;               // the group's first row in q
  int32_t first, vectors;    // vectors of the group
  int32_t canvas, position;  // see QueryGroup
  int32_t first_key, end_key;
  int32_t run, runs;
};
struct AttentionCall {
  int q_heads, kv_heads, head_dim, window;
  const float* q;
  const AttentionTile* tiles;
  int64_t tile_count;
  const AttentionRun* runs;
  Precision kv_precision;
  Act out;
};
void attention(cudaStream_t, const AttentionCall& call);

}  // namespace dgem::ops::cuda
