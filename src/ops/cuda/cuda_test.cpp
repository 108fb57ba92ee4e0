// Every operation of the CUDA device against the CPU's plain reference over ragged sizes, and that a row's bits do not
// depend on what is computed beside it. Needs a GPU: scripts/gpu_check.sh runs it.
#include "ops/cuda/cuda_ops.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/rows_test_support.h"

#include <gtest/gtest.h>

#include <array>

namespace dgem::ops::cuda {
namespace {

using cpu::test::Random;
using cpu::test::Weights;

constexpr Format kFormats[] = {Format::f32, Format::bf16, Format::f16, Format::fp8, Format::nvfp4};
constexpr Precision kPrecisions[] = {Precision::f32, Precision::bf16};

std::shared_ptr<Ops> need(Result<std::shared_ptr<Ops>> ops) {
  if (!ops) throw std::runtime_error(ops.error().message);
  return std::move(*ops);
}

// A device, and arrays on it.
class Side {
 public:
  explicit Side(std::shared_ptr<Ops> ops) : ops_(std::move(ops)) {}
  Ops* operator->() const { return ops_.get(); }

  template <class T>
  T* put(const std::vector<T>& values) {
    T* p = raw<T>(static_cast<int64_t>(values.size()));
    if (!values.empty()) ops_->upload(p, values.data(), values.size() * sizeof(T));
    return p;
  }
  template <class T>
  T* raw(int64_t count) {
    kept_.push_back(ops_->allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(T)));
    return reinterpret_cast<T*>(kept_.back().get());
  }
  Act act(int64_t rows, int64_t cols) {
    return {raw<std::byte>(rows * cols * bytes_of(ops_->precision())), ops_->precision(), rows, cols};
  }
  Act act(const std::vector<float>& values, int64_t rows, int64_t cols) {
    return {put(cpu::test::encode(values, ops_->precision())), ops_->precision(), rows, cols};
  }
  template <class T>
  std::vector<T> get(const T* p, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    ops_->download(values.data(), p, values.size() * sizeof(T));
    return values;
  }
  std::vector<float> get(const Act& a) const {
    const auto bytes = get(static_cast<const std::byte*>(a.data), a.rows * a.cols * bytes_of(a.precision));
    return cpu::test::decode(bytes.data(), a.precision, a.rows * a.cols);
  }

 private:
  std::shared_ptr<Ops> ops_;
  std::vector<Buffer> kept_;
};

Side reference(Precision precision) { return Side(need(cpu::make_cpu_ops({1, precision, "reference"}))); }
Side gpu(Precision precision) {
  static const std::array<std::shared_ptr<Ops>, 2> devices = {need(make_cuda_ops({0, Precision::f32})),
                                                              need(make_cuda_ops({0, Precision::bf16}))};
  return Side(devices[precision == Precision::f32 ? 0 : 1]);
}

using Outputs = std::vector<std::vector<float>>;

// Runs the same on the GPU and the reference. Outputs in bf16 may differ by a rounding.
template <class F>
void compare(const std::string& what, Precision precision, double f32_error, F&& run) {
  const Outputs expected = run(reference(precision)), got = run(gpu(precision));
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(expected[i].size(), got[i].size());
    EXPECT_LE(cpu::test::relative_error(got[i], expected[i]), cpu::test::tolerance(precision, f32_error))
        << what << " " << name_of(precision) << " output " << i;
  }
}

// The rows [r0, r1) of a matrix.
std::vector<float> rows_of(const std::vector<float>& x, int64_t cols, int64_t r0, int64_t r1) {
  return {x.begin() + r0 * cols, x.begin() + r1 * cols};
}

struct Size {
  int64_t rows, in, out;
};
constexpr Size kSizes[] = {{1, 16, 1}, {3, 48, 24}, {64, 64, 64}, {65, 176, 130}, {130, 400, 65}, {7, 1040, 33}};

