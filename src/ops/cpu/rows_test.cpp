// Row-wise kernels of each instruction set against the plain reference.
#include "ops/cpu/rows_test_support.h"

#include <algorithm>
#include <numeric>

namespace dgem::ops::cpu::test {
namespace {

constexpr double kError = 1e-6;

std::vector<int64_t> sizes() {
  std::vector<int64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {256, 512, 704, 2112, 2816});
  return sizes;
}

// A norm weight whose format changes with i; the last kind is no weight at all.
struct NormWeight {
  Weights weights;
  bool absent;
  NormWeight(Random& random, int64_t i, int64_t cols)
      : weights(random, static_cast<Format>(i % 4 < 3 ? i % 4 : 0), 1, cols), absent(i % 4 == 3) {}
  Vector vector() const { return absent ? Vector{} : weights.vector(); }
};

TEST(RowKernels, RmsNorm) {
  Random random;
  for (const int64_t cols : sizes()) {
    for (int64_t format = 0; format < 4; ++format) {
      const auto x = random.normals(3 * cols, 2.0f);
      const NormWeight w(random, format, cols);
      check_rows("rms_norm " + std::to_string(cols), 3, {{cols, true}}, kError,
                 [&](const RowKernels& k, Precision p, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                   k.rms_norm(x.data() + r0 * cols, r1 - r0, cols, w.vector(), 1e-6f, out[0], p);
                 });
    }
  }
}

TEST(RowKernels, RmsNormOfZerosIsZero) {
  const std::vector<float> x(40, 0.0f);
  for (const FastSet& set : fast_sets()) {
    std::vector<float> out(40, 1.0f);
    set.kernels->rms_norm(x.data(), 1, 40, Vector{}, 1e-6f, out.data(), Precision::f32);
    EXPECT_EQ(out, x) << set.name;
  }
}

TEST(RowKernels, EmbedEveryFormat) {
  Random random;
  for (const Format format : {Format::f32, Format::bf16, Format::f16, Format::fp8, Format::nvfp4}) {
    for (const int64_t cols : sizes()) {
      if (format == Format::nvfp4 && cols % 16 != 0) continue;
      const Weights table(random, format, 9, cols);
      const std::vector<int32_t> ids = {8, 0, 3, 3, 7};
      check_rows(std::string("embed ") + name_of(format) + " " + std::to_string(cols), 5, {{cols}}, kError,
                 [&](const RowKernels& k, Precision, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                   k.embed(table.matrix, ids.data() + r0, r1 - r0, 53.0f, static_cast<float*>(out[0]));
                 });
    }
  }
}

TEST(RowKernels, CanvasInput) {
  Random random;
  for (const int64_t cols : sizes()) {
    const auto x = random.normals(4 * cols), m = random.normals(4 * cols);
    for (const bool with_m : {false, true}) {
      check_rows("canvas_input " + std::to_string(cols), 4, {{cols}}, kError,
                 [&](const RowKernels& k, Precision, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                   std::memcpy(out[0], x.data() + r0 * cols, static_cast<size_t>((r1 - r0) * cols) * 4);
                   std::vector<int32_t> index;  // backwards
                   for (int64_t r = r1; r-- > r0;) index.push_back(static_cast<int32_t>(r - r0));
                   std::vector<float> added;
                   for (const int32_t i : index) {
                     const auto from = m.begin() + (r0 + i) * cols;
                     added.insert(added.end(), from, from + cols);
                   }
                   k.canvas_input(static_cast<float*>(out[0]), index.data(), r1 - r0, cols, with_m ? added.data() : nullptr,
                                  1e-6f);
                 });
    }
  }
}

TEST(RowKernels, CanvasInputLeavesOtherRows) {
  Random random;
  const auto x = random.normals(3 * 37);
  const int32_t index = 1;
  for (const FastSet& set : fast_sets()) {
    auto out = x;
    set.kernels->canvas_input(out.data(), &index, 1, 37, nullptr, 1e-6f);
    EXPECT_TRUE(std::equal(x.begin(), x.begin() + 37, out.begin())) << set.name;
    EXPECT_TRUE(std::equal(x.begin() + 74, x.end(), out.begin() + 74)) << set.name;
    EXPECT_FALSE(std::equal(x.begin() + 37, x.begin() + 74, out.begin() + 37)) << set.name;
  }
}

TEST(RowKernels, RopeAngles) {
  const std::vector<int32_t> positions = {0, 1, 17, 1023, 262143};
  const std::vector<float> frequencies = {1.0f, 0.7498942f, 0.01f, 1e-6f};
  std::vector<FastSet> sets = fast_sets();
  sets.push_back({"reference", &row_kernels_reference()});
  for (const FastSet& set : sets) {
    std::vector<float> cos(20), sin(20);
    set.kernels->rope_angles(positions.data(), 5, frequencies.data(), 4, cos.data(), sin.data());
    for (size_t i = 0; i < 20; ++i) {
      const float angle = static_cast<float>(positions[i / 4]) * frequencies[i % 4];
      EXPECT_NEAR(cos[i], std::cos(static_cast<long double>(angle)), 6.1e-8) << set.name;
      EXPECT_NEAR(sin[i], std::sin(static_cast<long double>(angle)), 6.1e-8) << set.name;
    }
  }
}

TEST(RowKernels, HeadNormRope) {
  Random random;
  for (const int dim : {1, 2, 4, 6, 16, 20, 24, 34, 48, 66, 256, 512}) {
    const int64_t half = dim / 2;
    for (const int64_t angles : {int64_t{0}, half / 4, half - 1, half}) {
      if (angles < 0) continue;
      for (int64_t format = 0; format < 4; ++format) {
        constexpr int kHeads = 3;
        const int64_t cols = kHeads * dim;
        const auto x = random.normals(2 * cols), theta = random.normals(2 * angles);
        std::vector<float> cos, sin;
        for (const float t : theta) {
          cos.push_back(std::cos(t));
          sin.push_back(std::sin(t));
        }
        const NormWeight w(random, format, dim);
        check_rows("head_norm_rope " + std::to_string(dim) + " angles " + std::to_string(angles), 2, {{cols, true}}, kError,
                   [&](const RowKernels& k, Precision p, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                     k.head_norm_rope(x.data() + r0 * cols, r1 - r0, kHeads, dim, w.vector(), 1e-6f,
                                      cos.data() + r0 * angles, sin.data() + r0 * angles, angles, out[0], p);
                   });
      }
    }
  }
}

TEST(RowKernels, Branch) {
  Random random;
  for (const int64_t cols : sizes()) {
    const NormWeight post(random, cols, cols), dense(random, cols + 1, cols), expert(random, cols + 2, cols),
        scale(random, cols + 3, cols);
    const Ops::BranchNorms norms{post.vector(), dense.vector(), expert.vector(), scale.vector(), 1e-6f};
    const auto x = random.normals(3 * cols), a = random.normals(3 * cols);
    check_rows("branch " + std::to_string(cols), 3, {{cols}, {cols, true}, {cols, true}, {cols}}, kError,
               [&](const RowKernels& k, Precision p, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                 auto* r = static_cast<float*>(out[0]);  // in place
                 std::memcpy(r, x.data() + r0 * cols, static_cast<size_t>((r1 - r0) * cols) * 4);
                 k.branch(r, a.data() + r0 * cols, r1 - r0, cols, norms, r, out[1], out[2], p, static_cast<float*>(out[3]));
               });
  }
}

TEST(RowKernels, RouteTakesTheLargest) {
  Random random;
  std::vector<FastSet> sets = fast_sets();
  sets.push_back({"reference", &row_kernels_reference()});
  for (int round = 0; round < 200; ++round) {
    const int64_t experts = 1 + random.below(128);
    const int k = static_cast<int>(1 + random.below(std::min<int64_t>(8, experts)));
    std::vector<float> logits = random.normals(experts);
    if (round % 2 == 0) {  // many ties
      for (float& z : logits) z = std::round(z);
    }
    const Weights scale(random, Format::bf16, 1, experts);
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    const auto z = [&](int32_t e) { return double{logits[static_cast<size_t>(e)]}; };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return z(a) > z(b); });
    order.resize(static_cast<size_t>(k));
    std::sort(order.begin(), order.end());
    double sum = 0.0;
    for (const int32_t e : order) sum += std::exp(z(e));
    const auto scales = decode(scale.matrix.data, Precision::bf16, experts);
    for (const FastSet& set : sets) {
      std::vector<int32_t> ids(static_cast<size_t>(k));
      std::vector<float> weights(static_cast<size_t>(k));
      set.kernels->route(logits.data(), 1, experts, k, scale.vector(), ids.data(), weights.data());
      EXPECT_EQ(ids, order) << set.name;
      for (size_t j = 0; j < ids.size(); ++j) {
        const double expected = std::exp(z(order[j])) / sum * scales[static_cast<size_t>(order[j])];
        EXPECT_NEAR(weights[j], expected, 1e-6 * std::abs(expected)) << set.name;
      }
    }
  }
}

