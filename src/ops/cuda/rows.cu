// Kernels that work on whole rows: a block for each row (or a warp for each head or pair), sums in a fixed order.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"

namespace dgem::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__global__ void embed_kernel(const Matrix table, const int32_t* ids, float scale, float* x) {
  const int64_t row = blockIdx.x, id = ids[row];
  const float factor = factor_at(table, id);
  for (int64_t c = threadIdx.x; c < table.cols; c += kThreads)
    x[row * table.cols + c] = code_at(table, id, c) * factor * scale;
}

template <class T>
__global__ void gather_kernel(const T* from, const int32_t* index, int64_t row_size, T* to) {
  const int64_t row = blockIdx.x, source = index[row];
  for (int64_t c = threadIdx.x; c < row_size; c += kThreads) to[row * row_size + c] = from[source * row_size + c];
}

__global__ void rms_norm_kernel(const float* x, const Vector w, float eps, const Act out) {
  const float* row = x + blockIdx.x * out.cols;
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < out.cols; c += kThreads) sum += row[c] * row[c];
  const float factor = inverse_rms(block_sum<kThreads>(sum), out.cols, eps);
  for (int64_t c = threadIdx.x; c < out.cols; c += kThreads) {
    store(out.data, out.precision, blockIdx.x * out.cols + c, row[c] * factor * weight_at(w, c));
  }
}

__global__ void canvas_input_kernel(float* x, const int32_t* index, int64_t cols, const float* m, float eps) {
  float* row = x + index[blockIdx.x] * cols;
  const float* added = m ? m + blockIdx.x * cols : nullptr;
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    if (added) row[c] += added[c];
    sum += row[c] * row[c];
  }
  const float factor = inverse_rms(block_sum<kThreads>(sum), cols, eps);
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) row[c] *= factor;
}

__global__ void rope_angles_kernel(const int32_t* positions, int64_t count, const float* frequencies, int64_t angles,
                                   float* cos, float* sin) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  sincosf(static_cast<float>(positions[i / angles]) * frequencies[i % angles], &sin[i], &cos[i]);
}

// A warp for each head of each row. The elements that a lane writes are the ones it has read, so `out` may be x.
__global__ void head_norm_rope_kernel(const float* x, int64_t count, int heads, int head_dim, const Vector w, float eps,
                                      const float* cos, const float* sin, int64_t angles, void* out, Precision precision) {
  const int64_t head = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32, half = head_dim / 2;
  if (head >= count) return;
  const float* from = x + head * head_dim;
  float sum = 0.0f;
  for (int i = lane; i < half; i += 32) sum += from[i] * from[i] + from[i + half] * from[i + half];
  const bool has_last = head_dim % 2 == 1 && lane == 0;
  const float last = has_last ? from[head_dim - 1] : 0.0f;
  const float factor = inverse_rms(warp_sum(sum + last * last), head_dim, eps);
  const int64_t row = head / heads, start = head * head_dim;
  for (int i = lane; i < half; i += 32) {
    float a = from[i] * factor * weight_at(w, i);
    float b = from[i + half] * factor * weight_at(w, i + half);
    if (i < angles) {
      const float c = cos[row * angles + i], s = sin[row * angles + i];
      const float turned = a * c - b * s;
      b = b * c + a * s;
      a = turned;
    }
    store(out, precision, start + i, a);
    store(out, precision, start + i + half, b);
  }
  if (has_last) store(out, precision, start + head_dim - 1, last * factor * weight_at(w, head_dim - 1));
}

__global__ void soft_cap_kernel(float* z, int64_t count, float cap) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) z[i] = cap * tanhf(z[i] / cap);
}

constexpr int kSoftmaxThreads = 1024;

