#!/usr/bin/env bash
# The one list of Debian/Ubuntu packages that k3c and k3exec need to build, run and pass their tests.
# Everything else in the tree calls this script; add a package here and nowhere else.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config git python3  # toolchain; Python: standard library only
  libflatbuffers-dev flatbuffers-compiler                   # the pack's index
  libxxhash-dev libzstd-dev                                 # hashes; side files
  libtbb-dev libcli11-dev libsimdjson-dev                   # parallel loops; flags; JSON
  libhwy-dev libpcre2-dev                                   # SIMD; the tokenizer's pattern
  libeigen3-dev                                             # eigenvalues of the solver's bound
  liburing-dev                                              # many reads in flight
  libcurl4-openssl-dev ca-certificates                      # headers of a remote checkpoint
  libgtest-dev                                              # tests
)
# Used when the distribution has them; without them the build is slower or the style test is skipped, nothing else.
optional=(ccache clang-format-14 clang-tidy-14)

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

missing=()
for package in "${packages[@]}" "${optional[@]}"; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

sudo=""
if ((EUID != 0)); then sudo=sudo; fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q >&2

wanted=()
for package in "${missing[@]}"; do
  if [[ " ${optional[*]} " == *" $package "* ]] && ! apt-cache show "$package" >/dev/null 2>&1; then
    echo "not in this distribution, going on without: $package" >&2
  else
    wanted+=("$package")
  fi
done
echo "installing: ${wanted[*]}" >&2
$sudo apt-get install -q -y --no-install-recommends "${wanted[@]}" >&2