TEST(RowKernels, RouteOfNansStaysInRange) {
  const std::vector<float> logits(6, std::nanf(""));
  std::vector<int32_t> ids(3, -1);
  std::vector<float> weights(3);
  row_kernels_reference().route(logits.data(), 1, 6, 3, Vector{}, ids.data(), weights.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2}));
}

TEST(RowKernels, GeluMul) {
  Random random;
  for (const int64_t cols : sizes()) {
    auto g = random.normals(3 * cols, 3.0f);
    const auto u = random.normals(3 * cols);
    for (size_t i = 0; i < g.size(); i += 7) g[i] *= 100.0f;
    check_rows("gelu_mul " + std::to_string(cols), 3, {{cols, true}}, kError,
               [&](const RowKernels& k, Precision p, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                 k.gelu_mul(g.data() + r0 * cols, u.data() + r0 * cols, (r1 - r0) * cols, out[0], p);
               });
  }
}

TEST(RowKernels, GeluKeepsItsRelativePrecision) {
  const std::vector<float> one(1, 1.0f);
  for (float x = -12.0f; x < 12.0f; x += 0.0137f) {
    float expected = 0.0f;
    row_kernels_reference().gelu_mul(&x, one.data(), 1, &expected, Precision::f32);
    for (const FastSet& set : fast_sets()) {
      float got = 0.0f;
      set.kernels->gelu_mul(&x, one.data(), 1, &got, Precision::f32);
      // The exponent 2t grows to 140 here, and its last bit with it; below 2^-126 only absolute precision is left.
      EXPECT_NEAR(got, expected, 2e-5 * std::abs(expected) + 1e-37) << set.name << " at " << x;
    }
  }
}