TEST(Cuda, Linear) {
  Random random;
  for (const Precision precision : kPrecisions) {
    for (const Format format : kFormats) {
      for (Size size : kSizes) {
        if (format != Format::nvfp4 && size.rows == 3) size.in = 37;  // no whole groups of 16
        const Weights a(random, format, size.out, size.in), b(random, format, size.out + 5, size.in);
        const auto x = random.normals(size.rows * size.in);
        const auto run = [&](Side side, int64_t r0, int64_t r1) {
          float* y[] = {side.raw<float>((r1 - r0) * size.out), side.raw<float>((r1 - r0) * (size.out + 5))};
          const Matrix w[] = {side->place(a.matrix), side->place(b.matrix)};
          side->linear(side.act(rows_of(x, size.in, r0, r1), r1 - r0, size.in), w, y);
          return Outputs{side.get(y[0], (r1 - r0) * size.out), side.get(y[1], (r1 - r0) * (size.out + 5))};
        };
        const std::string what = fmt::format("linear {} [{}, {}] -> {}", name_of(format), size.rows, size.in, size.out);
        compare(what, precision, 2e-6, [&](Side side) { return run(std::move(side), 0, size.rows); });
        const Outputs together = run(gpu(precision), 0, size.rows);
        const int64_t last = size.rows - 1;
        EXPECT_EQ(run(gpu(precision), last, size.rows)[0], rows_of(together[0], size.out, last, size.rows)) << what;
      }
    }
  }
}

TEST(Cuda, GatedAndRouter) {
  Random random;
  for (const Precision precision : kPrecisions) {
    for (const Format format : kFormats) {
      for (const Size& size : kSizes) {
        const Weights gate(random, format, size.out, size.in), up(random, format, size.out, size.in);
        const auto x = random.normals(size.rows * size.in, 0.05f);
        compare(fmt::format("gated {} {}", name_of(format), size.out), precision, 1e-5, [&](Side side) {
          const Act h = side.act(size.rows, size.out);
          side->gated(side.act(x, size.rows, size.in), side->place(gate.matrix), side->place(up.matrix), h);
          return Outputs{side.get(h)};
        });
        compare(fmt::format("linear_f32 {}", name_of(format)), Precision::f32, 2e-6, [&](Side side) {
          float* y = side.raw<float>(size.rows * size.out);
          side->linear_f32(side.put(x), size.rows, side->place(gate.matrix), y);
          return Outputs{side.get(y, size.rows * size.out)};
        });
      }
    }
  }
}

TEST(Cuda, Experts) {
  Random random;
  for (const Precision precision : kPrecisions) {
    for (const Format format : kFormats) {
      for (const int64_t rows : {1, 5, 90}) {
        const int64_t hidden = 96, inner = 48;
        const int count = 5, k = 2;
        std::vector<std::unique_ptr<Weights>> weights;
        std::vector<Matrix> host[3];
        for (int e = 0; e < count; ++e) {
          for (int i = 0; i < 3; ++i) {
            weights.push_back(std::make_unique<Weights>(random, format, i < 2 ? inner : hidden, i < 2 ? hidden : inner));
            host[i].push_back(weights.back()->matrix);
          }
        }
        const auto x = random.normals(rows * hidden, 0.05f), shares = random.normals(rows * k);
        std::vector<int32_t> ids;
        for (int64_t r = 0; r < rows; ++r) {  // expert 2 has no rows, and 0 has most
          const int32_t second = r % 3 == 0 ? 1 : r % 3 == 1 ? 3 : 4;
          ids.insert(ids.end(), {0, second});
        }
        const auto run = [&](Side side, int64_t r0, int64_t r1) {
          std::vector<Matrix> placed[3];
          for (int i = 0; i < 3; ++i) {
            for (const Matrix& m : host[i]) placed[i].push_back(side->place(m));
          }
          float* m = side.raw<float>((r1 - r0) * hidden);
          const std::vector<int32_t> some(ids.begin() + r0 * k, ids.begin() + r1 * k);
          side->experts(side.act(rows_of(x, hidden, r0, r1), r1 - r0, hidden), {placed[0], placed[1], placed[2]},
                        side.put(some), side.put(rows_of(shares, k, r0, r1)), k, m);
          return Outputs{side.get(m, (r1 - r0) * hidden)};
        };
        const std::string what = fmt::format("experts {} rows {}", name_of(format), rows);
        // The hidden values are rounded too, so that errors of bf16 show in the float32 sums.
        compare(what, precision, 1e-5, [&](Side side) { return run(std::move(side), 0, rows); });
        EXPECT_EQ(run(gpu(precision), rows - 1, rows)[0], rows_of(run(gpu(precision), 0, rows)[0], hidden, rows - 1, rows))
            << what;
      }
    }
  }
}

