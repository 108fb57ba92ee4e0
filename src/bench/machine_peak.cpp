#include "bench/machine_peak.h"

#include "bench/measure.h"
#include "ops/cpu/peak.h"

#include <cstring>
#include <memory>
#include <vector>

namespace dgem::bench {
namespace {

constexpr int kRuns = 7;

double measure_flops(double (*loop)(int64_t), ThreadPool& pool) {
  const int threads = pool.size();
  std::vector<double> done(threads);
  const auto run = [&](int64_t iterations) { pool.run(threads, [&](int part, int) { done[part] = loop(iterations); }); };
  int64_t iterations = 1000;
  while (seconds_of([&] { run(iterations); }) < 0.06) iterations *= 2;
  const double seconds = best_seconds(kRuns, [&] { run(iterations); });
  double flops = 0;
  for (const double d : done) flops += d;
  return flops / seconds;
}

double measure_reading(ThreadPool& pool) {
  constexpr size_t kBytes = size_t{1} << 30, kPart = size_t{1} << 22;
  const std::unique_ptr<uint64_t[]> data(new uint64_t[kBytes / 8]);
  const int parts = static_cast<int>(kBytes / kPart);
  pool.run(parts, [&](int part, int) { std::memset(data.get() + part * (kPart / 8), part + 1, kPart); });
  std::vector<uint64_t> sums(parts);
  const double seconds = best_seconds(kRuns, [&] {
    pool.run(parts, [&](int part, int) {
      const uint64_t* p = data.get() + part * (kPart / 8);
      uint64_t sum[8] = {};
      for (size_t i = 0; i < kPart / 8; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
      }
      for (const uint64_t s : sum) sums[part] += s;
    });
  });
  return static_cast<double>(kBytes) / seconds;
}

}  // namespace

MachinePeak measure_peak(ops::cpu::Isa isa, ops::Precision precision, ThreadPool& pool) {
  const ops::cpu::PeakLoops loops = ops::cpu::peak_loops(isa);
  return {measure_flops(precision == ops::Precision::f32 ? loops.f32 : loops.bf16, pool), measure_reading(pool)};
}

}  // namespace dgem::bench
