// dgem synth: a checkpoint with random weights.
#include "cli/commands.h"
#include "cli/interrupt.h"

#include "base/terminal.h"
#include "base/thread_pool.h"
#include "model/synth.h"

#include <filesystem>
#include <memory>
#include <string>

namespace dgem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    "The weights mean nothing, but have the sizes, formats and moderate values of a real checkpoint. The same seed gives\n"
    "the same bytes. --config takes a config.json of a DiffusionGemma model; text_config is enough.\n"
    "Example:\n"
    "  dgem synth --config config.json --format nvfp4 --layers 6 --seed 1 -o /tmp/synthetic";

struct Options {
  std::string config, format = "nvfp4", output, tokenizer;
  int layers = 0, threads = 0;
  uint64_t seed = 0;
};

void run(const Options& options) {
  auto root = json::parse_file(options.config);
  if (!root) throw Exit(2, root.error().message);
  const Interrupt interrupt;
  ThreadPool pool(options.threads);
  const model::SynthOptions synth{.format = *model::parse_synth_format(options.format),
                                  .layers = options.layers,
                                  .seed = options.seed,
                                  .stop = &interrupt.flag(),
                                  .show_progress = true};
  if (auto made = model::synthesize(*root, synth, options.output, pool); !made) {
    const Error& error = made.error();
    throw Exit(2, error.pointer.empty() ? error.message
                                        : fmt::format("{}: {} (at {})", options.config, error.message, error.pointer));
  }
  if (options.tokenizer.empty()) return;
  std::error_code code;
  fs::copy_file(options.tokenizer, fs::path(options.output) / "tokenizer.json", fs::copy_options::overwrite_existing, code);
  if (code) throw Exit(1, fmt::format("cannot copy {}: {}", options.tokenizer, code.message()));
}

}  // namespace

void add_synth(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("synth", "Make a checkpoint with random weights");
  command->footer(kFooter);
  command->add_option("--config", options->config, "config.json with the model's sizes")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--format", options->format, "How weights are stored; nvfp4 packs the routed experts")
      ->check(CLI::IsMember({"nvfp4", "bf16", "f32"}))
      ->capture_default_str();
  command->add_option("--layers", options->layers, "Number of layers, in place of the configuration's")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seed", options->seed, "Seed of the weights")->capture_default_str();
  command->add_option("-o,--output", options->output, "Directory to write to")->required();
  command->add_option("--tokenizer", options->tokenizer, "tokenizer.json to copy into it")->check(CLI::ExistingFile);
  command->add_option("--threads", options->threads, "Threads (0: one for each processor)")->check(CLI::Range(0, 1024));
  command->callback([options] { run(*options); });
}

}  // namespace dgem::cli
