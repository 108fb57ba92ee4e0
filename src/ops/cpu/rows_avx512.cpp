#include "ops/cpu/row_kernels_table.h"
#include "ops/cpu/simd_avx512.h"

namespace dgem::ops::cpu {

const RowKernels& row_kernels_avx512() {
  static constexpr RowKernels kKernels = row_kernels_of<Avx512>();
  return kKernels;
}

}  // namespace dgem::ops::cpu
