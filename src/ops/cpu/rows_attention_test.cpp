// Attention of each instruction set against the plain reference, and what its bits may not depend on.
#include "ops/cpu/rows_test_support.h"

#include <algorithm>

namespace dgem::ops::cpu::test {
namespace {

// Keys and values at positions [first, first + count), and query rows that look at them.
struct Scene {
  AttentionShape shape;
  QueryGroup group;
  int first = 0, count = 0;
  Precision kv_precision = Precision::f32;
  std::vector<float> q, k, v;  // q [rows before and in the group, q_heads · D]

  int64_t kv_row() const { return int64_t{shape.kv_heads} * shape.head_dim; }
  int64_t q_row() const { return int64_t{shape.q_heads} * shape.head_dim; }

  void fill(Random& random, float spread) {
    q = random.normals((group.row + group.rows) * q_row(), spread / std::sqrt(static_cast<float>(shape.head_dim)));
    k = random.normals(count * kv_row());
    v = random.normals(count * kv_row());
  }
  bool sees(int row, int key) const {
    if (group.canvas) return group.first_key <= key && key < group.end_key;
    return key <= group.position + row && (shape.window == 0 || key > group.position + row - shape.window);
  }
};

std::string name_of(const Scene& s) {
  return fmt::format("heads {}/{} dim {} window {} {} rows {} at {} keys [{}, {})", s.shape.q_heads, s.shape.kv_heads,
                     s.shape.head_dim, s.shape.window, s.group.canvas ? "canvas" : "prompt", s.group.rows, s.group.position,
                     s.first, s.first + s.count);
}

// The keys of a scene cut into runs, each with storage of its own.
struct Runs {
  std::vector<std::vector<std::byte>> storage;
  std::vector<KeyRun> runs;

  // Cuts before the keys in `cuts` (ascending, counted from the first key).
  Runs(const Scene& s, std::vector<int> cuts) {
    cuts.insert(cuts.begin(), 0);
    cuts.push_back(s.count);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto from = cuts[i] * s.kv_row(), to = cuts[i + 1] * s.kv_row();
      storage.push_back(encode({s.k.begin() + from, s.k.begin() + to}, s.kv_precision));
      storage.push_back(encode({s.v.begin() + from, s.v.begin() + to}, s.kv_precision));
      const auto& v = storage.back();
      const auto& k = storage[storage.size() - 2];
      runs.push_back({k.data(), v.data(), s.first + cuts[i], cuts[i + 1] - cuts[i]});
    }
  }
  Runs(const Scene& s, Random& random, int pieces) : Runs(s, random_cuts(s, random, pieces)) {}

 private:
  static std::vector<int> random_cuts(const Scene& s, Random& random, int pieces) {
    std::vector<int> cuts;  // equal ones make empty runs
    for (int i = 1; i < pieces; ++i) cuts.push_back(static_cast<int>(random.below(s.count + 1)));
    std::sort(cuts.begin(), cuts.end());
    return cuts;
  }
};

// The output [rows, q_heads · D] of all rows of the scene's array. Rows of the group are given to the kernel `step` at a
// time.
Guarded attend(const RowKernels& kernels, const Scene& s, const Runs& runs, Precision precision, int step) {
  Guarded out((s.group.row + s.group.rows) * s.q_row() * bytes_of(precision));
  Scratch scratch;
  for (int r = 0; r < s.group.rows; r += step) {
    for (int head = 0; head < s.shape.kv_heads; ++head) {
      kernels.attention(s.shape, s.q.data(), s.group, runs.runs, s.kv_precision, r, std::min(s.group.rows, r + step), head,
                        out.data(), precision, scratch);
    }
  }
  return out;
}

std::vector<float> group_rows(const Scene& s, Guarded& out, Precision precision) {
  return decode(out.at(s.group.row * s.q_row() * bytes_of(precision)), precision, s.group.rows * s.q_row());
}

bool untouched_before_group(const Scene& s, Guarded& out, Precision precision) {
  const auto bytes = static_cast<size_t>(s.group.row * s.q_row() * bytes_of(precision));
  const auto* p = static_cast<const std::byte*>(out.data());
  return std::all_of(p, p + bytes, [](std::byte b) { return b == std::byte{0xa5}; });
}

void check(const Scene& s, Random& random, double f32_error) {
  const Runs whole(s, {}), cut(s, random, 2 + static_cast<int>(random.below(6)));
  Guarded expected = attend(row_kernels_reference(), s, whole, Precision::f32, s.group.rows);
  for (const FastSet& set : fast_sets()) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const std::string where = name_of(s) + " " + set.name + " " + ops::name_of(precision);
      Guarded got = attend(*set.kernels, s, whole, precision, s.group.rows);
      EXPECT_LE(relative_error(group_rows(s, got, precision), group_rows(s, expected, Precision::f32)),
                tolerance(precision, f32_error))
          << where;
      EXPECT_TRUE(got.intact() && untouched_before_group(s, got, precision)) << where << " writes outside";
      EXPECT_TRUE(got == attend(*set.kernels, s, cut, precision, s.group.rows)) << where << " depends on the runs";
      EXPECT_TRUE(got == attend(*set.kernels, s, whole, precision, 1)) << where << " depends on the other rows";
      const int step = 1 + static_cast<int>(random.below(s.group.rows));
      EXPECT_TRUE(got == attend(*set.kernels, s, cut, precision, step)) << where << " depends on the cut into calls";
    }
  }
}

