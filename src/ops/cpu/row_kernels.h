// Row-wise kernels over a SIMD struct S; RowKernels in kernels.h says what each computes.
#pragma once

#include "ops/cpu/row_kernels_simd.h"
#include "ops/cpu/rows_shared.h"

namespace dgem::ops::cpu {

template <class S>
struct RowFunctions {
  using V = typename S::V;

  static void rms_norm(const float* x, int64_t rows, int64_t cols, const Vector& w, float eps, void* out,
                       Precision precision) {
    for (int64_t r = 0; r < rows; ++r) norm_to(x + r * cols, cols, w, eps, out, r * cols, precision);
  }

  static void embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x) {
    const V factor = S::set1(scale);
    for (int64_t r = 0; r < rows; ++r) {
      float* out = x + r * table.cols;
      if (table.format == Format::fp8 || table.format == Format::nvfp4) {
        decode_row(table, ids[r], 0, table.cols, out);
        for_lanes<S>(table.cols, [&](int64_t c, int n)
                                     DGEM_INLINE_LAMBDA { store<S>(out + c, S::mul(load<S>(out + c, n), factor), n); });
      } else {
        for_lanes<S>(table.cols, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
          store<S>(out + c, S::mul(load<S>(table.data, table.format, ids[r] * table.cols + c, n), factor), n);
        });
      }
    }
  }

  static void canvas_input(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps) {
    for (int64_t i = 0; i < rows; ++i) {
      float* row = x + index[i] * cols;
      const float* added = m == nullptr ? nullptr : m + i * cols;
      const float factor = inverse_rms<S>(cols, eps, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
        V v = load<S>(row + c, n);
        if (added != nullptr) v = S::add(v, load<S>(added + c, n));
        store<S>(row + c, v, n);
        return v;
      });
      for_lanes<S>(cols, [&](int64_t c, int n)
                             DGEM_INLINE_LAMBDA { store<S>(row + c, S::mul(load<S>(row + c, n), S::set1(factor)), n); });
    }
  }

  static void head_norm_rope(const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps,
                             const float* cos, const float* sin, int64_t angles, void* out, Precision precision) {
    const int64_t half = head_dim / 2;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t start = (r * heads + h) * head_dim;
        const float* head = x + start;
        const float factor = inverse_rms_of_row(head, head_dim, eps);
        const auto normed = [&](int64_t i, int n) DGEM_INLINE_LAMBDA {
          return S::mul(S::mul(load<S>(head + i, n), S::set1(factor)), load<S>(w, i, n));
        };
        for_lanes<S>(angles, [&](int64_t i, int n) DGEM_INLINE_LAMBDA {
          const V a = normed(i, n), b = normed(i + half, n);
          const V c = load<S>(cos + r * angles + i, n), s = load<S>(sin + r * angles + i, n);
          store<S>(out, precision, start + i, S::sub(S::mul(a, c), S::mul(b, s)), n);
          store<S>(out, precision, start + half + i, S::add(S::mul(b, c), S::mul(a, s)), n);
        });
        const auto pass = [&](int64_t from, int64_t to) DGEM_INLINE_LAMBDA {
          for_lanes<S>(to - from, [&](int64_t i, int n) DGEM_INLINE_LAMBDA {
            store<S>(out, precision, start + from + i, normed(from + i, n), n);
          });
        };
        pass(angles, half);
        pass(half + angles, head_dim);
      }
    }
  }

  static void branch(const float* x, const float* a, int64_t rows, int64_t cols, const Ops::BranchNorms& norms, float* r,
                     void* dense_in, void* expert_in, Precision precision, float* router_in) {
    const V router_factor = S::set1(1.0f / __builtin_sqrtf(static_cast<float>(cols)));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t start = row * cols;
      const V a_factor = S::set1(inverse_rms_of_row(a + start, cols, norms.eps));
      const V r_factor = S::set1(inverse_rms<S>(cols, norms.eps, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
        const V normed = S::mul(S::mul(load<S>(a + start + c, n), a_factor), load<S>(norms.post, c, n));
        const V sum = S::add(load<S>(x + start + c, n), normed);
        store<S>(r + start + c, sum, n);
        return sum;
      }));
      for_lanes<S>(cols, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
        const V normed = S::mul(load<S>(r + start + c, n), r_factor);
        store<S>(dense_in, precision, start + c, S::mul(normed, load<S>(norms.dense, c, n)), n);
        store<S>(expert_in, precision, start + c, S::mul(normed, load<S>(norms.expert, c, n)), n);
        const V scaled = S::mul(S::mul(normed, load<S>(norms.router_scale, c, n)), router_factor);
        store<S>(router_in + start + c, scaled, n);
      });
    }
  }

  static void gelu_mul(const float* g, const float* u, int64_t count, void* out, Precision precision) {
    for_lanes<S>(count, [&](int64_t i, int n) DGEM_INLINE_LAMBDA {
      // gelu(x) = x / (1 + exp(-2t)), t = sqrt(2/pi) · (x + 0.044715 x³): 0.5 x (1 + tanh t) without its cancellation.
      const V x = load<S>(g + i, n);
      const V cubic = S::fma(S::mul(x, x), S::set1(0.044715f), S::set1(1.0f));
      const V two_t = S::mul(S::mul(x, S::set1(1.5957691216057308f)), cubic);
      const V gelu = S::mul(x, S::sigmoid(two_t));
      store<S>(out, precision, i, S::mul(gelu, load<S>(u + i, n)), n);
    });
  }

  static void combine(const float* y, const int32_t* slot, const float* weights, int k, int64_t rows, int64_t cols,
                      float* m) {
    for (int64_t r = 0; r < rows; ++r) {
      for_lanes<S>(cols, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
        V sum = S::zero();
        for (int64_t j = r * k; j < (r + 1) * k; ++j) {
          sum = S::fma(S::set1(weights[j]), load<S>(y + slot[j] * cols + c, n), sum);
        }
        store<S>(m + r * cols + c, sum, n);
      });
    }
  }

  static void join(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const Ops::JoinNorms& norms,
                   const uint8_t* kind, float* out) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t start = row * cols;
      const V d_factor = S::set1(inverse_rms_of_row(d + start, cols, norms.eps));
      const V m_factor = S::set1(inverse_rms_of_row(m + start, cols, norms.eps));
      const auto both = [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
        const V dense = S::mul(S::mul(load<S>(d + start + c, n), d_factor), load<S>(norms.dense, c, n));
        const V expert = S::mul(S::mul(load<S>(m + start + c, n), m_factor), load<S>(norms.expert, c, n));
        return S::add(dense, expert);
      };
      const V factor = S::set1(inverse_rms<S>(cols, norms.eps, both));
      const V scalar = S::set1(norms.scalars[kind[row]]);
      for_lanes<S>(cols, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
        const V normed = S::mul(S::mul(both(c, n), factor), load<S>(norms.post, c, n));
        store<S>(out + start + c, S::mul(S::add(load<S>(r + start + c, n), normed), scalar), n);
      });
    }
  }

  static void soft_cap(float* z, int64_t count, float cap) {
    for_lanes<S>(count, [&](int64_t i, int n) DGEM_INLINE_LAMBDA {
      store<S>(z + i, S::mul(S::set1(cap), S::tanh(S::div(load<S>(z + i, n), S::set1(cap)))), n);
    });
  }

  static void softmax(const float* z, int64_t rows, int64_t cols, void* p, Precision precision) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = z + r * cols;
      V largest = S::set1(row[0]);
      for_lanes<S>(cols,
                   [&](int64_t c, int n) DGEM_INLINE_LAMBDA { largest = S::max(largest, load_or<S>(row + c, n, row[0])); });
      const V shift = S::set1(S::reduce_max(largest));
      // Stretches in float32, their sums in double: the error does not grow with the vocabulary.
      constexpr int64_t kStretch = 1024;
      double total = 0.0;
      for (int64_t c0 = 0; c0 < cols; c0 += kStretch) {
        V sum = S::zero();
        for_lanes<S>(cols - c0 < kStretch ? cols - c0 : kStretch, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
          sum = S::add(sum, S::exp(S::sub(load_or<S>(row + c0 + c, n, -__builtin_inff()), shift)));
        });
        total += static_cast<double>(S::reduce_add(sum));
      }
      const V factor = S::set1(static_cast<float>(1.0 / total));
      for_lanes<S>(cols, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
        store<S>(p, precision, r * cols + c, S::mul(S::exp(S::sub(load<S>(row + c, n), shift)), factor), n);
      });
    }
  }

 private:
  [[gnu::always_inline]] static inline float inverse_rms_of_row(const float* x, int64_t cols, float eps) {
    return inverse_rms<S>(cols, eps, [&](int64_t c, int n) DGEM_INLINE_LAMBDA { return load<S>(x + c, n); });
  }

  // out[start + c] = rms(x)[c] · w[c].
  static void norm_to(const float* x, int64_t cols, const Vector& w, float eps, void* out, int64_t start,
                      Precision precision) {
    const V factor = S::set1(inverse_rms_of_row(x, cols, eps));
    for_lanes<S>(cols, [&](int64_t c, int n) DGEM_INLINE_LAMBDA {
      store<S>(out, precision, start + c, S::mul(S::mul(load<S>(x + c, n), factor), load<S>(w, c, n)), n);
    });
  }
};

}  // namespace dgem::ops::cpu
