// What commands that run a model have in common: which device, and loading a checkpoint with errors told as exits.
#pragma once

#include "cli/commands.h"

#include "model/weights.h"
#include "ops/cpu/cpu_ops.h"

#include <memory>
#include <string>

namespace dgem::cli {

struct DeviceOptions {
  std::string device = "cpu";  // cpu, cuda or cuda:N
  int threads = 0;
  std::string activations = "bf16";
  std::string cpu;

  // --device, --threads, --activations, --cpu.
  void add_to(CLI::App& command);
  bool on_cuda() const { return device != "cpu"; }
  ops::Precision precision() const { return activations == "f32" ? ops::Precision::f32 : ops::Precision::bf16; }
  ops::cpu::CpuOptions cpu_options() const { return {threads, precision(), cpu}; }
  ops::cpu::Isa isa() const;  // the set that cpu_options() leads to; throws Exit
};

std::shared_ptr<const model::Checkpoint> load_checkpoint_or_exit(const std::string& directory, const DeviceOptions& device);
std::shared_ptr<ops::Ops> make_device_or_exit(const DeviceOptions& options);

}  // namespace dgem::cli