Scene scene(Random& random, int heads, int kv_heads, int dim, int rows, int first, int count, int window, bool canvas) {
  Scene s;
  s.shape = {heads, kv_heads, dim, window};
  s.group.row = static_cast<int>(random.below(3));
  s.group.rows = rows;
  s.group.canvas = canvas;
  s.first = first;
  s.count = count;
  if (canvas) {
    s.group.first_key = first + static_cast<int>(random.below(count));
    s.group.end_key = s.group.first_key + 1 + static_cast<int>(random.below(first + count - s.group.first_key));
  } else {
    s.group.position = first + count - rows;
  }
  s.kv_precision = random.below(2) == 0 ? Precision::f32 : Precision::bf16;
  s.fill(random, 2.0f);
  return s;
}

TEST(Attention, RandomScenes) {
  Random random;
  constexpr int kHeads[][2] = {{1, 1}, {2, 1}, {4, 2}, {6, 2}, {8, 1}, {15, 3}};
  constexpr int kDims[] = {1, 4, 8, 15, 16, 20, 24, 32, 33, 48, 64, 80};
  for (int i = 0; i < 300; ++i) {
    const auto& heads = kHeads[random.below(6)];
    const int dim = kDims[random.below(12)], rows = 1 + static_cast<int>(random.below(40));
    const bool canvas = random.below(2) == 0;
    const int first = random.below(2) == 0 ? 0 : static_cast<int>(random.below(1000));
    const int count = rows + static_cast<int>(random.below(250));
    // A window may reach back beyond the first key: the keys that there are count.
    const int window = random.below(2) == 0 ? 0 : 1 + static_cast<int>(random.below(100));
    check(scene(random, heads[0], heads[1], dim, rows, first, count, window, canvas), random, 3e-6);
  }
}

TEST(Attention, RealShapes) {
  Random random;
  check(scene(random, 4, 2, 256, 70, 0, 150, 0, false), random, 3e-6);
  check(scene(random, 4, 2, 256, 40, 1900, 1100, 1024, false), random, 3e-6);
  check(scene(random, 8, 1, 512, 20, 0, 200, 0, false), random, 3e-6);
  check(scene(random, 8, 1, 512, 33, 100, 300, 0, true), random, 3e-6);
  check(scene(random, 4, 2, 256, 64, 77, 400, 1024, true), random, 3e-6);
}

TEST(Attention, ManyHeadsPerKeyHead) {
  Random random;
  check(scene(random, 300, 1, 24, 3, 0, 90, 0, false), random, 3e-6);
}

TEST(Attention, LargeScores) {
  // Scores of some hundreds, each off by about 1e-5: nearly one-hot weights.
  Random random;
  Scene s = scene(random, 4, 2, 256, 30, 0, 200, 0, false);
  s.fill(random, 100.0f);
  check(s, random, 2e-4);
}