TEST(Cuda, Rows) {
  Random random;
  for (const Precision precision : kPrecisions) {
    for (const int64_t cols : {16, 80, 1056}) {
      const int64_t rows = 9;
      const Weights w(random, Format::bf16, 4, cols), table(random, cols == 80 ? Format::nvfp4 : Format::fp8, 20, cols);
      const auto vector = [&](Side& side, int64_t i) {
        return side->place(Vector{static_cast<const uint16_t*>(w.matrix.data) + i * cols, Format::bf16, cols});
      };
      const auto x = random.normals(rows * cols), a = random.normals(rows * cols, 3.0f), m = random.normals(rows * cols);
      const std::vector<int32_t> ids = {3, 0, 19, 7, 7, 1, 2, 11, 5};
      const std::vector<uint8_t> kind = {0, 1, 1, 0, 1, 0, 0, 1, 1};
      compare(fmt::format("rows of {}", cols), precision, 1e-5, [&](Side side) {
        Outputs out;
        float *px = side.put(x), *y = side.raw<float>(rows * cols), *r = side.raw<float>(rows * cols);
        side->embed(side->place(table.matrix), side.put(ids), rows, 1.5f, y);
        out.push_back(side.get(y, rows * cols));
        const Act normed = side.act(rows, cols), other = side.act(rows, cols);
        side->rms_norm(px, vector(side, 0), 1e-6f, normed);
        out.push_back(side.get(normed));
        side->rms_norm(px, rows, cols, {}, 1e-6f, y);
        out.push_back(side.get(y, rows * cols));
        side->branch(px, side.put(a), rows, cols,
                     {vector(side, 0), vector(side, 1), vector(side, 2), vector(side, 3), 1e-6f}, r, normed, other, y);
        out.insert(out.end(), {side.get(r, rows * cols), side.get(normed), side.get(other), side.get(y, rows * cols)});
        side->join(r, side.put(a), side.put(m), rows, cols,
                   {vector(side, 1), vector(side, 2), vector(side, 3), 1e-6f, {0.5f, 2.0f}}, side.put(kind), y);
        out.push_back(side.get(y, rows * cols));
        side->soft_cap(y, rows * cols, 30.0f);
        out.push_back(side.get(y, rows * cols));
        side->gather(px, side.put(ids), 2, cols / 2, y);  // rows of cols / 2 bytes
        out.push_back(side.get(y, cols / 4));
        side->canvas_input(px, side.put(std::vector<int32_t>{1, 4, 8}), 3, cols, side.put(m), 1e-6f);
        out.push_back(side.get(px, rows * cols));
        side->canvas_input(px, side.put(std::vector<int32_t>{0, 2}), 2, cols, nullptr, 1e-6f);
        out.push_back(side.get(px, rows * cols));
        return out;
      });
    }
  }
}

