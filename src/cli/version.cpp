// dgem version: what this program is and what it finds on this machine.
#include "cli/commands.h"

#include "base/thread_pool.h"
#include "ops/cpu/cpu_ops.h"

#include <fmt/format.h>

namespace dgem::cli {

void add_version(CLI::App& app) {
  CLI::App* command = app.add_subcommand("version", "Show the version, and the processors and instruction set in use");
  command->callback([] {
    fmt::print("dgem {}\n{} threads, instruction sets:", DGEM_VERSION, ThreadPool::usable_processors());
    for (const ops::cpu::Isa isa : ops::cpu::available()) fmt::print(" {}", ops::cpu::name_of(isa));
    fmt::print("\n");
  });
}

}  // namespace dgem::cli
