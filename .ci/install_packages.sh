#!/usr/bin/env bash
# The one list of Debian/Ubuntu packages that k3c and k3exec need to build, run and pass their tests.
# Everything else in the tree calls this script; add a package here and nowhere else.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config git python3  # toolchain; Python: standard library only
  libflatbuffers-dev flatbuffers-compiler                  # the pack's index
  libxxhash-dev libzstd-dev                                # hashes; side files
  libtbb-dev libcli11-dev libsimdjson-dev                  # parallel loops; flags; JSON
  libhwy-dev libpcre2-dev                                  # SIMD; the tokenizer's pattern
  libcurl4-openssl-dev ca-certificates                     # headers of a remote checkpoint
  libgtest-dev libbenchmark-dev                            # tests and benchmarks
  clang-format-14 clang-tidy-14                            # style and lint, checked by the tests
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

echo "installing: ${missing[*]}" >&2
sudo=""
if ((EUID != 0)); then sudo=sudo; fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q >&2
$sudo apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
