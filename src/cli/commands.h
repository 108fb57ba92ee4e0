// One function per command, each in its own file; main.cpp calls them all.
#pragma once

#include <CLI/CLI.hpp>

#include <stdexcept>

namespace dgem::cli {

// Ends the command with a message on standard error and this exit status.
struct Exit : std::runtime_error {
  Exit(int status_, const std::string& message) : std::runtime_error(message), status(status_) {}
  int status;
};

void add_golden(CLI::App& app);
void add_model(CLI::App& app);  // model info
void add_synth(CLI::App& app);
void add_quantize(CLI::App& app);
void add_read(CLI::App& app);
void add_bench(CLI::App& app);  // bench engine
void add_version(CLI::App& app);

}  // namespace dgem::cli
