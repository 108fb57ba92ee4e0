// All row kernels over a SIMD struct.
#pragma once

#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/soft_embed_kernel.h"

namespace dgem::ops::cpu {

template <class S>
constexpr RowKernels row_kernels_of() {
  using F = RowFunctions<S>;
  return {
      .rms_norm = F::rms_norm,
      .embed = F::embed,
      .canvas_input = F::canvas_input,
      .rope_angles = rope_angles,
      .head_norm_rope = F::head_norm_rope,
      .branch = F::branch,
      .route = route,
      .gelu_mul = F::gelu_mul,
      .combine = F::combine,
      .join = F::join,
      .soft_cap = F::soft_cap,
      .softmax = F::softmax,
      .soft_embed = SoftEmbed<S>::run,
      .attention = Attention<S>::run,
  };
}

}  // namespace dgem::ops::cpu
