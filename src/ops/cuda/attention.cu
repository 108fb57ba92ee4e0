// Attention over ragged runs of keys: a block for each tile of query vectors and key head. Keys are taken in blocks that
// begin at multiples of kKeys, so that the sums do not depend on how they are cut into runs; a block of keys that a row
// does not see leaves it untouched. Sums in float32.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/ptx/mma.cuh"

namespace dgem::ops::cuda {
namespace {

constexpr int kKeys = 32, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kPerWarp = kTileVectors / kWarps;  // query vectors of a warp
static_assert(kKeys == 32, "a lane for each key of a block");

// Four elements of keys or values in shared memory.
__device__ __forceinline__ float4 four(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ __forceinline__ float4 four(const __nv_bfloat16* p) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
                     __uint_as_float(v.y & 0xffff0000u));
}

struct Range {
  int32_t begin, end;
};
// The keys that row `row` of the group sees.
__device__ Range seen(const AttentionTile& t, int window, int32_t row) {
  if (t.canvas) return {t.first_key, t.end_key};
  const int32_t position = t.position + row;
  return {window > 0 ? max(0, position - window + 1) : 0, position + 1};
}

// Starts to bring rows of a block of keys (or values): to[j][d] for positions [first, first + kKeys), zero where there is
// no key. The row of each position, or null, is in `source`; `unread` is any global address.
template <class T>
__device__ void load_rows(const T* const* source, const void* unread, int head_dim, int stride, T* to) {
  // Whole 16-byte units where the rows are made of them; the rows begin at multiples of their size then.
  constexpr int kVector = 16 / sizeof(T);
  const bool vectors = head_dim % kVector == 0;
  const int step = vectors ? kVector : 1, per_row = stride / step;
#pragma unroll 4
  for (int i = threadIdx.x; i < kKeys * per_row; i += kThreads) {
    const int j = i / per_row, d = i % per_row * step;
    const T* from = source[j];
    const bool there = from != nullptr && d < head_dim;
    if (vectors) {
      ptx::copy_async(ptx::shared_address(to + j * stride + d), there ? from + d : unread, there);
    } else {
      to[j * stride + d] = there ? from[d] : T(0.0f);
    }
  }
  ptx::commit_copies();
}

// kChunks · 128 >= head_dim: each lane holds kChunks groups of four elements of an output vector.
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const AttentionCall call, int q_stride, int kv_stride, bool apart) {
  extern __shared__ __align__(16) uint8_t memory[];
  auto* q = reinterpret_cast<float*>(memory);                      // [kTileVectors][q_stride]
  auto* keys = reinterpret_cast<T*>(q + kTileVectors * q_stride);  // [kKeys][kv_stride]
  T* values = apart ? keys + kKeys * kv_stride : keys;             // or they take turns in one place
  __shared__ const T* k_source[kKeys];
  __shared__ const T* v_source[kKeys];
  __shared__ float p[kTileVectors][kKeys];

  const AttentionTile tile = call.tiles[blockIdx.x];
  const int heads = call.q_heads / call.kv_heads, kv_head = blockIdx.y, head_dim = call.head_dim;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // The element of q and out where vector i of the tile begins.
  const auto start = [&](int i) {
    const int vector = tile.first + i;
    return ((int64_t{tile.row} + vector / heads) * call.q_heads + kv_head * heads + vector % heads) * head_dim;
  };
  for (int i = threadIdx.x; i < kTileVectors * q_stride; i += kThreads) {
    const int vector = i / q_stride, d = i % q_stride;
    q[i] = vector < tile.vectors && d < head_dim ? call.q[start(vector) + d] : 0.0f;
  }
  Range range[kPerWarp];
  for (int i = 0; i < kPerWarp; ++i) range[i] = seen(tile, call.window, (tile.first + warp * kPerWarp + i) / heads);
  // The rows of a tile ascend: the first sees the first key, the last the last.
  const int32_t begin = seen(tile, call.window, tile.first / heads).begin;
  const int32_t end = seen(tile, call.window, (tile.first + tile.vectors - 1) / heads).end;

  float4 sums[kPerWarp][kChunks] = {};
  float largest[kPerWarp], total[kPerWarp] = {};
  for (float& l : largest) l = -INFINITY;

  for (int32_t first = begin / kKeys * kKeys; first < end; first += kKeys) {
    __syncthreads();
    if (threadIdx.x < kKeys) {
      const int32_t position = first + threadIdx.x;
      k_source[lane] = v_source[lane] = nullptr;
      for (int r = tile.run; r < tile.run + tile.runs; ++r) {
        const AttentionRun run = call.runs[r];
        if (position < run.position || position >= run.position + run.count) continue;
        const int64_t at = (int64_t{position - run.position} * call.kv_heads + kv_head) * head_dim;
        k_source[lane] = static_cast<const T*>(run.k) + at;
        v_source[lane] = static_cast<const T*>(run.v) + at;
      }
    }
    __syncthreads();
    load_rows(k_source, call.runs, head_dim, kv_stride, keys);
    if (apart) {
      load_rows(v_source, call.runs, head_dim, kv_stride, values);
      ptx::wait_for_copies<1>();
    } else {
      ptx::wait_for_copies<0>();
    }
    __syncthreads();
    // Scores: a lane for each key.
    float scores[kPerWarp] = {};
#pragma unroll 4
    for (int d = 0; d < q_stride; d += 4) {
      const float4 key = four(keys + lane * kv_stride + d);
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i) {
        const float4 query = four(q + (warp * kPerWarp + i) * q_stride + d);
        scores[i] = fmaf(query.w, key.w, fmaf(query.z, key.z, fmaf(query.y, key.y, fmaf(query.x, key.x, scores[i]))));
      }
    }
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      const int32_t position = first + lane;
      const bool visible = position >= range[i].begin && position < range[i].end;
      const float block_largest = warp_max(visible ? scores[i] : -INFINITY);
      float weight = 0.0f;
      if (block_largest > -INFINITY) {
        const float now = fmaxf(largest[i], block_largest);
        const float keep = expf(largest[i] - now);  // 0 at first
        weight = visible ? expf(scores[i] - now) : 0.0f;
        total[i] = total[i] * keep + warp_sum(weight);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          float4& s = sums[i][c];
          s = make_float4(s.x * keep, s.y * keep, s.z * keep, s.w * keep);
        }
        largest[i] = now;
      }
      p[warp * kPerWarp + i][lane] = weight;
    }
    if (!apart) {
      __syncthreads();
      load_rows(v_source, call.runs, head_dim, kv_stride, values);
    }
    ptx::wait_for_copies<0>();
    __syncthreads();
    // Values: a lane for each four elements of the output, keys in order.
