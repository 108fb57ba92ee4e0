#!/usr/bin/env bash
# Builds and runs the unit tests with sanitizers: address and undefined behaviour (clang), then data races (GCC).
#   scripts/sanitize.sh [all|address|thread [TEST...]]     TEST is a test program such as base_test
set -euo pipefail
cd "$(dirname "$0")/.."

which=${1:-all}
shift || true
export UBSAN_OPTIONS=print_stacktrace=1

# ThreadSanitizer needs its fixed addresses free, which strong address randomization does not promise.
fixed_addresses=()
if setarch --addr-no-randomize true 2>/dev/null; then fixed_addresses=(setarch --addr-no-randomize); fi

run() {  # run PRESET [TEST...]
  local preset=$1
  shift
  local only=()
  if [[ $# -gt 0 ]]; then
    # The names of the tests begin with the module: base.Json.ParsesEveryKind
    only=(-R "^($(IFS='|' && echo "${*%_test}"))[.]")
  fi
  cmake --preset "$preset" >/dev/null
  # The build runs each test program once, to list its tests.
  "${fixed_addresses[@]}" cmake --build "build/$preset" --target "${@:-all}"
  "${fixed_addresses[@]}" ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)" --no-tests=error "${only[@]}" </dev/null
}

if [[ $which == all || $which == address ]]; then run asan-ubsan "$@"; fi
if [[ $which == all || $which == thread ]]; then run tsan "$@"; fi
