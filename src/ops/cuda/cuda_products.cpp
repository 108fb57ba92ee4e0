// Matrix products of the CUDA device, the experts among them.
#include "ops/cuda/cuda_ops_impl.h"

#include <algorithm>

namespace dgem::ops::cuda {
namespace {

bool same(const Matrix& a, const Matrix& b) {
  return a.data == b.data && a.block_scales == b.block_scales && a.format == b.format && a.rows == b.rows &&
         a.cols == b.cols && a.scale == b.scale && a.row_scales.data == b.row_scales.data &&
         a.row_scales.format == b.row_scales.format;
}

}  // namespace

void CudaOps::multiply(const Product& product, bool uniform) {
  if (uniform && tensor_core_shape(product)) {
    tensor_product(stream_, product);
  } else if (uniform && narrow_shape(product)) {
    narrow_product(stream_, product);
  } else {
    plain_product(stream_, product);
  }
  started("a matrix product");
}

void CudaOps::linear(const Act& x, std::span<const Matrix> weights, std::span<float* const> y) {
  DGEM_CHECK(weights.size() == y.size());
  if (x.rows == 0) return;
  use();
  for (size_t i = 0; i < weights.size(); ++i) {
    DGEM_CHECK(weights[i].cols == x.cols);
    Product p;
    p.x = x;
    p.w = weights[i];
    p.y = y[i];
    multiply(p);
  }
}

void CudaOps::linear_f32(const float* x, int64_t rows, const Matrix& w, float* y) {
  const Act act{const_cast<float*>(x), Precision::f32, rows, w.cols};
  linear(act, {&w, 1}, {&y, 1});
}

void CudaOps::gated(const Act& x, const Matrix& gate, const Matrix& up, Act h) {
  DGEM_CHECK(gate.cols == x.cols && up.cols == x.cols && gate.rows == up.rows);
  if (x.rows == 0) return;
  use();
  Product p;
  p.x = x;
  p.w = up;
  p.gate_w = gate;
  p.act_out = h;
  multiply(p);
}

void CudaOps::dot_rows(const Act& x, const Matrix& table, const int32_t* rows, const int32_t* ids, int64_t pairs, float* y) {
  DGEM_CHECK(table.cols == x.cols);
  if (pairs == 0) return;
  use();
  cuda::dot_rows(stream_, x, table, rows, ids, pairs, y);
  started("dot_rows");
}

void CudaOps::soft_embed(const float* z, int64_t rows, const Matrix& table, float scale, float* g) {
  if (rows == 0) return;
  use();
  const Act p{scratch_bytes(kProbabilities, static_cast<size_t>(rows * table.rows * bytes_of(precision_))), precision_, rows,
              table.rows};
  cuda::softmax(stream_, z, p);
  started("softmax");
  const int64_t parts = transposed_parts(table.rows), count = rows * table.cols;
  Product product;
  product.x = p;
  product.w = table;
  product.transposed = true;
  product.partial = scratch<float>(kParts, parts * count);
  multiply(product);
  add_parts(stream_, product.partial, parts, count, scale, g);
  started("soft_embed");
}

const CudaOps::ExpertTable& CudaOps::table_of(std::span<const Matrix> matrices) {
  ExpertTable& table = expert_tables_[matrices.data()];
  // The list may have been another one's before.
  if (std::equal(matrices.begin(), matrices.end(), table.host.begin(), table.host.end(), same)) return table;
  table.host.assign(matrices.begin(), matrices.end());
  table.device = allocate_device(matrices.size_bytes());
  upload(table.device.get(), matrices.data(), matrices.size_bytes());
  table.uniform = true;
  for (const Matrix& m : matrices) {
    DGEM_CHECK(m.rows == matrices[0].rows && m.cols == matrices[0].cols, "experts of different shapes");
    table.uniform &= m.format == matrices[0].format;
  }
  return table;
}

void CudaOps::experts(const Act& x, const ExpertWeights& w, const int32_t* ids, const float* weights, int k, float* m) {
  DGEM_CHECK(!w.gate.empty() && w.gate.size() == w.up.size() && w.gate.size() == w.down.size());
  if (x.rows == 0) return;
  use();
  const auto experts = static_cast<int64_t>(w.gate.size());
  const int64_t places = x.rows * k, hidden = x.cols, inner = w.gate[0].rows;
  auto* row_of = scratch<int32_t>(kRowOf, places);
  auto* place_of = scratch<int32_t>(kPlaceOf, places);
  auto* tiles = scratch<ExpertTile>(kTiles, max_tiles(places, experts));
  plan_experts(stream_, ids, x.rows, k, static_cast<int>(experts), scratch<int32_t>(kCounts, experts),
               scratch<int32_t>(kFirst, experts + 1), row_of, place_of, tiles);
  started("plan_experts");

  const ExpertTable &gate = table_of(w.gate), &up = table_of(w.up), &down = table_of(w.down);
  Product p;
  p.x = x;
  p.row_index = row_of;
  p.w = w.up[0];
  p.gate_w = w.gate[0];
  p.act_out = {scratch_bytes(kExpertHidden, static_cast<size_t>(places * inner * bytes_of(x.precision))), x.precision,
               places, inner};
  p.tiles = tiles;
  p.tile_count = max_tiles(places, experts);
  p.w_table = reinterpret_cast<const Matrix*>(up.device.get());
  p.gate_table = reinterpret_cast<const Matrix*>(gate.device.get());
  multiply(p, gate.uniform && up.uniform);

  Product q;
  q.x = p.act_out;
  q.w = w.down[0];
  q.y = scratch<float>(kExpertOut, places * hidden);
  q.tiles = tiles;
  q.tile_count = p.tile_count;
  q.w_table = reinterpret_cast<const Matrix*>(down.device.get());
  multiply(q, down.uniform);
  combine(stream_, q.y, place_of, weights, k, x.rows, hidden, m);
  started("experts");
}

}  // namespace dgem::ops::cuda
