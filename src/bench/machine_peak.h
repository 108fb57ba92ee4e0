// What this machine can do at most, measured: the yardstick beside every speed.
#pragma once

#include "base/thread_pool.h"
#include "ops/cpu/kernels.h"

namespace dgem::bench {

struct MachinePeak {
  double flops = 0;       // multiply-adds in registers, all threads: FLOP/s
  double read_bytes = 0;  // reading memory far larger than the caches, all threads: bytes/s
};

// The best of several runs of about 60 ms each.
MachinePeak measure_peak(ops::cpu::Isa isa, ops::Precision precision, ThreadPool& pool);

}  // namespace dgem::bench
