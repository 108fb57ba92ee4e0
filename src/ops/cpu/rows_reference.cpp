// The plain reference: each kernel as its definition reads, one element after the other, sums in double. The fast
// kernels are tested against it, and it runs where no other instruction set does.
#include "base/numeric.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_shared.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace dgem::ops::cpu {
namespace {

float load(const void* data, Precision precision, int64_t i) {
  return precision == Precision::f32 ? static_cast<const float*>(data)[i] : to_float(static_cast<const bf16*>(data)[i]);
}

void store(void* data, Precision precision, int64_t i, double value) {
  const auto rounded = static_cast<float>(value);
  if (precision == Precision::f32) {
    static_cast<float*>(data)[i] = rounded;
  } else {
    static_cast<bf16*>(data)[i] = to_bf16(rounded);
  }
}

// (mean(x²) + eps)^(-1/2).
template <class T>
double inverse_rms(const T* x, int64_t n, float eps) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return 1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(eps));
}

void rms_norm(const float* x, int64_t rows, int64_t cols, const Vector& w, float eps, void* out, Precision precision) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    const double factor = inverse_rms(row, cols, eps);
    for (int64_t c = 0; c < cols; ++c) store(out, precision, r * cols + c, row[c] * factor * weight_at(w, c));
  }
}

void embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, float* x) {
  for (int64_t r = 0; r < rows; ++r) {
    decode_row(table, ids[r], 0, table.cols, x + r * table.cols);
    for (int64_t c = 0; c < table.cols; ++c) x[r * table.cols + c] *= scale;
  }
}

void canvas_input(float* x, const int32_t* index, int64_t rows, int64_t cols, const float* m, float eps) {
  for (int64_t i = 0; i < rows; ++i) {
    float* row = x + index[i] * cols;
    std::vector<double> sum(row, row + cols);
    for (int64_t c = 0; c < cols && m != nullptr; ++c) sum[static_cast<size_t>(c)] += m[i * cols + c];
    const double factor = inverse_rms(sum.data(), cols, eps);
    for (int64_t c = 0; c < cols; ++c) row[c] = static_cast<float>(sum[static_cast<size_t>(c)] * factor);
  }
}

void head_norm_rope(const float* x, int64_t rows, int heads, int head_dim, const Vector& w, float eps, const float* cos,
                    const float* sin, int64_t angles, void* out, Precision precision) {
  const int64_t half = head_dim / 2;
  std::vector<double> y(static_cast<size_t>(head_dim));
  for (int64_t r = 0; r < rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      const int64_t start = (r * heads + h) * head_dim;
      const double factor = inverse_rms(x + start, head_dim, eps);
      for (int64_t i = 0; i < head_dim; ++i) y[static_cast<size_t>(i)] = x[start + i] * factor * weight_at(w, i);
      for (int64_t i = 0; i < angles; ++i) {
        double& a = y[static_cast<size_t>(i)];
        double& b = y[static_cast<size_t>(i + half)];
        const double c = cos[r * angles + i], s = sin[r * angles + i];
        const double turned = a * c - b * s;
        b = b * c + a * s;
        a = turned;
      }
      for (int64_t i = 0; i < head_dim; ++i) store(out, precision, start + i, y[static_cast<size_t>(i)]);
    }
  }
}

void branch(const float* x, const float* a, int64_t rows, int64_t cols, const Ops::BranchNorms& norms, float* r,
            void* dense_in, void* expert_in, Precision precision, float* router_in) {
  const double router_factor = 1.0 / std::sqrt(static_cast<double>(cols));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t start = row * cols;
    const double a_factor = inverse_rms(a + start, cols, norms.eps);
    for (int64_t c = 0; c < cols; ++c) {
      r[start + c] = static_cast<float>(x[start + c] + a[start + c] * a_factor * weight_at(norms.post, c));
    }
    const double r_factor = inverse_rms(r + start, cols, norms.eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double normed = r[start + c] * r_factor;
      store(dense_in, precision, start + c, normed * weight_at(norms.dense, c));
      store(expert_in, precision, start + c, normed * weight_at(norms.expert, c));
      router_in[start + c] = static_cast<float>(normed * weight_at(norms.router_scale, c) * router_factor);
    }
  }
}

void gelu_mul(const float* g, const float* u, int64_t count, void* out, Precision precision) {
  for (int64_t i = 0; i < count; ++i) {
    const double x = g[i];
    const double t = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    store(out, precision, i, x / (1.0 + std::exp(-2.0 * t)) * u[i]);  // 0.5 x (1 + tanh t)
  }
}

void combine(const float* y, const int32_t* slot, const float* weights, int k, int64_t rows, int64_t cols, float* m) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      double sum = 0.0;
      for (int j = 0; j < k; ++j) sum += static_cast<double>(weights[r * k + j]) * y[slot[r * k + j] * cols + c];
      m[r * cols + c] = static_cast<float>(sum);
    }
  }
}

