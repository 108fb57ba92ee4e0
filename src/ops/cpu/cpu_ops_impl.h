// The class behind make_cpu_ops: how each operation is cut into parts for the thread pool.
#pragma once

#include "base/thread_pool.h"
#include "ops/cpu/cpu_ops.h"

#include <algorithm>
#include <vector>

namespace dgem::ops::cpu {

class CpuOps final : public Ops {
 public:
  CpuOps(const Kernels& kernels, Precision precision, int threads);

  std::string name() const override;
  Precision precision() const override { return precision_; }

  Buffer allocate(size_t bytes) override;
  void upload(void* device, const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  Matrix place(const Matrix& host) override { return host; }
  Vector place(const Vector& host) override { return host; }

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
  const GemmKernels& gemm(Precision p) const { return p == Precision::f32 ? kernels_.gemm_f32 : kernels_.gemm_bf16; }
  static Rows rows_of(const Act& x) {
    return {x.data, x.precision, x.cols * bytes_of(x.precision), nullptr, x.rows, x.cols};
  }
  // The packed form of x in shared memory, made by all threads; nullptr if the kernels take rows as they are.
  const void* pack(const GemmKernels& gemm, const Rows& x);
  // Calls f(first, last, thread) on ranges of [0, count) that are at least `least` long.
  template <class F>
  void over(int64_t count, int64_t least, F&& f);

  struct ExpertPlan;
  void run_gate_up(const ExpertPlan& plan, const Act& x, const ExpertWeights& w, void* h);
  void run_down(const ExpertPlan& plan, const ExpertWeights& w, const void* h, Precision precision, float* y);

  Kernels kernels_;
  Precision precision_;
  ThreadPool pool_;
  std::vector<Scratch> scratch_;  // one per thread
  Scratch shared_;                // of the operation that runs
};

template <class F>
void CpuOps::over(int64_t count, int64_t least, F&& f) {
  const int64_t parts = std::clamp<int64_t>(count / std::max<int64_t>(least, 1), 1, int64_t{4} * pool_.size());
  pool_.run(static_cast<int>(parts), [&](int part, int thread) {
    const int64_t first = count * part / parts, last = count * (part + 1) / parts;
    if (first < last) f(first, last, thread);
  });
}

}  // namespace dgem::ops::cpu
