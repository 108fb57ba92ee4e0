// The dgem program: one command line over all parts.
#include "cli/commands.h"

#include "base/result.h"

#include <cstdio>
#include <exception>
#include <new>
#include <string>

namespace dgem::cli {
namespace {

constexpr const char* kAbout =
    "dgem answers typed questions about a state with a probability for every allowed answer,\n"
    "from one pass of a block-diffusion language model.";

constexpr const char* kExamples =
    "Examples:\n"
    "  dgem read --model models/nano --prompt-file examples/ticket.txt --answer-file examples/ticket.answer\n"
    "  dgem model info models/nano\n"
    "Each command explains itself: dgem COMMAND --help";

int fail(int status, const char* message) {
  std::fprintf(stderr, "dgem: %s\n", message);
  return status;
}

// The parser would call a misspelled command a missing one.
bool is_unknown_command(const CLI::App& app, const std::string& word) {
  if (!word.empty() && word[0] == '-') return false;
  const auto known = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == word; });
  return known.empty();
}

int run(int argc, char** argv) {
  CLI::App app(kAbout, "dgem");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", "dgem " DGEM_VERSION);
  add_read(app);
  add_model(app);
  add_synth(app);
  add_quantize(app);
  add_bench(app);
  add_golden(app);
  add_version(app);

  if (argc < 2) return fail(2, "expected a command; dgem --help lists them");
  if (is_unknown_command(app, argv[1])) {
    return fail(2, fmt::format("there is no command '{}'; dgem --help lists them", argv[1]).c_str());
  }
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    return fail(2, fmt::format("{}\nTry dgem --help, or --help after the command.", error.what()).c_str());
  } catch (const Exit& exit) {
    return fail(exit.status, exit.what());
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory");
  } catch (const std::exception& error) {  // Fault: a device or disk that failed
    return fail(1, error.what());
  }
}

}  // namespace
}  // namespace dgem::cli

int main(int argc, char** argv) { return dgem::cli::run(argc, argv); }
