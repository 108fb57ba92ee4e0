// The routed experts: rows sorted by expert, two grouped products, then each row's weighted sum.
#include "ops/cpu/cpu_ops_impl.h"

#include <algorithm>

namespace dgem::ops::cpu {
namespace {

enum SharedSlot { kHidden = 2, kOutput = 3 };
enum ThreadSlot { kGate = 4, kUp = 5, kPackedRows = 6 };

char* offset(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }
const char* offset(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }

}  // namespace

// Where each row goes. Experts are taken in descending order of their rows, so that the long parts start first.
struct CpuOps::ExpertPlan {
  std::vector<int32_t> first;  // per expert: its first place among the sorted rows; one more at the end
  std::vector<int32_t> row;    // per place: the row of x
  std::vector<int32_t> place;  // per (row, j)
  std::vector<int> order;      // experts that have rows
  int slices = 1;              // parts that an expert's output columns are cut into

  ExpertPlan(const int32_t* ids, int64_t rows, int k, int64_t experts, int threads) : first(experts + 1), place(rows * k) {
    for (int64_t i = 0; i < rows * k; ++i) ++first[ids[i] + 1];
    for (int e = 0; e < experts; ++e) {
      if (first[e + 1] > 0) order.push_back(e);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return first[a + 1] > first[b + 1]; });
    for (int64_t e = 0; e < experts; ++e) first[e + 1] += first[e];
    std::vector<int32_t> next(first.begin(), first.end() - 1);
    row.resize(rows * k);
    for (int64_t i = 0; i < rows * k; ++i) {
      place[i] = next[ids[i]]++;
      row[place[i]] = static_cast<int32_t>(i / k);
    }
    const int wanted = 12 * threads;
    slices =
        std::clamp((wanted + static_cast<int>(order.size()) - 1) / std::max<int>(1, static_cast<int>(order.size())), 1, 8);
  }

  struct Part {
    int expert;
    int64_t n0, n1;  // output columns; whole tiles of 32
    int64_t begin, rows;
  };
  int parts() const { return static_cast<int>(order.size()) * slices; }
  Part at(int part, int64_t cols) const {
    const int e = order[part / slices];
    const int64_t tiles = (cols + 31) / 32, s = part % slices;
    const auto edge = [&](int64_t i) { return std::min(cols, tiles * i / slices * 32); };
    return {e, edge(s), edge(s + 1), first[e], first[e + 1] - first[e]};
  }
};

void CpuOps::run_gate_up(const ExpertPlan& plan, const Act& x, const ExpertWeights& w, void* h) {
  const GemmKernels& g = gemm(x.precision);
  const int64_t cols = w.gate[0].rows;
  const int64_t size = bytes_of(x.precision);
  pool_.run(plan.parts(), [&](int i, int thread) {
    const auto part = plan.at(i, cols);
    const int64_t n = part.n1 - part.n0;
    if (n == 0) return;
    Scratch& scratch = scratch_[thread];
    const Rows rows{x.data, x.precision, x.cols * size, plan.row.data() + part.begin, part.rows, x.cols};
    const size_t bytes = g.packed_bytes(part.rows, x.cols);
    char* packed = bytes > 0 ? scratch.get<char>(kPackedRows, bytes) : nullptr;
    for (int64_t t = 0; packed != nullptr && t < (part.rows + 15) / 16; ++t) g.pack(rows, t, packed);
    float* gate = scratch.get<float>(kGate, part.rows * n);
    float* up = scratch.get<float>(kUp, part.rows * n);
    g.linear(w.gate[part.expert], nullptr, part.n0, part.n1, rows, packed, gate, n, scratch);
    g.linear(w.up[part.expert], nullptr, part.n0, part.n1, rows, packed, up, n, scratch);
    for (int64_t r = 0; r < part.rows; ++r) {
      void* to = offset(h, ((part.begin + r) * cols + part.n0) * size);
      kernels_.rows.gelu_mul(gate + r * n, up + r * n, n, to, x.precision);
    }
  });
}

void CpuOps::run_down(const ExpertPlan& plan, const ExpertWeights& w, const void* h, Precision precision, float* y) {
  const GemmKernels& g = gemm(precision);
  const int64_t cols = w.down[0].rows, inner = w.down[0].cols;
  const int64_t row_bytes = inner * bytes_of(precision);
  pool_.run(plan.parts(), [&](int i, int thread) {
    const auto part = plan.at(i, cols);
    if (part.n0 == part.n1) return;
    Scratch& scratch = scratch_[thread];
    const Rows rows{offset(h, part.begin * row_bytes), precision, row_bytes, nullptr, part.rows, inner};
    const size_t bytes = g.packed_bytes(part.rows, inner);
    char* packed = bytes > 0 ? scratch.get<char>(kPackedRows, bytes) : nullptr;
    for (int64_t t = 0; packed != nullptr && t < (part.rows + 15) / 16; ++t) g.pack(rows, t, packed);
    g.linear(w.down[part.expert], nullptr, part.n0, part.n1, rows, packed, y + part.begin * cols + part.n0, cols, scratch);
  });
}

void CpuOps::experts(const Act& x, const ExpertWeights& w, const int32_t* ids, const float* weights, int k, float* m) {
  const int64_t hidden = x.cols, places = x.rows * k;
  const ExpertPlan plan(ids, x.rows, k, static_cast<int64_t>(w.gate.size()), pool_.size());
  void* h = shared_.get<char>(kHidden, places * w.gate[0].rows * bytes_of(x.precision));
  float* y = shared_.get<float>(kOutput, places * hidden);
  run_gate_up(plan, x, w, h);
  run_down(plan, w, h, x.precision, y);
  over(x.rows, 4, [&](int64_t r0, int64_t r1, int) {
    kernels_.rows.combine(y, plan.place.data() + r0 * k, weights + r0 * k, k, r1 - r0, hidden, m + r0 * hidden);
  });
}

}  // namespace dgem::ops::cpu
