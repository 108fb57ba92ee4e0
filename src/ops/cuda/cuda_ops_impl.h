// The CUDA device: checks shapes, keeps scratch memory, and starts the kernels on one stream.
#pragma once

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/memory.h"

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace dgem::ops::cuda {

// A stream that ends with its owner.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: implicit on purpose

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaOps final : public Ops {
 public:
  // The device must be the current one. Throws Fault.
  CudaOps(int device, std::string name, Precision precision);
  ~CudaOps() override;

  std::string name() const override { return name_; }
  Precision precision() const override { return precision_; }

  Buffer allocate(size_t bytes) override;
  void upload(void* device, const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  Matrix place(const Matrix& host) override;
  Vector place(const Vector& host) override;

  void embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x) override;
  void gather(const void* from, const int32_t* index, int64_t rows, int64_t row_bytes, void* to) override;
  void rms_norm(const float* x, const Vector& w, float eps, Act out) override;
  void rms_norm(const float* x, int64_t rows, int64_t cols, const Vector& w, float eps, float* out) override;
  void canvas_input(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps) override;
  void linear(const Act& x, std::span<const Matrix> weights, std::span<float* const> y) override;
  void linear_f32(const float* x, int64_t rows, const Matrix& w, float* y) override;
  void gated(const Act& x, const Matrix& gate, const Matrix& up, Act h) override;
  void dot_rows(const Act& x, const Matrix& table, const int32_t* rows, const int32_t* ids, int64_t pairs,
                float* y) override;
  void rope_angles(const int32_t* positions, int64_t rows, const float* frequencies, int64_t angles, float* cos,
                   float* sin) override;
  void head_norm_rope(const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps, const float* cos,
                      const float* sin, int64_t angles, void* out, Precision out_precision) override;
  void attention(const AttentionShape& shape, const float* q, std::span<const QueryGroup> groups,
                 std::span<const KeyRun> runs, Act out) override;
  void branch(const float* x, const float* a, int64_t rows, int64_t cols, const BranchNorms& norms, float* r, Act dense_in,
              Act expert_in, float* router_in) override;
  void route(const float* logits, int64_t rows, int64_t experts, int k, const Vector& per_expert_scale, int32_t* ids,
             float* weights) override;
  void experts(const Act& x, const ExpertWeights& w, const int32_t* ids, const float* weights, int k, float* m) override;
  void join(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const JoinNorms& norms,
            const uint8_t* kind, float* out) override;
  void soft_cap(float* z, int64_t count, float cap) override;
  void soft_embed(const float* z, int64_t rows, const Matrix& table, float scale, float* g) override;

 private:
  // Scratch memory by use; grows and is kept. What is in it may be overwritten by work that is started later.
  enum Slot {
    kProbabilities,
    kParts,
    kCounts,
    kFirst,
    kRowOf,
    kPlaceOf,
    kTiles,
    kExpertHidden,
    kExpertOut,
    kAttentionTiles,
    kAttentionRuns,
    kSlots
  };
  template <class T>
  T* scratch(Slot slot, int64_t count) {
    return static_cast<T*>(scratch_bytes(slot, static_cast<size_t>(count) * sizeof(T)));
  }
  void* scratch_bytes(Slot slot, size_t bytes);

  // The matrices of a list of experts as an array on the device, uploaded when they are first seen.
  struct ExpertTable {
    std::vector<Matrix> host;
    Buffer device;
    bool uniform = false;  // all have one format
  };
  const ExpertTable& table_of(std::span<const Matrix> matrices);

  void use() const;                        // makes the device the current one of this thread
  void started(const char* kernel) const;  // throws if the kernel could not be started
  void multiply(const Product& product, bool uniform = true);

  const int device_;
  const std::string name_;
  const Precision precision_;
  Stream stream_;
  Uploader uploader_;
  Arena arena_;
  struct Scratch {
    Buffer buffer;
    size_t size = 0;
  };
  std::array<Scratch, kSlots> scratch_;
  std::unordered_map<const Matrix*, ExpertTable> expert_tables_;
};

}  // namespace dgem::ops::cuda
