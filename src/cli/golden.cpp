// dgem golden: the forward pass against recorded reference values.
#include "cli/commands.h"

#include "base/json.h"
#include "cli/device_options.h"
#include "model/golden.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace dgem::cli {
namespace {

constexpr int kFailed = 1, kBadInput = 2, kUnsupported = 3;

constexpr const char* kFooter =
    "DIR holds a checkpoint and golden.safetensors, as the script that makes golden cases writes them.\n"
    "With bf16 activations the errors are medians over rows, and those behind the last layer (-) are not judged.\n"
    "Exit status: 0 all within the tolerance, 1 not, 2 DIR cannot be read, 3 DIR needs what dgem does not do yet.\n"
    "Examples:\n"
    "  dgem golden tests/goldens/odd --cpu all\n"
    "  dgem golden tests/goldens/odd --device cuda\n"
    "  dgem golden tests/goldens/modelopt --activations bf16 --json";

struct Options {
  std::string directory;
  DeviceOptions device;    // cpu may be "all"
  double tolerance = 0.0;  // 0: by the activations
  bool as_json = false;
};

struct Run {
  std::string device;
  model::GoldenReport report;
};

// The value, or ends the command with the error; `about` where the error does not say what it is about.
template <class T>
T need(Result<T> result, const std::string& about = "") {
  if (!result) throw Exit(kBadInput, about + result.error().message);
  return std::move(result).value();
}

// The device, or, with --cpu all, one for each instruction set.
std::vector<DeviceOptions> devices(const DeviceOptions& options) {
  if (options.cpu != "all" || options.on_cuda()) return {options};
  std::vector<DeviceOptions> all;
  for (const ops::cpu::Isa isa : ops::cpu::available()) all.emplace_back(options).cpu = ops::cpu::name_of(isa);
  return all;
}

void print(const Run& run) {
  fmt::print("{}\n{:<18} {:>6}  {:>13}  {:<3}  {}\n", run.device, "kind", "count", "largest error", "ok", "where");
  for (const model::GoldenCheck& c : run.report.checks) {
    const std::string error =
        c.exact ? (c.worst == 0.0 ? "equal" : fmt::format("{:.2g} unequal", c.worst)) : fmt::format("{:.2e}", c.worst);
    fmt::print("{:<18} {:>6}  {:>13}  {:<3}  {}\n", c.kind, c.count, error, c.ok ? (c.judged ? "yes" : "-") : "NO",
               c.worst == 0.0 ? "" : c.where);
  }
  fmt::print("read.logits: most likely token as recorded in {:.1f} % of rows, mean |Δp| against the runner-up {:.2e}\n\n",
             100.0 * run.report.top_agreement, run.report.mean_probability_gap);
}

json::Value to_json(const Run& run) {
  json::Array checks;
  for (const model::GoldenCheck& c : run.report.checks) {
    checks.push_back(json::Object{{"kind", c.kind},
                                  {"count", c.count},
                                  {"exact", c.exact},
                                  {"largest_error", c.worst},
                                  {"where", c.where},
                                  {"judged", c.judged},
                                  {"ok", c.ok}});
  }
  return json::Object{{"device", run.device},
                      {"ok", run.report.ok()},
                      {"checks", std::move(checks)},
                      {"top_agreement", run.report.top_agreement},
                      {"mean_probability_gap", run.report.mean_probability_gap}};
}

void run_command(const Options& options) {
  const std::string path = options.directory + "/golden.safetensors";
  const auto golden = need(model::TensorFiles::open_file(path));
  if (model::golden_has_images(golden)) {
    throw Exit(kUnsupported, options.directory + " needs image rows, which are not supported yet");
  }
  const auto checkpoint = load_checkpoint_or_exit(options.directory, options.device);
  const double tolerance = options.tolerance > 0.0 ? options.tolerance : options.device.activations == "bf16" ? 2e-2 : 1e-4;

  std::vector<Run> runs;
  for (const DeviceOptions& one : devices(options.device)) {
    const auto device = make_device_or_exit(one);
    model::Model model(checkpoint, device);
    runs.push_back({device->name(), need(model::run_golden(model, golden, tolerance), path + ": ")});
    if (!options.as_json) print(runs.back());
  }
  const bool ok = std::all_of(runs.begin(), runs.end(), [](const Run& run) { return run.report.ok(); });
  if (options.as_json) {
    json::Array list;
    for (const Run& run : runs) list.push_back(to_json(run));
    const json::Value all = json::Object{{"directory", options.directory},
                                         {"activations", options.device.activations},
                                         {"tolerance", tolerance},
                                         {"ok", ok},
                                         {"runs", std::move(list)}};
    fmt::print("{}\n", json::write(all, 2));
  }
  if (!ok) throw Exit(kFailed, fmt::format("{} is not reproduced within {:g}", options.directory, tolerance));
}

}  // namespace

void add_golden(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("golden", "Check the forward pass against recorded reference values");
  command->add_option("DIR", options->directory, "Checkpoint with golden.safetensors")->required();
  options->device.activations = "f32";
  options->device.add_to(*command);
  command->get_option("--cpu")->description(
      "Instruction set: reference, avx2, avx512, amx, or all that are here (default: "
      "DGEM_CPU, else the fastest)");
  command->add_option("--tolerance", options->tolerance, "Largest relative error; 1e-4 for f32, 2e-2 for bf16 if not given")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->as_json, "Print the result as JSON");
  command->footer(kFooter);
  command->callback([options] { run_command(*options); });
}

}  // namespace dgem::cli