void join(const float* r, const float* d, const float* m, int64_t rows, int64_t cols, const Ops::JoinNorms& norms,
          const uint8_t* kind, float* out) {
  std::vector<double> sum(static_cast<size_t>(cols));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t start = row * cols;
    const double d_factor = inverse_rms(d + start, cols, norms.eps);
    const double m_factor = inverse_rms(m + start, cols, norms.eps);
    for (int64_t c = 0; c < cols; ++c) {
      sum[static_cast<size_t>(c)] =
          d[start + c] * d_factor * weight_at(norms.dense, c) + m[start + c] * m_factor * weight_at(norms.expert, c);
    }
    const double factor = inverse_rms(sum.data(), cols, norms.eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double normed = sum[static_cast<size_t>(c)] * factor * weight_at(norms.post, c);
      out[start + c] = static_cast<float>((r[start + c] + normed) * norms.scalars[kind[row]]);
    }
  }
}

void soft_cap(float* z, int64_t count, float cap) {
  for (int64_t i = 0; i < count; ++i) z[i] = static_cast<float>(cap * std::tanh(static_cast<double>(z[i]) / cap));
}

void softmax(const float* z, int64_t rows, int64_t cols, void* p, Precision precision) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = z + r * cols;
    const double largest = *std::max_element(row, row + cols);
    double sum = 0.0;
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(row[c] - largest);
    for (int64_t c = 0; c < cols; ++c) store(p, precision, r * cols + c, std::exp(row[c] - largest) / sum);
  }
}

void soft_embed(const void* p, Precision precision, int64_t rows, const Matrix& table, int64_t h0, int64_t h1, float* g,
                Scratch&) {
  const auto width = static_cast<size_t>(h1 - h0);
  std::vector<float> values(width);
  std::vector<double> sums(static_cast<size_t>(rows) * width, 0.0);
  for (int64_t v = 0; v < table.rows; ++v) {
    decode_row(table, v, h0, h1, values.data());
    for (int64_t r = 0; r < rows; ++r) {
      const double weight = load(p, precision, r * table.rows + v);
      for (size_t h = 0; h < width; ++h) sums[static_cast<size_t>(r) * width + h] += weight * values[h];
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (size_t h = 0; h < width; ++h) {
      float& sum = g[r * table.cols + h0 + static_cast<int64_t>(h)];
      sum = static_cast<float>(sum + sums[static_cast<size_t>(r) * width + h]);
    }
  }
}

bool sees(const QueryGroup& group, int window, int64_t row, int64_t key) {
  if (group.canvas) return group.first_key <= key && key < group.end_key;
  const int64_t position = group.position + row;
  return key <= position && (window == 0 || key > position - window);
}

// One query vector over all keys that its row sees.
void attend(const float* q, int64_t row, const AttentionShape& shape, const QueryGroup& group, std::span<const KeyRun> runs,
            Precision kv_precision, int kv_head, void* out, int64_t out_start, Precision precision) {
  const int64_t stride = int64_t{shape.kv_heads} * shape.head_dim;
  std::vector<double> scores;
  std::vector<std::pair<const KeyRun*, int64_t>> keys;  // run, first element of the key in it
  for (const KeyRun& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      if (!sees(group, shape.window, row, run.position + i)) continue;
      const int64_t start = i * stride + int64_t{kv_head} * shape.head_dim;
      double score = 0.0;
      for (int d = 0; d < shape.head_dim; ++d) score += static_cast<double>(q[d]) * load(run.k, kv_precision, start + d);
      scores.push_back(score);
      keys.emplace_back(&run, start);
    }
  }
  double largest = -std::numeric_limits<double>::infinity(), total = 0.0;
  for (const double s : scores) largest = std::max(largest, s);
  for (double& s : scores) total += s = std::exp(s - largest);
  for (int d = 0; d < shape.head_dim; ++d) {
    double sum = 0.0;
    for (size_t i = 0; i < keys.size(); ++i) sum += scores[i] * load(keys[i].first->v, kv_precision, keys[i].second + d);
    store(out, precision, out_start + d, keys.empty() ? 0.0 : sum / total);
  }
}

// `runs` are the runs of the group.
void attention(const AttentionShape& shape, const float* q, const QueryGroup& group, std::span<const KeyRun> runs,
               Precision kv_precision, int64_t row0, int64_t row1, int kv_head, void* out, Precision precision, Scratch&) {
  const int heads = shape.q_heads / shape.kv_heads;
  for (int64_t row = row0; row < row1; ++row) {
    for (int h = kv_head * heads; h < (kv_head + 1) * heads; ++h) {
      const int64_t start = ((group.row + row) * shape.q_heads + h) * shape.head_dim;
      attend(q + start, row, shape, group, runs, kv_precision, kv_head, out, start, precision);
    }
  }
}

}  // namespace

const RowKernels& row_kernels_reference() {
  static constexpr RowKernels kKernels = {
      .rms_norm = rms_norm,
      .embed = embed,
      .canvas_input = canvas_input,
      .rope_angles = rope_angles,
      .head_norm_rope = head_norm_rope,
      .branch = branch,
      .route = route,
      .gelu_mul = gelu_mul,
      .combine = combine,
      .join = join,
      .soft_cap = soft_cap,
      .softmax = softmax,
      .soft_embed = soft_embed,
      .attention = attention,
  };
  return kKernels;
}

}  // namespace dgem::ops::cpu
