#include "cli/device_options.h"

#include <cstdlib>

namespace dgem::cli {

void DeviceOptions::add_to(CLI::App& command) {
  command.add_option("--threads", threads, "Threads; 0: one for each processor")->check(CLI::Range(0, 1024))->capture_default_str();
  command.add_option("--activations", activations, "Precision of activations in matrix products")
      ->check(CLI::IsMember({"bf16", "f32"}))->capture_default_str();
  command.add_option("--cpu", cpu, "Instruction set: reference, avx2, avx512 or amx (default: DGEM_CPU, else the fastest)");
}

ops::cpu::CpuOptions DeviceOptions::cpu_options() const {
  return {threads, activations == "f32" ? ops::Precision::f32 : ops::Precision::bf16, cpu};
}

ops::cpu::Isa DeviceOptions::isa() const {
  auto isa = ops::cpu::choose_isa(cpu.empty() ? std::getenv("DGEM_CPU") : cpu.c_str());
  if (!isa) throw Exit(2, isa.error().message);
  return *isa;
}

std::shared_ptr<const model::Checkpoint> load_checkpoint_or_exit(const std::string& directory) {
  auto checkpoint = model::load_checkpoint(directory);
  if (!checkpoint) throw Exit(1, checkpoint.error().message);
  return std::make_shared<const model::Checkpoint>(std::move(*checkpoint));
}

std::shared_ptr<ops::Ops> make_device_or_exit(const ops::cpu::CpuOptions& options) {
  auto device = ops::cpu::make_cpu_ops(options);
  if (!device) throw Exit(2, device.error().message);
  return std::move(*device);
}

}  // namespace dgem::cli