TEST(RowKernels, Combine) {
  Random random;
  for (const int64_t cols : sizes()) {
    const int k = static_cast<int>(1 + cols % 8);
    const auto y = random.normals(40 * cols), weights = random.normals(3 * k);
    std::vector<int32_t> slots;
    for (int i = 0; i < 3 * k; ++i) slots.push_back(static_cast<int32_t>(random.below(40)));
    check_rows("combine " + std::to_string(cols), 3, {{cols}}, kError,
               [&](const RowKernels& kernels, Precision, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                 kernels.combine(y.data(), slots.data() + r0 * k, weights.data() + r0 * k, k, r1 - r0, cols,
                                 static_cast<float*>(out[0]));
               });
  }
}

TEST(RowKernels, Join) {
  Random random;
  for (const int64_t cols : sizes()) {
    const NormWeight dense(random, cols, cols), expert(random, cols + 1, cols), post(random, cols + 2, cols);
    const Ops::JoinNorms norms{dense.vector(), expert.vector(), post.vector(), 1e-6f, {0.75f, 1.25f}};
    const auto r = random.normals(3 * cols), d = random.normals(3 * cols), m = random.normals(3 * cols);
    const std::vector<uint8_t> kind = {1, 0, 1};
    check_rows("join " + std::to_string(cols), 3, {{cols}}, 3e-6,
               [&](const RowKernels& k, Precision, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                 auto* x = static_cast<float*>(out[0]);  // in place
                 std::memcpy(x, r.data() + r0 * cols, static_cast<size_t>((r1 - r0) * cols) * 4);
                 k.join(x, d.data() + r0 * cols, m.data() + r0 * cols, r1 - r0, cols, norms, kind.data() + r0, x);
               });
  }
}

