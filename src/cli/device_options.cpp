#include "cli/device_options.h"

#include "base/limits.h"
#include "ops/cuda/cuda_ops.h"

#include <charconv>
#include <cstdlib>
#include <optional>

namespace dgem::cli {
namespace {

// N of cuda:N, 0 of cuda; nothing if it is neither.
std::optional<int> cuda_device(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (name.substr(0, kCuda.size()) != kCuda) return std::nullopt;
  name.remove_prefix(kCuda.size());
  if (name.empty()) return 0;
  int device = 0;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), device);
  if (name[0] != ':' || error != std::errc() || end != name.data() + name.size() || device < 0) return std::nullopt;
  return device;
}

std::string check_device(const std::string& name) {
  if (name == "cpu" || cuda_device(name)) return {};
  return "the device is cpu, cuda or cuda:N, not '" + name + "'";
}

}  // namespace

void DeviceOptions::add_to(CLI::App& command) {
  command.add_option("--device", device, "Where to compute: cpu, cuda, or cuda:N for GPU N")
      ->check(check_device)
      ->envname("DGEM_DEVICE")
      ->capture_default_str();
  command.add_option("--threads", threads, "Threads; 0: one for each processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--activations", activations, "Precision of activations in matrix products")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  command.add_option("--cpu", cpu, "Instruction set: reference, avx2, avx512 or amx (default: DGEM_CPU, else the fastest)");
}

ops::cpu::Isa DeviceOptions::isa() const {
  auto isa = ops::cpu::choose_isa(cpu.empty() ? std::getenv("DGEM_CPU") : cpu.c_str());
  if (!isa) throw Exit(2, isa.error().message);
  return *isa;
}

std::shared_ptr<const model::Checkpoint> load_checkpoint_or_exit(const std::string& directory, const DeviceOptions& device) {
  auto checkpoint = model::load_checkpoint(directory);
  if (!checkpoint) throw Exit(2, checkpoint.error().message);
  if (device.on_cuda()) return std::make_shared<const model::Checkpoint>(std::move(*checkpoint));
  if (const Status fits = model::check_fits(*checkpoint, usable_memory()); !fits) throw Exit(2, fits.error().message);
  return std::make_shared<const model::Checkpoint>(std::move(*checkpoint));
}

std::shared_ptr<ops::Ops> make_device_or_exit(const DeviceOptions& options) {
  auto device = options.on_cuda() ? ops::cuda::make_cuda_ops({cuda_device(options.device).value_or(0), options.precision()})
                                  : ops::cpu::make_cpu_ops(options.cpu_options());
  if (!device) throw Exit(2, device.error().message);
  return std::move(*device);
}

}  // namespace dgem::cli
