#!/usr/bin/env bash
# Installs the Debian 12 packages that a job needs, those only that are missing.
#   scripts/install_packages.sh [--tests|--format]     without an option: to build
set -euo pipefail

packages=(g++ cmake ninja-build ccache libfmt-dev rapidjson-dev libcli11-dev libgtest-dev librapidcheck-dev)
case "${1:-}" in
  --tests)
    packages+=(clang libclang-rt-14-dev)
    # Node may come from elsewhere than Debian, and then brings npm with it.
    command -v node >/dev/null || packages+=(nodejs)
    command -v npm >/dev/null || packages+=(npm)
    ;;
  --format) packages=(clang-format) ;;
esac

if ! command -v dpkg >/dev/null; then
  echo "This is not Debian; install what corresponds to: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then exit 0; fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages: ${missing[*]}. Install them as root, or install sudo." >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null >>"$log" 2>&1; }
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
  cat "$log" >&2
  echo "apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
