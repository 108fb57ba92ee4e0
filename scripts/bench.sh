#!/usr/bin/env bash
# Measures the engine on this machine and prints the tables of docs/performance.md: each instruction set with the model
# that ships and, where a folder is given, with the checkpoint in it.
#   scripts/bench.sh [CHECKPOINT]
set -euo pipefail
cd "$(dirname "$0")/.."
dgem=bin/dgem
for set in amx avx512 avx2; do
  $dgem bench engine --model models/nano --prompt 200 --canvas 32 --cpu "$set" --profile || continue
  if [[ $# -gt 0 ]]; then $dgem bench engine --model "$1" --prompt 256 --canvas 32 --cpu "$set" --profile; fi
  echo
done
