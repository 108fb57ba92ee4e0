// soft_embed of each instruction set against the plain reference.
#include "ops/cpu/rows_test_support.h"

#include <algorithm>

namespace dgem::ops::cpu::test {
namespace {

struct Problem {
  int64_t rows;
  Weights table;
  Precision precision;
  std::vector<std::byte> p;
  std::vector<float> before;  // what g holds

  Problem(Random& random, int64_t rows, Format format, int64_t vocab, int64_t hidden, Precision precision)
      : rows(rows), table(random, format, vocab, hidden), precision(precision), before(random.normals(rows * hidden)) {
    auto values = random.normals(rows * vocab);
    for (float& v : values) v = v * v / static_cast<float>(vocab);
    p = encode(values, precision);
  }
};

// g of rows [r0, r1), columns [h0, h1); the rest keeps what it had.
std::vector<float> soft_embed(const RowKernels& k, const Problem& x, int64_t r0, int64_t r1, int64_t h0, int64_t h1) {
  const int64_t hidden = x.table.matrix.cols;
  Guarded g((r1 - r0) * hidden * 4);
  std::memcpy(g.data(), x.before.data() + r0 * hidden, g.size());
  Scratch scratch;
  const std::byte* p = x.p.data() + r0 * x.table.matrix.rows * bytes_of(x.precision);
  k.soft_embed(p, x.precision, r1 - r0, x.table.matrix, h0, h1, static_cast<float*>(g.data()), scratch);
  EXPECT_TRUE(g.intact());
  return decode(g.data(), Precision::f32, (r1 - r0) * hidden);
}

void check(const Problem& x, Random& random) {
  const int64_t hidden = x.table.matrix.cols;
  const int64_t h0 = random.below(hidden), h1 = h0 + 1 + random.below(hidden - h0);
  const auto expected = soft_embed(row_kernels_reference(), x, 0, x.rows, 0, hidden);
  for (const FastSet& set : fast_sets()) {
    const Matrix& table = x.table.matrix;
    const std::string where = fmt::format("{} {} rows {} vocabulary {} hidden {} {}", set.name, name_of(table.format),
                                          x.rows, table.rows, hidden, name_of(x.precision));
    const auto got = soft_embed(*set.kernels, x, 0, x.rows, 0, hidden);
    EXPECT_LE(relative_error(got, expected), 1e-6) << where;
    const int64_t row = random.below(x.rows);
    const auto alone = soft_embed(*set.kernels, x, row, row + 1, 0, hidden);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.begin() + row * hidden)) << where << " depends on the other rows";
    const auto slice = soft_embed(*set.kernels, x, 0, x.rows, h0, h1);
    for (int64_t i = 0; i < x.rows * hidden; ++i) {
      const bool inside = i % hidden >= h0 && i % hidden < h1;
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(slice[at], inside ? got[at] : x.before[at]) << where << " slice " << h0 << " to " << h1 << " at " << i;
    }
  }
}

TEST(SoftEmbed, EveryFormat) {
  Random random;
  constexpr int64_t kVocabularies[] = {1, 2, 100, 127, 128, 129, 300, 513};
  for (const Format format : {Format::f32, Format::bf16, Format::f16, Format::fp8, Format::nvfp4}) {
    for (int i = 0; i < 24; ++i) {
      const int64_t hidden = format == Format::nvfp4 ? 16 * (1 + random.below(20)) : 1 + random.below(300);
      const int64_t rows = 1 + random.below(30), vocab = kVocabularies[random.below(8)];
      check(Problem(random, rows, format, vocab, hidden, i % 2 == 0 ? Precision::f32 : Precision::bf16), random);
    }
  }
}

TEST(SoftEmbed, EveryNumberOfRows) {
  Random random;
  for (int64_t rows = 1; rows <= 40; ++rows) {
    check(Problem(random, rows, Format::bf16, 140, 70, Precision::bf16), random);
  }
}

TEST(SoftEmbed, RealSizes) {
  Random random;
  check(Problem(random, 13, Format::bf16, 3000, 2816, Precision::bf16), random);
}

}  // namespace
}  // namespace dgem::ops::cpu::test