TEST(Attention, LaterAndLargerScoresTakeOver) {
  // Scores that rise from block to block by more than e^-103 can hold: only the last key counts.
  Random random;
  Scene s = scene(random, 1, 1, 16, 1, 0, 300, 0, false);
  std::fill(s.q.begin(), s.q.end(), 1.0f);
  for (int i = 0; i < s.count; ++i) std::fill_n(s.k.begin() + i * 16, 16, static_cast<float>(i));
  for (const FastSet& set : fast_sets()) {
    Guarded out = attend(*set.kernels, s, Runs(s, {}), Precision::f32, 1);
    const auto got = group_rows(s, out, Precision::f32);
    const auto last = decode(encode({s.v.end() - 16, s.v.end()}, s.kv_precision).data(), s.kv_precision, 16);
    EXPECT_LE(relative_error(got, last), 1e-6) << set.name;
  }
}

// The rows of a group have the same bits as parts of it, each a group of its own.
TEST(Attention, GroupCutIntoGroups) {
  Random random;
  for (int i = 0; i < 20; ++i) {
    const int rows = 2 + static_cast<int>(random.below(30));
    const Scene s = scene(random, 6, 2, 40, rows, 64, rows + 100, i % 2 == 0 ? 0 : 50, i % 4 == 3);
    const Runs runs(s, random, 3);
    const int middle = 1 + static_cast<int>(random.below(rows - 1));
    Scene head = s, tail = s;
    head.group.rows = middle;
    tail.group.row += middle;
    tail.group.rows -= middle;
    tail.group.position += middle;
    for (const FastSet& set : fast_sets()) {
      Guarded whole = attend(*set.kernels, s, runs, Precision::f32, rows);
      Guarded first = attend(*set.kernels, head, runs, Precision::f32, middle);
      Guarded second = attend(*set.kernels, tail, runs, Precision::f32, rows);
      auto parts = group_rows(head, first, Precision::f32);
      const auto rest = group_rows(tail, second, Precision::f32);
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_EQ(group_rows(s, whole, Precision::f32), parts) << name_of(s) << " " << set.name;
    }
  }
}

// Keys that a row does not see change nothing, not even if they are infinite or not a number.
TEST(Attention, UnseenKeysTakeNoPart) {
  Random random;
  for (int i = 0; i < 40; ++i) {
    const int rows = 1 + static_cast<int>(random.below(20));
    const Scene s = scene(random, 4, 2, 24, rows, 30, rows + 150, i % 2 == 0 ? 0 : 20, i % 4 >= 2);
    for (const FastSet& set : fast_sets()) {
      Guarded clean = attend(*set.kernels, s, Runs(s, {}), Precision::f32, rows);
      const auto expected = group_rows(s, clean, Precision::f32);
      for (int row = 0; row < rows; row += 7) {
        Scene dirty = s;
        for (int key = 0; key < s.count; ++key) {
          if (s.sees(row, s.first + key)) continue;
          std::fill_n(dirty.k.begin() + key * s.kv_row(), s.kv_row(), std::nanf(""));
          std::fill_n(dirty.v.begin() + key * s.kv_row(), s.kv_row(), key % 2 == 0 ? std::nanf("") : HUGE_VALF);
        }
        Guarded out = attend(*set.kernels, dirty, Runs(dirty, {}), Precision::f32, rows);
        const auto got = group_rows(s, out, Precision::f32);
        const auto start = static_cast<size_t>(row * s.q_row()), size = static_cast<size_t>(s.q_row()) * 4;
        EXPECT_EQ(std::memcmp(&got[start], &expected[start], size), 0) << name_of(s) << " " << set.name << " row " << row;
      }
    }
  }
}

TEST(Attention, NoKeysGiveZero) {
  Random random;
  Scene s = scene(random, 2, 1, 20, 3, 0, 10, 0, true);
  s.group.first_key = s.group.end_key = 5;
  auto sets = fast_sets();
  sets.push_back({"reference", &row_kernels_reference()});
  for (const FastSet& set : sets) {
    Guarded out = attend(*set.kernels, s, Runs(s, {}), Precision::f32, 3);
    EXPECT_EQ(group_rows(s, out, Precision::f32), std::vector<float>(3 * 40, 0.0f)) << set.name;
  }
}

}  // namespace
}  // namespace dgem::ops::cpu::test
