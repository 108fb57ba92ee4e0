// A device that measures itself: passes every operation on and adds up the time that each kind took.
#pragma once

#include "ops/ops.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace dgem::bench {

class TimedOps final : public ops::Ops {
 public:
  struct Spent {
    double seconds = 0;
    int64_t calls = 0;
  };

  explicit TimedOps(std::shared_ptr<ops::Ops> inner) : inner_(std::move(inner)) {}
  const std::map<std::string, Spent>& spent() const { return spent_; }
  void reset() { spent_.clear(); }

  std::string name() const override { return inner_->name(); }
  ops::Precision precision() const override { return inner_->precision(); }
  ops::Buffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  ops::Matrix place(const ops::Matrix& host) override { return inner_->place(host); }
  ops::Vector place(const ops::Vector& host) override { return inner_->place(host); }

  void upload(void* d, const void* h, size_t n) override {
    time("copies", [&] { inner_->upload(d, h, n); });
  }
  void download(void* h, const void* d, size_t n) override {
    time("copies", [&] { inner_->download(h, d, n); });
  }
  void copy(void* to, const void* from, size_t n) override {
    time("copies", [&] { inner_->copy(to, from, n); });
  }
  void embed(const ops::Matrix& t, const int32_t* ids, int64_t rows, float scale, float* x) override {
    time("embed", [&] { inner_->embed(t, ids, rows, scale, x); });
  }
  void gather(const void* from, const int32_t* index, int64_t rows, int64_t bytes, void* to) override {
    time("gather", [&] { inner_->gather(from, index, rows, bytes, to); });
  }
  void rms_norm(const float* x, const ops::Vector& w, float eps, ops::Act out) override {
    time("rms_norm", [&] { inner_->rms_norm(x, w, eps, out); });
  }
  void rms_norm(const float* x, int64_t rows, int64_t cols, const ops::Vector& w, float eps, float* out) override {
    time("rms_norm", [&] { inner_->rms_norm(x, rows, cols, w, eps, out); });
  }
  void canvas_input(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps) override {
    time("canvas_input", [&] { inner_->canvas_input(x, index, rows, cols, m, eps); });
  }
  void linear(const ops::Act& x, std::span<const ops::Matrix> w, std::span<float* const> y) override {
    time("linear", [&] { inner_->linear(x, w, y); });
  }
  void linear_f32(const float* x, int64_t rows, const ops::Matrix& w, float* y) override {
    time("router", [&] { inner_->linear_f32(x, rows, w, y); });
  }
  void gated(const ops::Act& x, const ops::Matrix& gate, const ops::Matrix& up, ops::Act h) override {
    time("gated", [&] { inner_->gated(x, gate, up, h); });
  }
  void dot_rows(const ops::Act& x, const ops::Matrix& t, const int32_t* rows, const int32_t* ids, int64_t n,
                float* y) override {
    time("dot_rows", [&] { inner_->dot_rows(x, t, rows, ids, n, y); });
  }
  void rope_angles(const int32_t* p, int64_t rows, const float* f, int64_t n, float* cos, float* sin) override {
    time("rope_angles", [&] { inner_->rope_angles(p, rows, f, n, cos, sin); });
  }
  void head_norm_rope(const float* x, int64_t rows, int heads, int dim, const ops::Vector& w, float eps, const float* cos,
                      const float* sin, int64_t n, void* out, ops::Precision p) override {
    time("head_norm_rope", [&] { inner_->head_norm_rope(x, rows, heads, dim, w, eps, cos, sin, n, out, p); });
  }
  void attention(const ops::AttentionShape& s, const float* q, std::span<const ops::QueryGroup> groups,
                 std::span<const ops::KeyRun> runs, ops::Act out) override {
    time("attention", [&] { inner_->attention(s, q, groups, runs, out); });
  }
  void branch(const float* x, const float* a, int64_t rows, int64_t cols, const BranchNorms& norms, float* r, ops::Act dense,
              ops::Act expert, float* router) override {
    time("branch", [&] { inner_->branch(x, a, rows, cols, norms, r, dense, expert, router); });
  }
  void route(const float* z, int64_t rows, int64_t experts, int k, const ops::Vector& scale, int32_t* ids,
             float* weights) override {
    time("route", [&] { inner_->route(z, rows, experts, k, scale, ids, weights); });
  }
  void experts(const ops::Act& x, const ops::ExpertWeights& w, const int32_t* ids, const float* weights, int k,
               float* m) override {
    time("experts", [&] { inner_->experts(x, w, ids, weights, k, m); });
  }
  void join(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const JoinNorms& norms,
            const uint8_t* kind, float* out) override {
    time("join", [&] { inner_->join(r, d, m, rows, cols, norms, kind, out); });
  }
  void soft_cap(float* z, int64_t n, float cap) override {
    time("soft_cap", [&] { inner_->soft_cap(z, n, cap); });
  }
  void soft_embed(const float* z, int64_t rows, const ops::Matrix& t, float scale, float* g) override {
    time("soft_embed", [&] { inner_->soft_embed(z, rows, t, scale, g); });
  }

 private:
  template <class F>
  void time(const char* kind, F&& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    Spent& s = spent_[kind];
    s.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ++s.calls;
  }

  std::shared_ptr<ops::Ops> inner_;
  std::map<std::string, Spent> spent_;
};

}  // namespace dgem::bench
