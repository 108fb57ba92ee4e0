// Every matrix product kernel against the plain reference over ragged sizes and all weight formats; and that a row's
// bits do not depend on what is computed beside it.
#include "base/numeric.h"
#include "ops/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace dgem::ops::cpu {
namespace {

constexpr Format kFormats[] = {Format::f32, Format::bf16, Format::f16, Format::fp8, Format::nvfp4};

struct Weight {
  std::vector<uint8_t> data, scales;
  std::vector<float> row_scales;
  Matrix view;
};

Weight random_weight(Format format, int64_t rows, int64_t cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Weight w;
  Matrix& m = w.view;
  m.format = format;
  m.rows = rows;
  m.cols = cols;
  w.data.resize(rows * m.row_bytes());
  for (size_t i = 0; i < w.data.size(); ++i) w.data[i] = static_cast<uint8_t>(random());
  if (format == Format::f32) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float f = normal(random);
      std::memcpy(&w.data[i * 4], &f, 4);
    }
  } else if (format == Format::bf16) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const bf16 f = to_bf16(normal(random));
      std::memcpy(&w.data[i * 2], &f, 2);
    }
  } else if (format == Format::f16) {
    // Any finite value below 2, subnormals included.
    for (int64_t i = 0; i < rows * cols; ++i) {
      const uint16_t f = static_cast<uint16_t>(random() & 0xbfffu);
      std::memcpy(&w.data[i * 2], &f, 2);
    }
  } else if (format == Format::fp8) {
    for (auto& byte : w.data) {
      if ((byte & 0x7f) == 0x7f) byte = 0x38;  // no NaN
    }
    for (int64_t i = 0; i < rows; ++i) w.row_scales.push_back(0.01f + 0.001f * static_cast<float>(i % 7));
    m.row_scales = {w.row_scales.data(), Format::f32, rows};
  } else {
    for (int64_t i = 0; i < rows * cols / 16; ++i) w.scales.push_back(static_cast<uint8_t>(random() % 0x7f));
    m.block_scales = w.scales.data();
    m.scale = 0.0123f;
  }
  m.data = w.data.data();
  return w;
}

struct Input {
  std::vector<uint8_t> data;
  Rows view;
};

Input random_input(Precision precision, int64_t rows, int64_t cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Input x;
  x.data.resize(rows * cols * bytes_of(precision));
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float f = normal(random);
    const bf16 h = to_bf16(f);
    if (precision == Precision::f32) {
      std::memcpy(&x.data[i * 4], &f, 4);
    } else {
      std::memcpy(&x.data[i * 2], &h, 2);
    }
  }
  x.view = {x.data.data(), precision, cols * bytes_of(precision), nullptr, rows, cols};
  return x;
}

std::vector<float> product(const GemmKernels& g, const Matrix& w, const int32_t* w_rows, int64_t n0, int64_t n1,
                           const Rows& x) {
  static Scratch scratch;
  const int64_t n = n1 - n0, ldy = n + 3;
  std::vector<char> packed(g.packed_bytes(x.rows, x.cols) + 64);
  char* aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
  if (packed.size() > 64) {
    for (int64_t t = 0; t < (x.rows + 15) / 16; ++t) g.pack(x, t, aligned);
  }
  std::vector<float> y(x.rows * ldy + 64, 12345.0f);
  g.linear(w, w_rows, n0, n1, x, aligned, y.data(), ldy, scratch);
  std::vector<float> out;
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t i = 0; i < ldy; ++i) {
      const float v = y[m * ldy + i];
      if (i < n) {
        out.push_back(v);
      } else {
        EXPECT_EQ(v, 12345.0f) << "written outside at row " << m << ", column " << i;
      }
    }
  }
  for (size_t i = x.rows * ldy; i < y.size(); ++i) EXPECT_EQ(y[i], 12345.0f) << "written behind the end";
  return out;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

struct Table {
  std::string name;
  const GemmKernels* kernels;
  Precision precision;
};

std::vector<Table> tables() {
  std::vector<Table> out;
  static std::vector<Kernels> all;
  all.reserve(8);
  for (const Isa isa : available()) {
    all.push_back(kernels_of(isa));
    out.push_back({std::string(name_of(isa)) + "/f32", &all.back().gemm_f32, Precision::f32});
    out.push_back({std::string(name_of(isa)) + "/bf16", &all.back().gemm_bf16, Precision::bf16});
  }
  return out;
}

