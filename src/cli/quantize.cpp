// dgem quantize: a checkpoint in smaller formats.
#include "cli/commands.h"
#include "cli/interrupt.h"

#include "base/json.h"
#include "base/terminal.h"
#include "model/quantize.h"

#include <map>
#include <memory>
#include <string>

namespace dgem::cli {
namespace {

constexpr const char* kFooter =
    "Packs linear layers as NVFP4 (4.5 bits a weight) in modelopt's layout, searching the scale of each block for the "
    "least\n"
    "squared error. experts: the routed experts, nine tenths of the weights; all: also attention, dense MLP and\n"
    "self-conditioning. --embedding fp8 stores the tied embedding in 8 bits with a scale per row, which dgem reads.\n"
    "Errors are relative: |packed - original| / |original|.\n"
    "Example:\n"
    "  dgem quantize CHECKPOINT --what experts -o CHECKPOINT-NVFP4";

struct Options {
  std::string directory, format = "nvfp4", what = "experts", embedding, output;
  int threads = 0;
  bool as_json = false;
};

// Modules of one role that fared alike, as one line of the table.
struct Line {
  int64_t modules = 0, elements = 0;
  double error = 0.0, norm = 0.0;
  const model::QuantizedModule* worst = nullptr;
};

void print_table(const model::QuantizeReport& report) {
  std::map<std::string, Line> lines;
  for (const auto& m : report.modules) {
    const std::string change = m.kept.empty() ? fmt::format("{} -> {}", name_of(m.from), name_of(m.to)) : "kept: " + m.kept;
    Line& line = lines[fmt::format("{:<28} {}", m.role, change)];
    ++line.modules;
    line.elements += m.elements;
    line.error += m.squared_error;
    line.norm += m.squared_norm;
    if (m.kept.empty() && (line.worst == nullptr || m.relative_error() > line.worst->relative_error())) line.worst = &m;
  }
  fmt::print("{:>8} {:>10} {:>9} {:>9}  {:<28} {}\n", "modules", "weights", "error", "largest", "role", "change");
  for (const auto& [text, line] : lines) {
    if (line.worst == nullptr) {
      fmt::print("{:>8} {:>9.1f}M {:>9} {:>9}  {}\n", line.modules, static_cast<double>(line.elements) / 1e6, "", "", text);
      continue;
    }
    model::QuantizedModule all{.role = {}, .name = {}, .kept = {}};
    all.squared_error = line.error;
    all.squared_norm = line.norm;
    fmt::print("{:>8} {:>9.1f}M {:>8.2f}% {:>8.2f}%  {}\n", line.modules, static_cast<double>(line.elements) / 1e6,
               100.0 * all.relative_error(), 100.0 * line.worst->relative_error(), text);
  }
  fmt::print("{} -> {}\n", human_size(static_cast<uint64_t>(report.bytes_before)),
             human_size(static_cast<uint64_t>(report.bytes_after)));
}

void print_json(const model::QuantizeReport& report) {
  json::Array modules;
  for (const auto& m : report.modules) {
    json::Object object;
    object.emplace_back("name", m.name);
    object.emplace_back("role", m.role);
    object.emplace_back("from", name_of(m.from));
    object.emplace_back("to", name_of(m.to));
    object.emplace_back("parameters", m.elements);
    if (m.kept.empty()) {
      object.emplace_back("relative_error", m.relative_error());
    } else {
      object.emplace_back("kept", m.kept);
    }
    modules.emplace_back(std::move(object));
  }
  json::Object root;
  root.emplace_back("bytes_before", report.bytes_before);
  root.emplace_back("bytes_after", report.bytes_after);
  root.emplace_back("modules", std::move(modules));
  fmt::print("{}\n", json::write(std::move(root), 2));
}

void run(const Options& options) {
  auto checkpoint = model::load_checkpoint(options.directory);
  if (!checkpoint) throw Exit(2, checkpoint.error().message);
  const Interrupt interrupt;
  ThreadPool pool(options.threads);
  const model::QuantizeOptions quantize{.dense = options.what == "all",
                                        .fp8_embedding = options.embedding == "fp8",
                                        .stop = &interrupt.flag(),
                                        .show_progress = true};
  const auto report = model::quantize(*checkpoint, quantize, options.output, pool);
  if (!report) throw Exit(2, report.error().message);
  options.as_json ? print_json(*report) : print_table(*report);
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("quantize", "Pack a checkpoint's weights into smaller formats");
  command->footer(kFooter);
  command->add_option("DIR", options->directory, "Checkpoint to read")->required();
  command->add_option("--format", options->format, "Format of the packed layers")
      ->check(CLI::IsMember({"nvfp4"}))
      ->capture_default_str();
  command->add_option("--what", options->what, "Which layers to pack")
      ->check(CLI::IsMember({"experts", "all"}))
      ->capture_default_str();
  command->add_option("--embedding", options->embedding, "Format of the embedding (default: as it is)")
      ->check(CLI::IsMember({"fp8"}));
  command->add_option("-o,--output", options->output, "Directory to write to")->required();
  command->add_option("--threads", options->threads, "Threads (0: one for each processor)")->check(CLI::Range(0, 1024));
  command->add_flag("--json", options->as_json, "Print every module as JSON");
  command->callback([options] { run(*options); });
}

}  // namespace dgem::cli