#pragma unroll 2
    for (int j = 0; j < kKeys; ++j) {
      const int32_t position = first + j;
      float4 value[kChunks];
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int d = 4 * lane + 128 * c;
        value[c] = d < q_stride ? four(values + j * kv_stride + d) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i) {
        if (position < range[i].begin || position >= range[i].end) continue;
        const float weight = p[warp * kPerWarp + i][j];
#pragma unroll
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          float4& s = sums[i][c];
          s = make_float4(fmaf(weight, value[c].x, s.x), fmaf(weight, value[c].y, s.y), fmaf(weight, value[c].z, s.z),
                          fmaf(weight, value[c].w, s.w));
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) {
    const int vector = warp * kPerWarp + i;
    if (vector >= tile.vectors) continue;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const float4 s = sums[i][c];
      const float parts[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int d = 4 * lane + 128 * c + e;
        if (d < head_dim)
          store(call.out.data, call.out.precision, start(vector) + d, total[i] > 0.0f ? parts[e] / total[i] : 0.0f);
      }
    }
  }
}

template <class T, int kChunks>
void start(cudaStream_t stream, const AttentionCall& call) {
  const int q_stride = (call.head_dim + 3) / 4 * 4;
  const int kv_stride = (call.head_dim + 7) / 8 * 8 + 16 / static_cast<int>(sizeof(T));  // 16 bytes more: other banks
  const auto kernel = attention_kernel<T, kChunks>;
  // Room for keys and values at a time, if the device has it.
  int device = 0, most = 0;
  cudaFuncAttributes attributes{};
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaFuncGetAttributes(&attributes, kernel);
  const size_t tile = kKeys * kv_stride * sizeof(T), one = kTileVectors * q_stride * sizeof(float) + tile;
  const bool apart = one + tile + attributes.sharedSizeBytes <= static_cast<size_t>(most);
  const size_t bytes = apart ? one + tile : one;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  const dim3 grid(static_cast<unsigned>(call.tile_count), static_cast<unsigned>(call.kv_heads));
  kernel<<<grid, kThreads, bytes, stream>>>(call, q_stride, kv_stride, apart);
}

template <class T>
void start(cudaStream_t stream, const AttentionCall& call) {
  if (call.head_dim <= 128) return start<T, 1>(stream, call);
  if (call.head_dim <= 256) return start<T, 2>(stream, call);
  return start<T, 4>(stream, call);
}

}  // namespace

void attention(cudaStream_t stream, const AttentionCall& call) {
  if (call.kv_precision == Precision::f32) {
    start<float>(stream, call);
  } else {
    start<__nv_bfloat16>(stream, call);
  }
}

}  // namespace dgem::ops::cuda