int64_t legal_cols(Format format, int64_t cols) { return format == Format::nvfp4 ? (cols + 15) / 16 * 16 : cols; }

TEST(Gemm, EqualsTheReferenceOverRaggedSizes) {
  std::mt19937 random(7);
  const int64_t sizes[][3] = {{1, 1, 1},     {1, 5, 16},   {2, 3, 20},    {3, 17, 33},   {5, 31, 48},
                              {6, 4, 64},    {7, 33, 72},  {13, 40, 100}, {16, 16, 128}, {17, 50, 176},
                              {33, 65, 704}, {49, 32, 96}, {100, 7, 513}, {65, 130, 544}};
  for (const auto& [rows, out, inner] : sizes) {
    for (const Format format : kFormats) {
      const int64_t cols = legal_cols(format, inner);
      const Weight w = random_weight(format, out, cols, random);
      for (const Table& t : tables()) {
        const Input x = random_input(t.precision, rows, cols, random);
        const auto expected = product(gemm_f32_reference(), w.view, nullptr, 0, out, x.view);
        const auto got = product(*t.kernels, w.view, nullptr, 0, out, x.view);
        EXPECT_LT(relative_error(got, expected), 2e-6)
            << t.name << " " << name_of(format) << " " << rows << "x" << out << "x" << cols;
      }
    }
  }
}

TEST(Gemm, TakesTheWidestRealSizes) {
  std::mt19937 random(8);
  for (const Format format : {Format::bf16, Format::nvfp4}) {
    const Weight w = random_weight(format, 96, 8192, random);
    for (const Table& t : tables()) {
      const Input x = random_input(t.precision, 37, 8192, random);
      const auto expected = product(gemm_f32_reference(), w.view, nullptr, 0, 96, x.view);
      EXPECT_LT(relative_error(product(*t.kernels, w.view, nullptr, 0, 96, x.view), expected), 3e-6) << t.name;
    }
  }
}

TEST(Gemm, ColumnRangesAndListedRowsAreTheSameBits) {
  std::mt19937 random(9);
  for (const Format format : kFormats) {
    const Weight w = random_weight(format, 75, 96, random);
    for (const Table& t : tables()) {
      const Input x = random_input(t.precision, 21, 96, random);
      const auto whole = product(*t.kernels, w.view, nullptr, 0, 75, x.view);
      const auto part = product(*t.kernels, w.view, nullptr, 32, 75, x.view);
      const std::vector<int32_t> rows = {74, 3, 3, 0, 50, 33, 17};
      const auto listed = product(*t.kernels, w.view, rows.data(), 0, 7, x.view);
      for (int m = 0; m < 21; ++m) {
        for (int n = 32; n < 75; ++n) ASSERT_EQ(part[m * 43 + n - 32], whole[m * 75 + n]) << t.name << name_of(format);
        for (int n = 0; n < 7; ++n) ASSERT_EQ(listed[m * 7 + n], whole[m * 75 + rows[n]]) << t.name << name_of(format);
      }
    }
  }
}

TEST(Gemm, ARowHasTheSameBitsInAnyBatch) {
  std::mt19937 random(10);
  for (const Format format : kFormats) {
    const int64_t cols = 1056;
    const Weight w = random_weight(format, 40, cols, random);
    for (const Table& t : tables()) {
      const Input x = random_input(t.precision, 70, cols, random);
      const auto whole = product(*t.kernels, w.view, nullptr, 0, 40, x.view);
      for (int trial = 0; trial < 12; ++trial) {
        std::vector<int32_t> picked(1 + random() % 40);
        for (auto& r : picked) r = static_cast<int32_t>(random() % 70);
        Rows view = x.view;
        view.index = picked.data();
        view.rows = static_cast<int64_t>(picked.size());
        const auto some = product(*t.kernels, w.view, nullptr, 0, 40, view);
        for (size_t i = 0; i < picked.size(); ++i) {
          ASSERT_EQ(std::memcmp(&some[i * 40], &whole[picked[i] * 40], 40 * sizeof(float)), 0)
              << t.name << " " << name_of(format) << ": row " << picked[i] << " differs in a batch of " << picked.size();
        }
      }
    }
  }
}

}  // namespace
}  // namespace dgem::ops::cpu
