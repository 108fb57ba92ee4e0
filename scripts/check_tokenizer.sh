#!/bin/sh
# Compares our tokenizer with a JavaScript one over the real Gemma vocabulary; fails on any difference.
#   scripts/check_tokenizer.sh [BUILD_DIRECTORY] [TEXTS] [SEED]
# Needs node, npm, and the target tokenizer_encode built in the build directory (default: build).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
program=$build/tests/tokenizer/tokenizer_encode
if [ ! -x "$program" ]; then
  echo "$program is missing: build it with 'cmake --build $build --target tokenizer_encode'" >&2
  exit 2
fi
program=$(cd "$(dirname "$program")" && pwd)/tokenizer_encode
cd "$root/tests/tokenizer"
[ -d node_modules ] || npm ci --no-audit --no-fund
exec node diff.mjs "$program" "${2:-2400}" "${3:-1}"
