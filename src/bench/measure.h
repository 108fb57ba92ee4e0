// Timing: medians of repeated runs, since machines are shared and noisy.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace dgem::bench {

template <class F>
double seconds_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

template <class F>
double best_seconds(int runs, F&& f) {
  double best = seconds_of(f);
  for (int i = 1; i < runs; ++i) best = std::min(best, seconds_of(f));
  return best;
}

}  // namespace dgem::bench
