#!/usr/bin/env bash
# Checks the CUDA device on a machine with a GPU: operations against the CPU's reference, golden cases in both precisions
# of activations, and compute-sanitizer on small runs. Builds nothing.
# Usage: scripts/gpu_check.sh DGEM CUDA_TEST [GOLDENS]
#   DGEM, CUDA_TEST  the programs dgem and cuda_test of one build
#   GOLDENS          a folder of golden cases (default: tests/goldens)
# Exit status: 0 if all passes.
set -uo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,7s/^# //p' "$0" >&2
  exit 2
fi
dgem=$1 test=$2 goldens=${3:-$(dirname "$0")/../tests/goldens}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=()

# check NAME COMMAND...: runs it and shows its output if it fails.
check() {
  local name=$1
  shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    printf 'ok    %s\n' "$name"
  else
    failed+=("$name")
    printf 'FAIL  %s (exit status %s)\n' "$name" $?
    tail -n 25 "$log"
  fi
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "nvidia-smi does not run here"
check cuda_test "$test"
smallest=
for case in "$goldens"/*/; do
  name=$(basename "$case")
  [ -f "$case/golden.safetensors" ] || continue
  "$dgem" golden "$case" >/dev/null 2>&1
  if [ $? -eq 3 ]; then
    echo "skip  $name (not supported yet)"
    continue
  fi
  check "golden $name, f32 within 1e-4" "$dgem" golden "$case" --device cuda --activations f32 --tolerance 1e-4
  check "golden $name, bf16 within 2e-2" "$dgem" golden "$case" --device cuda --activations bf16 --tolerance 2e-2
  smallest=${smallest:-$case}
done

if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    check "$tool cuda_test" compute-sanitizer --tool "$tool" --error-exitcode 9 "$test" --gtest_filter='-*OutOfMemory*'
    if [ -n "$smallest" ]; then
      check "$tool golden $(basename "$smallest")" compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$dgem" golden "$smallest" --device cuda --activations bf16
    fi
  done
else
  echo "skip  compute-sanitizer is not installed"
fi

printf '%d passed, %d failed\n' "$passed" "${#failed[@]}"
for name in "${failed[@]}"; do printf '  failed: %s\n' "$name"; done
[ ${#failed[@]} -eq 0 ]
