// How fast the engine runs one batch: prefill, read over a cached prompt, and both fused in one pass.
#pragma once

#include "bench/machine_peak.h"
#include "bench/timed_ops.h"
#include "model/model.h"
#include "model/work.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dgem::bench {

struct EngineBenchOptions {
  int prompt = 256, canvas = 32, batch = 1;  // tokens per prompt and canvas; sequences in a pass
  int slots = 3, labels = 8;                 // asked on each canvas
  int runs = 0;                              // 0: as many as fit about four seconds, 3 to 30
};

struct PassTime {
  std::string name;
  int rows = 0;
  double median = 0, best = 0;  // seconds
  int runs = 0;
  model::Work work;

  // The least time that the machine needs: its arithmetic or its memory, whichever takes longer.
  double floor(const MachinePeak& peak) const;
};

struct EngineBenchResult {
  std::vector<PassTime> passes;                  // prefill, read, fused
  double first_pass = 0;                         // seconds of the very first fused pass, pages still cold
  std::map<std::string, TimedOps::Spent> spent;  // by kind of operation, of all fused passes
  int fused_runs = 0;
};

// `timed` is the model's device.
EngineBenchResult bench_engine(model::Model& model, TimedOps& timed, const EngineBenchOptions& options);

}  // namespace dgem::bench