__global__ void softmax_kernel(const float* z, const Act p) {
  const float* row = z + blockIdx.x * p.cols;
  float largest = -INFINITY;
  for (int64_t c = threadIdx.x; c < p.cols; c += kSoftmaxThreads) largest = fmaxf(largest, row[c]);
  largest = block_reduce<kSoftmaxThreads>(
      largest, [](float v) { return warp_max(v); }, -INFINITY);
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < p.cols; c += kSoftmaxThreads) sum += expf(row[c] - largest);
  sum = block_sum<kSoftmaxThreads>(sum);
  for (int64_t c = threadIdx.x; c < p.cols; c += kSoftmaxThreads) {
    store(p.data, p.precision, blockIdx.x * p.cols + c, expf(row[c] - largest) / sum);
  }
}

__global__ void dot_rows_kernel(const Act x, const Matrix table, const int32_t* rows, const int32_t* ids, int64_t pairs,
                                float* y) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (i >= pairs) return;
  const int64_t row = rows[i], id = ids[i];
  float sum = 0.0f;
  for (int64_t k = threadIdx.x % 32; k < x.cols; k += 32) {
    sum = fmaf(load(x.data, x.precision, row * x.cols + k), code_at(table, id, k), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) y[i] = sum * factor_at(table, id);
}

unsigned blocks(int64_t count, int per_block) { return static_cast<unsigned>((count + per_block - 1) / per_block); }
unsigned blocks(int64_t rows) { return static_cast<unsigned>(rows); }

}  // namespace

cudaError_t probe_kernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, embed_kernel);
}

void embed(cudaStream_t stream, const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x) {
  embed_kernel<<<blocks(rows), kThreads, 0, stream>>>(table, ids, scale, x);
}

void gather(cudaStream_t stream, const void* from, const int32_t* index, int64_t rows, int64_t row_bytes, void* to) {
  const auto run = [&](auto unit) {
    using T = decltype(unit);
    gather_kernel<<<blocks(rows), kThreads, 0, stream>>>(static_cast<const T*>(from), index,
                                                         row_bytes / static_cast<int64_t>(sizeof(T)), static_cast<T*>(to));
  };
  const auto together =
      reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(row_bytes);
  if (together % 16 == 0) {
    run(uint4{});
  } else if (together % 4 == 0) {
    run(uint32_t{});
  } else {
    run(uint8_t{});
  }
}

void rms_norm(cudaStream_t stream, const float* x, const Vector& w, float eps, const Act& out) {
  rms_norm_kernel<<<blocks(out.rows), kThreads, 0, stream>>>(x, w, eps, out);
}

void canvas_input(cudaStream_t stream, float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m,
                  float eps) {
  canvas_input_kernel<<<blocks(rows), kThreads, 0, stream>>>(x, index, cols, m, eps);
}

void rope_angles(cudaStream_t stream, const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles,
                 float* cos, float* sin) {
  const int64_t count = rows * angles;
  rope_angles_kernel<<<blocks(count, kThreads), kThreads, 0, stream>>>(positions, count, frequencies, angles, cos, sin);
}

void head_norm_rope(cudaStream_t stream, const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps,
                    const float* cos, const float* sin, int64_t angles, void* out, Precision precision) {
  const int64_t count = rows * heads;
  head_norm_rope_kernel<<<blocks(count, kWarps), kThreads, 0, stream>>>(x, count, heads, head_dim, w, eps, cos, sin, angles,
                                                                        out, precision);
}

void soft_cap(cudaStream_t stream, float* z, int64_t count, float cap) {
  soft_cap_kernel<<<blocks(count, kThreads), kThreads, 0, stream>>>(z, count, cap);
}

void softmax(cudaStream_t stream, const float* z, const Act& p) {
  softmax_kernel<<<blocks(p.rows), kSoftmaxThreads, 0, stream>>>(z, p);
}

void dot_rows(cudaStream_t stream, const Act& x, const Matrix& table, const int32_t* rows, const int32_t* ids, int64_t pairs,
              float* y) {
  dot_rows_kernel<<<blocks(pairs, kWarps), kThreads, 0, stream>>>(x, table, rows, ids, pairs, y);
}

}  // namespace dgem::ops::cuda
