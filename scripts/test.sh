#!/usr/bin/env bash
# Everything that must hold before a change goes in; `make test` and .ci/run call this. It goes on after a failure, so
# that one run shows all of them, and ends with a line for each step and the summary of the unit tests.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build

results=()
failed=0
step() {  # step NAME COMMAND...
  local name=$1 start=$SECONDS verdict=passed
  shift
  printf '\n== %s\n' "$name"
  if ! "$@" </dev/null; then
    verdict=FAILED
    failed=1
  fi
  results+=("$(printf '%-32s %s, %d s' "$name" "$verdict" $((SECONDS - start)))")
  [[ $verdict == passed ]]
}

unit_tests() {
  ctest --test-dir build/release --output-on-failure -j "$(nproc)" --no-tests=error | tee build/unit_tests.log
}

build() { cmake --preset release && cmake --build --preset release; }

if step "build" build; then
  step "unit tests" unit_tests
  for check in scripts/check_*.sh; do
    [[ -e $check ]] && step "$(basename "$check" .sh)" "$check" build/release
  done
fi
step "address and undefined sanitizer" scripts/sanitize.sh address
step "thread sanitizer" scripts/sanitize.sh thread base_test model_test
step "fuzzing" scripts/fuzz.sh "${DGEM_FUZZ_SECONDS:-5}"

printf '\n'
printf '%s\n' "${results[@]}"
# The summary of the unit tests: how many passed, and the names of those that did not.
[[ -e build/unit_tests.log ]] && sed -n '/tests passed/,$p' build/unit_tests.log
exit "$failed"