TEST(Cuda, Route) {
  Random random;
  for (const int64_t experts : {4, 33, 128}) {
    const int64_t rows = 21;
    const int k = experts == 4 ? 4 : 8;
    auto logits = random.normals(rows * experts, 2.0f);
    for (int64_t e = 0; e < experts; ++e) logits[e] = static_cast<float>(e % 3);  // ties
    const Weights scale(random, Format::f32, 1, experts);
    std::vector<int32_t> ids[2];
    int at = 0;
    compare("route", Precision::f32, 1e-5, [&](Side side) {
      auto* chosen = side.raw<int32_t>(rows * k);
      float* weights = side.raw<float>(rows * k);
      side->route(side.put(logits), rows, experts, k, side->place(scale.vector()), chosen, weights);
      ids[at++] = side.get(chosen, rows * k);
      return Outputs{side.get(weights, rows * k)};
    });
    EXPECT_EQ(ids[0], ids[1]);
  }
}

TEST(Cuda, Head) {
  Random random;
  for (const Precision precision : kPrecisions) {
    for (const Format format : kFormats) {
      const int64_t rows = 5, vocab = format == Format::bf16 ? 8192 + 48 : 208, hidden = 80;
      const Weights table(random, format, vocab, hidden);
      const auto z = random.normals(rows * vocab, 2.0f), x = random.normals(rows * hidden);
      const std::vector<int32_t> pair_rows = {0, 0, 4, 3, 3, 3, 1, 1, 1}, ids = {7, 0, 207, 3, 9, 9, 1, 2, 100};
      // Probabilities may round to the neighbouring bf16.
      compare(fmt::format("head {}", name_of(format)), precision, 1e-5, [&](Side side) {
        const Matrix placed = side->place(table.matrix);
        float *y = side.raw<float>(9), *g = side.raw<float>(rows * hidden);
        side->dot_rows(side.act(x, rows, hidden), placed, side.put(pair_rows), side.put(ids), 9, y);
        side->soft_embed(side.put(z), rows, placed, 1.25f, g);
        return Outputs{side.get(y, 9), side.get(g, rows * hidden)};
      });
    }
  }
}

TEST(Cuda, HeadNormAndRope) {
  Random random;
  for (const Precision precision : kPrecisions) {
    for (const int head_dim : {6, 7, 24, 48, 256, 512}) {
      const int64_t rows = 11, angles = std::max(1, head_dim / 4);
      const int heads = 3;
      const Weights w(random, Format::bf16, 1, head_dim);
      const auto x = random.normals(rows * heads * head_dim);
      const std::vector<int32_t> positions = {0, 1, 2, 3, 1000, 70000, 6, 7, 8, 9, 10};
      std::vector<float> frequencies;
      for (int64_t i = 0; i < angles; ++i) frequencies.push_back(1.0f / std::pow(10000.0f, static_cast<float>(i) / 16.0f));
      compare(fmt::format("head_norm_rope {}", head_dim), precision, 1e-5, [&](Side side) {
        float *cos = side.raw<float>(rows * angles), *sin = side.raw<float>(rows * angles), *q = side.put(x);
        side->rope_angles(side.put(positions), rows, side.put(frequencies), angles, cos, sin);
        const Act out = side.act(rows, heads * head_dim), plain = side.act(rows, heads * head_dim);
        side->head_norm_rope(q, rows, heads, head_dim, side->place(w.vector()), 1e-6f, cos, sin, angles, out.data,
                             out.precision);
        side->head_norm_rope(q, rows, heads, head_dim, {}, 1e-6f, nullptr, nullptr, 0, plain.data, plain.precision);
        side->head_norm_rope(q, rows, heads, head_dim, {}, 1e-6f, cos, sin, angles, q, Precision::f32);
        return Outputs{side.get(cos, rows * angles), side.get(out), side.get(plain), side.get(q, rows * heads * head_dim)};
      });
    }
  }
}

