#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (default 60), from its corpus in fuzz/corpus/<name>/. New inputs that reach new code
# are kept in build/fuzz/corpus/<name>/; an input that fails is kept in build/fuzz/failures/ and ends the script.
#   scripts/fuzz.sh [SECONDS] [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for source in fuzz/*.cpp; do names+=("$(basename "$source" .cpp)"); done
fi

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${names[@]/#/fuzz_}"

mkdir -p build/fuzz/failures
for name in "${names[@]}"; do
  mkdir -p "build/fuzz/corpus/$name" "fuzz/corpus/$name"
  echo "fuzz_$name for $seconds s"
  if ! "build/fuzz/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/failures/"$name-" \
    "build/fuzz/corpus/$name" "fuzz/corpus/$name" </dev/null >"build/fuzz/$name.log" 2>&1; then
    tail -n 60 "build/fuzz/$name.log"
    echo "fuzz_$name failed; run it again with: build/fuzz/fuzz/fuzz_$name build/fuzz/failures/$name-..." >&2
    exit 1
  fi
  sed -n 's/^stat::number_of_executed_units: */  inputs tried: /p' "build/fuzz/$name.log"
done
