// dgem bench: speed on this machine, beside what the machine can do at most.
#include "cli/commands.h"
#include "cli/device_options.h"

#include "base/json.h"
#include "bench/engine_bench.h"
#include "bench/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

namespace dgem::cli {
namespace {

constexpr const char* kFooter =
    "Times are medians. 'of peak' compares with multiply-adds in registers and with reading memory, measured in the same\n"
    "run; 'of floor' is the least time that either allows, over the time taken.\n"
    "Examples:\n"
    "  dgem bench engine --model models/nano\n"
    "  dgem bench engine --model DIR --prompt 256 --canvas 32 --profile";

struct Options {
  std::string model;
  DeviceOptions device;
  bench::EngineBenchOptions engine;
  bool profile = false, json = false;
};

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

json::Value to_json(const bench::EngineBenchResult& result, const bench::MachinePeak& peak, const std::string& device,
                    double load, double mapped) {
  json::Value out;
  out.set("device", device);
  out.set("peak", json::Object{{"flops", peak.flops}, {"read_bytes_per_s", peak.read_bytes}});
  out.set("load_s", load);
  out.set("first_pass_s", result.first_pass);
  out.set("mapped_bytes", mapped);
  out.set("peak_resident_bytes", peak_resident_bytes());
  json::Array passes;
  for (const auto& p : result.passes) {
    passes.push_back(json::Object{{"name", p.name},
                                  {"rows", p.rows},
                                  {"runs", p.runs},
                                  {"median_s", p.median},
                                  {"best_s", p.best},
                                  {"flop", p.work.flops()},
                                  {"weight_bytes", p.work.weight_bytes},
                                  {"of_peak_flops", p.work.flops() / p.median / peak.flops},
                                  {"of_peak_read", p.work.weight_bytes / p.median / peak.read_bytes},
                                  {"of_floor", p.floor(peak) / p.median}});
  }
  out.set("passes", std::move(passes));
  json::Value spent = json::Object{};
  for (const auto& [name, s] : result.spent) spent.set(name, s.seconds / result.fused_runs);
  out.set("fused_seconds_by_operation", std::move(spent));
  return out;
}

void print(const bench::EngineBenchResult& result, const bench::MachinePeak& peak) {
  std::printf("%-8s %5s %10s %10s %9s %9s %8s %9s %8s %9s\n", "pass", "rows", "median ms", "best ms", "rows/s", "GFLOP/s",
              "of peak", "GB/s", "of peak", "of floor");
  for (const auto& p : result.passes) {
    std::printf("%-8s %5d %10.2f %10.2f %9.0f %9.1f %7.1f%% %9.1f %7.1f%% %8.1f%%\n", p.name.c_str(), p.rows, p.median * 1e3,
                p.best * 1e3, p.rows / p.median, p.work.flops() / p.median / 1e9,
                100 * p.work.flops() / p.median / peak.flops, p.work.weight_bytes / p.median / 1e9,
                100 * p.work.weight_bytes / p.median / peak.read_bytes, 100 * p.floor(peak) / p.median);
  }
}

void print_profile(const bench::EngineBenchResult& result) {
  std::vector<std::pair<std::string, bench::TimedOps::Spent>> rows(result.spent.begin(), result.spent.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double total = 0;
  for (const auto& [name, s] : rows) total += s.seconds;
  std::printf("\nfused pass by operation\n%-16s %7s %10s %7s\n", "operation", "calls", "ms", "share");
  for (const auto& [name, s] : rows) {
    std::printf("%-16s %7lld %10.3f %6.1f%%\n", name.c_str(), static_cast<long long>(s.calls / result.fused_runs),
                s.seconds / result.fused_runs * 1e3, 100 * s.seconds / total);
  }
}

// Of a GPU only the memory is measured, by copies within it, which read and write; its arithmetic sets no bound here.
bench::MachinePeak device_peak(ops::Ops& device) {
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr int kCopies = 8;
  const ops::Buffer from = device.allocate(kBytes), to = device.allocate(kBytes);
  const double seconds = bench::best_seconds(5, [&] {
    for (int i = 0; i < kCopies; ++i) device.copy(to.get(), from.get(), kBytes);
    std::byte last;
    device.download(&last, to.get() + kBytes - 1, 1);  // waits for the copies
  });
  return {std::numeric_limits<double>::infinity(), 2.0 * kCopies * kBytes / seconds};
}

bench::MachinePeak machine_peak(const DeviceOptions& options) {
  if (options.on_cuda()) return device_peak(*make_device_or_exit(options));
  ThreadPool pool(options.threads);
  return bench::measure_peak(options.isa(), options.precision(), pool);
}

void run(const Options& options) {
  const bench::MachinePeak peak = machine_peak(options.device);
  std::shared_ptr<bench::TimedOps> timed;
  std::unique_ptr<model::Model> model;
  const double load = bench::seconds_of([&] {
    auto checkpoint = load_checkpoint_or_exit(options.model, options.device);
    timed = std::make_shared<bench::TimedOps>(make_device_or_exit(options.device));
    model = std::make_unique<model::Model>(std::move(checkpoint), timed);
  });
  const double mapped = static_cast<double>(model->checkpoint().files.mapped_bytes());
  const auto result = bench::bench_engine(*model, *timed, options.engine);
  if (options.json) {
    std::printf("%s\n", json::write(to_json(result, peak, timed->name(), load, mapped), 2).c_str());
    return;
  }
  std::printf("%s on %s: prompt %d, canvas %d, batch %d\n", options.model.c_str(), timed->name().c_str(),
              options.engine.prompt, options.engine.canvas, options.engine.batch);
  if (options.device.on_cuda()) {
    std::printf("machine: %.1f GB/s memory read and written; arithmetic is not measured on a GPU\n", peak.read_bytes / 1e9);
  } else {
    std::printf("machine: %.1f GFLOP/s multiply-add, %.1f GB/s memory read\n", peak.flops / 1e9, peak.read_bytes / 1e9);
  }
  std::printf("loaded in %.3f s, first fused pass %.3f s; %.2f GB mapped, %.2f GB resident at most\n\n", load,
              result.first_pass, mapped / 1e9, peak_resident_bytes() / 1e9);
  print(result, peak);
  if (options.profile) print_profile(result);
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed on this machine");
  bench->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* command = bench->add_subcommand("engine", "Time prefill, read and fused passes of one batch");
  command->footer(kFooter);
  command->add_option("--model", options->model, "Checkpoint directory")->required();
  command->add_option("--prompt", options->engine.prompt, "Tokens of each prompt")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--canvas", options->engine.canvas, "Tokens of each canvas")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--batch", options->engine.batch, "Decisions in a pass")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--runs", options->engine.runs, "Timed runs of each pass; 0: about four seconds of them")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  options->device.add_to(*command);
  command->add_flag("--profile", options->profile, "Also the time of each kind of operation");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { run(*options); });
}

}  // namespace dgem::cli
