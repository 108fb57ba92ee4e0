// The layer's joints: residual, norms, router, and the order of rows for the experts.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"

namespace dgem::ops::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void branch_kernel(const float* x, const float* a, int64_t cols, const BranchWeights w, float* r,
                              const Act dense_in, const Act expert_in, float* router_in) {
  const int64_t start = blockIdx.x * cols;
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) sum += a[start + c] * a[start + c];
  const float a_factor = inverse_rms(block_sum<kThreads>(sum), cols, w.eps);
  sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    const float v = x[start + c] + a[start + c] * a_factor * weight_at(w.post, c);
    r[start + c] = v;
    sum += v * v;
  }
  const float r_factor = inverse_rms(block_sum<kThreads>(sum), cols, w.eps);
  const float router_factor = 1.0f / sqrtf(static_cast<float>(cols));
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    const float normed = r[start + c] * r_factor;
    store(dense_in.data, dense_in.precision, start + c, normed * weight_at(w.dense, c));
    store(expert_in.data, expert_in.precision, start + c, normed * weight_at(w.expert, c));
    router_in[start + c] = normed * weight_at(w.router_scale, c) * router_factor;
  }
}

__global__ void join_kernel(const float* r, const float* d, const float* m, int64_t cols, const JoinWeights w,
                            const uint8_t* kind, float* out) {
  const int64_t start = blockIdx.x * cols;
  float d_sum = 0.0f, m_sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    d_sum += d[start + c] * d[start + c];
    m_sum += m[start + c] * m[start + c];
  }
  const float d_factor = inverse_rms(block_sum<kThreads>(d_sum), cols, w.eps);
  const float m_factor = inverse_rms(block_sum<kThreads>(m_sum), cols, w.eps);
  const auto both = [&](int64_t c) {
    return d[start + c] * d_factor * weight_at(w.dense, c) + m[start + c] * m_factor * weight_at(w.expert, c);
  };
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) sum += both(c) * both(c);
  const float factor = inverse_rms(block_sum<kThreads>(sum), cols, w.eps);
  const float scalar = w.scalars[kind[blockIdx.x]];
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    out[start + c] = (r[start + c] + both(c) * factor * weight_at(w.post, c)) * scalar;
  }
}

// A logit and its expert, ordered: larger logits first, of equal ones the lower index. NaN counts as -infinity.
struct Candidate {
  float logit;
  int expert;
  __device__ bool before(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && expert < other.expert);
  }
};
constexpr int kNone = 0x7fffffff;

// A warp for each row. Finds the best, then the best behind that one, and so on; then puts the ids in order.
__global__ void route_kernel(const float* logits, int64_t rows, int experts, int k, const Vector per_expert_scale,
                             int32_t* ids, float* weights) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* z = logits + row * experts;
  Candidate last{INFINITY, -1};
  float largest = 0.0f;
  for (int j = 0; j < k; ++j) {
    Candidate best{-INFINITY, kNone};
    for (int e = lane; e < experts; e += 32) {
      const Candidate c{isnan(z[e]) ? -INFINITY : z[e], e};
      if (last.before(c) && c.before(best)) best = c;
    }
    for (int d = 16; d > 0; d /= 2) {
      const Candidate other{__shfl_xor_sync(~0u, best.logit, d), __shfl_xor_sync(~0u, best.expert, d)};
      if (other.before(best)) best = other;
    }
    last = best;
    if (j == 0) largest = best.logit;
    if (lane == 0) {  // insertion keeps the ids ascending
      int at = j;
      for (; at > 0 && ids[row * k + at - 1] > best.expert; --at) ids[row * k + at] = ids[row * k + at - 1];
      ids[row * k + at] = best.expert;
    }
  }
  if (lane != 0) return;
  float sum = 0.0f;
  for (int j = 0; j < k; ++j) sum += expf(z[ids[row * k + j]] - largest);
  for (int j = 0; j < k; ++j) {
    const int32_t id = ids[row * k + j];
    weights[row * k + j] = expf(z[id] - largest) / sum * weight_at(per_expert_scale, id);
  }
}

