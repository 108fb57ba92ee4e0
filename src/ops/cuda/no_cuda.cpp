// Stands for the CUDA device in builds without the CUDA compiler.
#include "ops/cuda/cuda_ops.h"

namespace dgem::ops::cuda {

Result<std::shared_ptr<Ops>> make_cuda_ops(const CudaOptions&) {
  return make_error(
      "this build of dgem has no CUDA: build it where nvcc is found, with -DDGEM_CUDA=ON, or use the device cpu");
}

}  // namespace dgem::ops::cuda
