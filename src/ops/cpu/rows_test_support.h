// What the tests of the row kernels share: random data, weights in every format, guarded outputs and comparisons.
#pragma once

#include "base/numeric.h"
#include "ops/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace dgem::ops::cpu::test {

constexpr unsigned kSeed = 20261;

struct FastSet {
  const char* name;
  const RowKernels* kernels;
};

// The instruction sets with row kernels of their own that this processor has.
inline std::vector<FastSet> fast_sets() {
  std::vector<FastSet> sets;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back({"avx2", &row_kernels_avx2()});
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi")) {
    sets.push_back({"avx512", &row_kernels_avx512()});
  }
  return sets;
}

class Random {
 public:
  explicit Random(unsigned seed = kSeed) : engine_(seed) {}
  float normal() { return normal_(engine_); }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  std::vector<float> normals(int64_t n, float scale = 1.0f) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = scale * normal();
    return v;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// `values` in an activation precision.
inline std::vector<std::byte> encode(const std::vector<float>& values, Precision precision) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(bytes_of(precision)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (precision == Precision::f32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const bf16 b = to_bf16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &b, 2);
    }
  }
  return bytes;
}

inline std::vector<float> decode(const void* data, Precision precision, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    if (precision == Precision::f32) {
      std::memcpy(&values[i], static_cast<const char*>(data) + 4 * i, 4);
    } else {
      bf16 b;
      std::memcpy(&b, static_cast<const char*>(data) + 2 * i, 2);
      values[i] = to_float(b);
    }
  }
  return values;
}

// A random weight matrix of any format with what it refers to. A vector is a matrix of one row.
struct Weights {
  std::vector<std::byte> data;
  std::vector<uint8_t> block_scales;
  std::vector<float> row_scales;
  Matrix matrix;

  Weights(Random& random, Format format, int64_t rows, int64_t cols) {
    matrix.format = format;
    matrix.rows = rows;
    matrix.cols = cols;
    data.resize(static_cast<size_t>(rows * matrix.row_bytes()));
    if (format == Format::f32) {
      data = encode(random.normals(rows * cols), Precision::f32);
    } else if (format == Format::bf16) {
      data = encode(random.normals(rows * cols), Precision::bf16);
    } else if (format == Format::f16) {
      for (size_t i = 0; i < data.size(); i += 2) {  // magnitudes in [2^-3, 2), and some subnormals
        const int64_t exponent = random.below(20) == 0 ? 0 : 12 + random.below(4);
        const auto h = static_cast<uint16_t>(random.below(2) << 15 | exponent << 10 | random.below(1024));
        std::memcpy(data.data() + i, &h, 2);
      }
    } else if (format == Format::fp8) {
      for (std::byte& b : data) b = static_cast<std::byte>(random.below(2) << 7 | random.below(0x7f));
      for (int64_t r = 0; r < rows; ++r) row_scales.push_back(0.01f * (1.0f + std::abs(random.normal())));
      matrix.row_scales = {row_scales.data(), Format::f32, rows};
    } else {
      for (std::byte& b : data) b = static_cast<std::byte>(random.below(256));
      block_scales.resize(static_cast<size_t>(rows * (cols / 16)));
      for (uint8_t& s : block_scales) s = static_cast<uint8_t>(0x28 + random.below(0x20));  // in [2^-2, 2^2)
      matrix.block_scales = block_scales.data();
      matrix.scale = 0.37f;
    }
    matrix.data = data.data();
  }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  Vector vector() const { return {matrix.data, matrix.format, matrix.cols}; }
};

// An output array at an odd place between guard bytes.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) : size_(static_cast<size_t>(bytes)), bytes_(size_ + 2 * kGuard, std::byte{0xa5}) {}
  void* data() { return bytes_.data() + kGuard; }
  // Bytes from the start of the array.
  void* at(int64_t offset) { return bytes_.data() + kGuard + offset; }
  size_t size() const { return size_; }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (bytes_[i] != std::byte{0xa5} || bytes_[kGuard + size_ + i] != std::byte{0xa5}) return false;
    }
    return true;
  }
  bool operator==(const Guarded& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr size_t kGuard = 132;  // a multiple of 4 but not of 8
  size_t size_;
  std::vector<std::byte> bytes_;
};

// ‖a - b‖ / ‖b‖; any difference from zero counts as infinite, and so does a NaN.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  if (difference == 0.0) return 0.0;
  const double error = std::sqrt(difference / norm);
  return std::isnan(error) ? HUGE_VAL : error;
}

// The error of a result in `precision` whose error before rounding is at most `f32_error`.
inline double tolerance(Precision precision, double f32_error) {
  return f32_error + (precision == Precision::bf16 ? 0x1.01p-8 : 0.0);
}

// An array that a kernel writes: elements of a row, and whether it is in the activation precision or float32 always.
struct Output {
  int64_t row;
  bool activation = false;
};

// Runs rows [r0, r1) of a kernel; out[i] is where the first of these rows begins.
using RunRows = std::function<void(const RowKernels&, Precision, int64_t r0, int64_t r1, const std::vector<void*>& out)>;

// Every fast set against the float32 reference, bf16 outputs the rounded float32 ones, nothing outside the outputs
// written, and the same bits when the rows go in one by one.
inline void check_rows(const std::string& what, int64_t rows, const std::vector<Output>& outputs, double f32_error,
                       const RunRows& run) {
  const auto run_parts = [&](const RowKernels& k, Precision precision, int64_t step) {
    std::vector<Guarded> arrays;
    const auto size = [&](const Output& o) { return o.row * (o.activation ? bytes_of(precision) : 4); };
    for (const Output& o : outputs) arrays.emplace_back(rows * size(o));
    for (int64_t r = 0; r < rows; r += step) {
      std::vector<void*> at;
      for (size_t i = 0; i < outputs.size(); ++i) at.push_back(arrays[i].at(r * size(outputs[i])));
      run(k, precision, r, std::min(rows, r + step), at);
    }
    return arrays;
  };
  std::vector<Guarded> expected = run_parts(row_kernels_reference(), Precision::f32, rows);
  for (const FastSet& set : fast_sets()) {
    std::vector<Guarded> unrounded = run_parts(*set.kernels, Precision::f32, rows);
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      std::vector<Guarded> got = run_parts(*set.kernels, precision, rows);
      const std::vector<Guarded> apart = run_parts(*set.kernels, precision, 1);
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::string where = what + " output " + std::to_string(i) + " " + set.name + " " + name_of(precision);
        const Precision own = outputs[i].activation ? precision : Precision::f32;
        const int64_t n = rows * outputs[i].row;
        EXPECT_LE(relative_error(decode(got[i].data(), own, n), decode(expected[i].data(), Precision::f32, n)),
                  tolerance(own, f32_error))
            << where;
        const auto rounded = encode(decode(unrounded[i].data(), Precision::f32, n), own);
        EXPECT_EQ(std::memcmp(got[i].data(), rounded.data(), rounded.size()), 0) << where << " is not rounded to nearest";
        EXPECT_TRUE(got[i].intact()) << where << " writes outside";
        EXPECT_TRUE(got[i] == apart[i]) << where << " depends on the other rows";
      }
    }
  }
}

}  // namespace dgem::ops::cpu::test