TEST(RowKernels, SoftCap) {
  Random random;
  for (const int64_t cols : sizes()) {
    auto z = random.normals(3 * cols, 30.0f);
    for (size_t i = 0; i < z.size(); i += 5) z[i] *= 1e-4f;
    check_rows("soft_cap " + std::to_string(cols), 3, {{cols}}, kError,
               [&](const RowKernels& k, Precision, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                 std::memcpy(out[0], z.data() + r0 * cols, static_cast<size_t>((r1 - r0) * cols) * 4);
                 k.soft_cap(static_cast<float*>(out[0]), (r1 - r0) * cols, 30.0f);
               });
  }
}

TEST(RowKernels, SoftCapKeepsItsRelativePrecision) {
  for (float z = 1e-6f; z < 400.0f; z *= 1.01f) {
    for (const float x : {z, -z}) {
      for (const FastSet& set : fast_sets()) {
        float got = x;
        set.kernels->soft_cap(&got, 1, 30.0f);
        const double expected = 30.0 * std::tanh(double{x} / 30.0);
        EXPECT_NEAR(got, expected, 5e-7 * std::abs(expected)) << set.name << " at " << x;
      }
    }
  }
}

TEST(RowKernels, Softmax) {
  Random random;
  auto all = sizes();
  all.push_back(262144);
  for (const int64_t cols : all) {
    auto z = random.normals(2 * cols, 4.0f);
    if (cols > 3) z[static_cast<size_t>(random.below(cols))] = -HUGE_VALF;
    check_rows("softmax " + std::to_string(cols), 2, {{cols, true}}, kError,
               [&](const RowKernels& k, Precision p, int64_t r0, int64_t r1, const std::vector<void*>& out) {
                 k.softmax(z.data() + r0 * cols, r1 - r0, cols, out[0], p);
               });
  }
}

TEST(RowKernels, SoftmaxOfExtremes) {
  // Far below the largest: 0, or the subnormal that there is.
  const std::vector<float> z = {-1e30f, 5.0f, -95.0f, -HUGE_VALF, -3e38f, 5.0f, -82.0f};
  for (const FastSet& set : fast_sets()) {
    std::vector<float> p(z.size());
    set.kernels->softmax(z.data(), 1, static_cast<int64_t>(z.size()), p.data(), Precision::f32);
    EXPECT_EQ(p[0], 0.0f) << set.name;
    EXPECT_EQ(p[1], 0.5f) << set.name;
    EXPECT_NEAR(p[2], 0.5 * std::exp(-100.0), 1.5e-45) << set.name;
    EXPECT_EQ(p[3], 0.0f) << set.name;
    EXPECT_EQ(p[4], 0.0f) << set.name;
    EXPECT_EQ(p[5], 0.5f) << set.name;
    EXPECT_NEAR(p[6], 0.5 * std::exp(-87.0), 1e-7 * std::exp(-87.0)) << set.name;
  }
}

}  // namespace
}  // namespace dgem::ops::cpu::test
