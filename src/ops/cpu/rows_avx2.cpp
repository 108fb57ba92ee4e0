#include "ops/cpu/row_kernels_table.h"
#include "ops/cpu/simd_avx2.h"

namespace dgem::ops::cpu {

const RowKernels& row_kernels_avx2() {
  static constexpr RowKernels kKernels = row_kernels_of<Avx2>();
  return kKernels;
}

}  // namespace dgem::ops::cpu