// A prompt of 70 tokens, two branches behind it and a canvas behind one of them; keys [position, ...) in runs.
TEST(Cuda, Attention) {
  Random random;
  struct Case {
    int q_heads, kv_heads, head_dim, window;
  };
  for (const Precision precision : kPrecisions) {
    for (const Case& c :
         {Case{4, 2, 24, 0}, {4, 1, 48, 20}, {6, 2, 7, 9}, {4, 2, 64, 33}, {16, 8, 256, 40}, {40, 2, 512, 0}}) {
      const int prompt = 70, branch = 13, canvas = 18;
      const int64_t q_size = int64_t{c.q_heads} * c.head_dim, kv_size = int64_t{c.kv_heads} * c.head_dim;
      const int64_t rows = prompt + branch + canvas;
      const auto q = random.normals(rows * q_size, 1.0f / std::sqrt(static_cast<float>(c.head_dim)));
      const auto k = random.normals(rows * kv_size), v = random.normals(rows * kv_size);
      // How the prompt's keys are cut must not matter.
      const auto run = [&](Side side, const std::vector<int>& cuts, int first_row) {
        const Act keys = side.act(k, rows, kv_size), values = side.act(v, rows, kv_size), out = side.act(rows, q_size);
        side->upload(out.data, std::vector<std::byte>(static_cast<size_t>(rows * q_size * bytes_of(out.precision))).data(),
                     static_cast<size_t>(rows * q_size * bytes_of(out.precision)));
        const auto key_run = [&](int row, int position, int count) {
          const int64_t bytes = row * kv_size * bytes_of(keys.precision);
          return KeyRun{static_cast<const std::byte*>(keys.data) + bytes, static_cast<const std::byte*>(values.data) + bytes,
                        position, count};
        };
        std::vector<KeyRun> runs;
        std::vector<QueryGroup> groups;
        const auto add_prompt = [&] {
          for (size_t i = 0; i + 1 < cuts.size(); ++i) runs.push_back(key_run(cuts[i], cuts[i], cuts[i + 1] - cuts[i]));
        };
        const auto add_group = [&](QueryGroup group, size_t first_run) {
          group.run = static_cast<int>(first_run);
          group.runs = static_cast<int>(runs.size() - first_run);
          groups.push_back(group);
        };
        add_prompt();
        add_group({.row = first_row, .rows = prompt - first_row, .position = first_row}, 0);
        size_t at = runs.size();
        add_prompt();
        runs.push_back(key_run(prompt, prompt, branch));
        add_group({.row = prompt, .rows = branch, .position = prompt}, at);
        at = runs.size();
        add_prompt();
        runs.push_back(key_run(prompt + branch, prompt, canvas));
        const int first_key = c.window > 0 ? prompt - (c.window - 1) : 0;
        add_group(
            {.row = prompt + branch, .rows = canvas, .canvas = true, .first_key = first_key, .end_key = prompt + canvas},
            at);
        side->attention({c.q_heads, c.kv_heads, c.head_dim, c.window}, side.put(q), groups, runs, out);
        return Outputs{rows_of(side.get(out), q_size, first_row, rows)};
      };
      const std::string what = fmt::format("attention head_dim {} window {}", c.head_dim, c.window);
      compare(what, precision, 1e-5, [&](Side side) { return run(std::move(side), {0, 3, 40, prompt}, 0); });
      const Outputs whole = run(gpu(precision), {0, prompt}, 0), cut = run(gpu(precision), {0, 1, 33, 64, prompt}, 0);
      EXPECT_EQ(whole, cut) << what << " depends on the runs";
      EXPECT_EQ(rows_of(whole[0], q_size, 37, rows), run(gpu(precision), {0, prompt}, 37)[0])
          << what << " depends on other rows";
    }
  }
}

TEST(Cuda, OutOfMemoryIsAFaultAndTheDeviceGoesOn) {
  Side side = gpu(Precision::f32);
  EXPECT_THROW(side->allocate(size_t{1} << 50), Fault);
  float* y = side.put(std::vector<float>{1.0f, -1.0f});
  side->soft_cap(y, 2, 30.0f);
  EXPECT_NEAR(side.get(y, 2)[0], 30.0f * std::tanh(1.0f / 30.0f), 1e-6f);
}

}  // namespace
}  // namespace dgem::ops::cuda
