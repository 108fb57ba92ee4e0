// The CPU as a device: ops.h over a thread pool and the kernels of the best instruction set.
#pragma once

#include "base/result.h"
#include "ops/cpu/kernels.h"
#include "ops/ops.h"

#include <memory>
#include <string>

namespace dgem::ops::cpu {

struct CpuOptions {
  int threads = 0;                        // 0: one per usable processor
  Precision precision = Precision::bf16;  // of activations in matrix products and in the KV cache
  std::string isa;                        // "reference", "avx2", "avx512", "amx"; empty: DGEM_CPU, else the fastest
};

// An error names the instruction sets that this processor has.
Result<std::shared_ptr<Ops>> make_cpu_ops(const CpuOptions& options);

}  // namespace dgem::ops::cpu
