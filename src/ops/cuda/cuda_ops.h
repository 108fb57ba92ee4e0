// A CUDA device: ops.h over kernels for NVIDIA GPUs from compute capability 8.9 on. Present in every build: without the
// CUDA compiler at build time, or a driver at run time, making one is an error and nothing else changes.
#pragma once

#include "base/result.h"
#include "ops/ops.h"

#include <memory>

namespace dgem::ops::cuda {

struct CudaOptions {
  int device = 0;                         // as the driver counts
  Precision precision = Precision::bf16;  // of activations in matrix products and in the KV cache
};

// Errors: this build has no CUDA; no driver; no such device, or one that this build has no code for.
Result<std::shared_ptr<Ops>> make_cuda_ops(const CudaOptions& options);

}  // namespace dgem::ops::cuda