// ---- the order of rows for the experts: a block for each expert counts its pairs, one thread lays the experts out,
// and a block for each expert puts its pairs in their places.
__global__ void count_kernel(const int32_t* ids, int64_t places, int32_t* counts) {
  int count = 0;
  for (int64_t first = 0; first < places; first += kThreads) {
    const int64_t i = first + threadIdx.x;
    count += __syncthreads_count(i < places && ids[i] == static_cast<int32_t>(blockIdx.x));
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

__global__ void lay_out_kernel(const int32_t* counts, int experts, int64_t max_count, int32_t* first, ExpertTile* tiles) {
  __shared__ int32_t count[kThreads], place[kThreads], tile[kThreads];
  __shared__ int32_t places, used;  // so far
  if (threadIdx.x == 0) places = used = 0;
  for (int e0 = 0; e0 < experts; e0 += kThreads) {
    const int e = e0 + threadIdx.x;
    count[threadIdx.x] = e < experts ? counts[e] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < kThreads; ++i) {
        place[i] = places;
        tile[i] = used;
        places += count[i];
        used += (count[i] + kTileRows - 1) / kTileRows;
      }
    }
    __syncthreads();
    if (e < experts) {
      first[e] = place[threadIdx.x];
      int32_t t = tile[threadIdx.x];
      for (int32_t done = 0; done < count[threadIdx.x]; done += kTileRows) {
        tiles[t++] = {e, place[threadIdx.x] + done, min(count[threadIdx.x] - done, kTileRows)};
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) first[experts] = places;
  for (int64_t t = used + static_cast<int64_t>(threadIdx.x); t < max_count; t += kThreads) tiles[t] = {0, 0, 0};
}

__global__ void place_kernel(const int32_t* ids, int64_t places, int k, const int32_t* first, int32_t* row_of,
                             int32_t* place_of) {
  __shared__ int warp_counts[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t next = first[blockIdx.x];
  for (int64_t start = 0; start < places; start += kThreads) {
    const int64_t i = start + threadIdx.x;
    const bool mine = i < places && ids[i] == static_cast<int32_t>(blockIdx.x);
    const unsigned found = __ballot_sync(~0u, mine);
    if (lane == 0) warp_counts[warp] = __popc(found);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) before += warp_counts[w];
      all += warp_counts[w];
    }
    if (mine) {
      const int32_t place = next + before + __popc(found & ((1u << lane) - 1u));
      row_of[place] = static_cast<int32_t>(i / k);
      place_of[i] = place;
    }
    next += all;
    __syncthreads();
  }
}

__global__ void combine_kernel(const float* y, const int32_t* place_of, const float* weights, int k, int64_t cols,
                               float* m) {
  const int64_t row = blockIdx.x;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    float sum = 0.0f;
    for (int j = 0; j < k; ++j) sum = fmaf(weights[row * k + j], y[place_of[row * k + j] * cols + c], sum);
    m[row * cols + c] = sum;
  }
}

}  // namespace

void branch(cudaStream_t stream, const float* x, const float* a, int64_t rows, int64_t cols, const BranchWeights& w,
            float* r, const Act& dense_in, const Act& expert_in, float* router_in) {
  branch_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(x, a, cols, w, r, dense_in, expert_in, router_in);
}

void join(cudaStream_t stream, const float* r, const float* d, const float* m, int64_t rows, int64_t cols,
          const JoinWeights& w, const uint8_t* kind, float* out) {
  join_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(r, d, m, cols, w, kind, out);
}

void route(cudaStream_t stream, const float* logits, int64_t rows, int experts, int k, const Vector& per_expert_scale,
           int32_t* ids, float* weights) {
  const auto blocks = static_cast<unsigned>((rows + kThreads / 32 - 1) / (kThreads / 32));
  route_kernel<<<blocks, kThreads, 0, stream>>>(logits, rows, experts, k, per_expert_scale, ids, weights);
}

void plan_experts(cudaStream_t stream, const int32_t* ids, int64_t rows, int k, int experts, int32_t* counts, int32_t* first,
                  int32_t* row_of, int32_t* place_of, ExpertTile* tiles) {
  const int64_t places = rows * k;
  count_kernel<<<experts, kThreads, 0, stream>>>(ids, places, counts);
  lay_out_kernel<<<1, kThreads, 0, stream>>>(counts, experts, max_tiles(places, experts), first, tiles);
  place_kernel<<<experts, kThreads, 0, stream>>>(ids, places, k, first, row_of, place_of);
}

void combine(cudaStream_t stream, const float* y, const int32_t* place_of, const float* weights, int k, int64_t rows,
             int64_t cols, float* m) {
  combine_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(y, place_of, weights, k, cols, m);
}

}  // namespace dgem::ops::cuda
