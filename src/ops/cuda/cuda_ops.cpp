#include "ops/cuda/cuda_ops_impl.h"

#include <algorithm>

namespace dgem::ops::cuda {

CudaOps::CudaOps(int device, std::string name, Precision precision)
    : device_(device), name_(std::move(name)), precision_(precision), uploader_(stream_) {}

CudaOps::~CudaOps() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
}

void CudaOps::use() const { check(cudaSetDevice(device_), "cudaSetDevice"); }

void CudaOps::started(const char* kernel) const { check(cudaGetLastError(), kernel); }

void* CudaOps::scratch_bytes(Slot slot, size_t bytes) {
  Scratch& s = scratch_[slot];
  if (s.size < bytes) {
    s = {};  // freed, which waits for the work that uses it, before the larger one is asked for
    s.buffer = allocate_device(bytes);
    s.size = bytes;
  }
  return s.buffer.get();
}

// ---- memory

Buffer CudaOps::allocate(size_t bytes) {
  use();
  return allocate_device(bytes);
}

void CudaOps::upload(void* device, const void* host, size_t bytes) {
  use();
  uploader_.upload(device, host, bytes);
}

void CudaOps::download(void* host, const void* device, size_t bytes) {
  use();
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "a download");
  check(cudaStreamSynchronize(stream_), "the device's work");
}

void CudaOps::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  use();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "a copy");
}

Matrix CudaOps::place(const Matrix& host) {
  if (!host) return host;
  use();
  const auto put = [&](const void* from, int64_t bytes) {
    std::byte* to = arena_.take(static_cast<size_t>(bytes));
    uploader_.upload(to, from, static_cast<size_t>(bytes));
    return to;
  };
  Matrix m = host;
  m.data = put(host.data, host.rows * host.row_bytes());
  if (host.format == Format::nvfp4) {
    m.block_scales = reinterpret_cast<const uint8_t*>(put(host.block_scales, host.rows * (host.cols / 16)));
  }
  m.row_scales = place(host.row_scales);
  return m;
}

Vector CudaOps::place(const Vector& host) {
  if (host.data == nullptr) return host;
  use();
  Vector v = host;
  const size_t bytes = static_cast<size_t>(host.size) * (host.format == Format::f32 ? 4 : 2);
  std::byte* to = arena_.take(bytes);
  uploader_.upload(to, host.data, bytes);
  v.data = to;
  return v;
}

// ---- rows

void CudaOps::embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x) {
  if (rows == 0) return;
  use();
  cuda::embed(stream_, table, ids, rows, scale, x);
  started("embed");
}

void CudaOps::gather(const void* from, const int32_t* index, int64_t rows, int64_t row_bytes, void* to) {
  if (rows == 0) return;
  use();
  cuda::gather(stream_, from, index, rows, row_bytes, to);
  started("gather");
}

void CudaOps::rms_norm(const float* x, const Vector& w, float eps, Act out) {
  if (out.rows == 0) return;
  use();
  cuda::rms_norm(stream_, x, w, eps, out);
  started("rms_norm");
}

void CudaOps::rms_norm(const float* x, int64_t rows, int64_t cols, const Vector& w, float eps, float* out) {
  rms_norm(x, w, eps, Act{out, Precision::f32, rows, cols});
}

void CudaOps::canvas_input(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps) {
  if (rows == 0) return;
  use();
  cuda::canvas_input(stream_, x, index, rows, cols, m, eps);
  started("canvas_input");
}

void CudaOps::rope_angles(const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos,
                          float* sin) {
  if (rows * angles == 0) return;
  use();
  cuda::rope_angles(stream_, positions, rows, frequencies, angles, cos, sin);
  started("rope_angles");
}

void CudaOps::head_norm_rope(const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps,
                             const float* cos, const float* sin, int64_t angles, void* out, Precision out_precision) {
  if (rows == 0) return;
  use();
  cuda::head_norm_rope(stream_, x, rows, heads, head_dim, w, eps, cos, sin, angles, out, out_precision);
  started("head_norm_rope");
}

void CudaOps::soft_cap(float* z, int64_t count, float cap) {
  if (count == 0) return;
  use();
  cuda::soft_cap(stream_, z, count, cap);
  started("soft_cap");
}

// ---- joints

void CudaOps::branch(const float* x, const float* a, int64_t rows, int64_t cols, const BranchNorms& norms, float* r,
                     Act dense_in, Act expert_in, float* router_in) {
  if (rows == 0) return;
  use();
  cuda::branch(stream_, x, a, rows, cols, {norms.post, norms.dense, norms.expert, norms.router_scale, norms.eps}, r,
               dense_in, expert_in, router_in);
  started("branch");
}

void CudaOps::route(const float* logits, int64_t rows, int64_t experts, int k, const Vector& per_expert_scale, int32_t* ids,
                    float* weights) {
  DGEM_CHECK(k >= 1 && k <= experts);
  if (rows == 0) return;
  use();
  cuda::route(stream_, logits, rows, static_cast<int>(experts), k, per_expert_scale, ids, weights);
  started("route");
}

void CudaOps::join(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const JoinNorms& norms,
                   const uint8_t* kind, float* out) {
  if (rows == 0) return;
  use();
  cuda::join(stream_, r, d, m, rows, cols,
             {norms.dense, norms.expert, norms.post, norms.eps, {norms.scalars[0], norms.scalars[1]}}, kind, out);
  started("join");
}

// ---- attention

void CudaOps::attention(const AttentionShape& shape, const float* q, std::span<const QueryGroup> groups,
                        std::span<const KeyRun> runs, Act out) {
  DGEM_CHECK(shape.kv_heads > 0 && shape.q_heads % shape.kv_heads == 0);
  DGEM_CHECK(shape.head_dim > 0 && shape.head_dim <= 512, "head_dim {}", shape.head_dim);
  const int heads = shape.q_heads / shape.kv_heads;
  std::vector<AttentionTile> tiles;
  // The last rows of a prompt see the most keys: begin with them.
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const int vectors = group->rows * heads;
    for (int first = (vectors - 1) / kTileVectors * kTileVectors; first >= 0 && vectors > 0; first -= kTileVectors) {
      tiles.push_back({group->row, first, std::min(kTileVectors, vectors - first), group->canvas ? 1 : 0, group->position,
                       group->first_key, group->end_key, group->run, group->runs});
    }
  }
  if (tiles.empty()) return;
  std::vector<AttentionRun> on_device;
  for (const KeyRun& run : runs) on_device.push_back({run.k, run.v, run.position, run.count});
  const auto count = static_cast<int64_t>(tiles.size());
  auto* device_tiles = scratch<AttentionTile>(kAttentionTiles, count);
  auto* device_runs = scratch<AttentionRun>(kAttentionRuns, static_cast<int64_t>(runs.size()));
  upload(device_tiles, tiles.data(), tiles.size() * sizeof(AttentionTile));
  upload(device_runs, on_device.data(), on_device.size() * sizeof(AttentionRun));
  cuda::attention(stream_, {shape.q_heads, shape.kv_heads, shape.head_dim, shape.window, q, device_tiles, count, device_runs,
                            precision_, out});
  started("attention");
}

}  // namespace dgem::ops::cuda
