#!/usr/bin/env bash
# Builds the kernels and their tests for 64-bit Arm and runs them under qemu: tests/aarch64.sh [FOLDER] [GTEST_ARGUMENT...]
#
# Debian's own packages are fetched into FOLDER (default build/aarch64) and unpacked there; nothing is installed and no root is
# needed. Not part of ctest: it wants a network the first time. Compilers and qemu that are on the PATH are used instead.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$source_folder/build/aarch64}
shift || true
jobs=${JOBS:-2}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# fetch ARCHITECTURE ROOT PACKAGE...: downloads and unpacks, with package lists of our own.
fetch() {
  local architecture=$1 root=$2
  shift 2
  local apt=$folder/apt-$architecture
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$root"
  touch "$apt/status"
  local options=(-qq -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
    -o Dir::Cache="$apt" -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$apt/archives" && apt-get "${options[@]}" download "$@")
  for package in "$apt"/archives/*.deb; do dpkg -x "$package" "$root"; done
}

tools=$folder/tools
sysroot=$folder/sysroot
if [[ ! -d $sysroot ]]; then
  if ! command -v aarch64-linux-gnu-g++ >/dev/null; then
    fetch "$(dpkg --print-architecture)" "$tools" g++-12-aarch64-linux-gnu gcc-12-aarch64-linux-gnu cpp-12-aarch64-linux-gnu \
      gcc-12-aarch64-linux-gnu-base binutils-aarch64-linux-gnu libc6-dev-arm64-cross libc6-arm64-cross linux-libc-dev-arm64-cross \
      libstdc++-12-dev-arm64-cross libstdc++6-arm64-cross libgcc-12-dev-arm64-cross libgcc-s1-arm64-cross qemu-user-static
    ln -sf aarch64-linux-gnu-g++-12 "$tools/usr/bin/aarch64-linux-gnu-g++"
    ln -sf qemu-aarch64-static "$tools/usr/bin/qemu-aarch64"
  fi
  fetch arm64 "$sysroot.part" libhwy1 libhwy-dev libtbb12 libtbb-dev
  mv "$sysroot.part" "$sysroot"
fi
if [[ -d $tools ]]; then
  export PATH="$tools/usr/bin:$PATH" LD_LIBRARY_PATH="$tools/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

# The files that the tests need: of the runtime, the table of backends. gtest is built from Debian's sources.
cd "$source_folder"
libraries=$sysroot/usr/lib/aarch64-linux-gnu
sources=(kernels/*.cc schema/{error,float_product,format}.cc runtime/backend.cc tests/kernels/*_test.cc tests/kernels/vector_cases.cc)
gtest=/usr/src/googletest/googletest
flags=(-std=c++20 -O2 -ffp-contract=off -fno-fast-math -Wall -Wextra -Wconversion -Wshadow -Werror -I"$source_folder"
  -isystem "$sysroot/usr/include" -isystem "$sysroot/usr/include/aarch64-linux-gnu" -isystem "$gtest/include"
  -DHWY_SHARED_DEFINE -DHWY_BROKEN_EMU128=1 -DHWY_WANT_AVX3_DL -DK3_SOURCE_DIR="\"$source_folder\"" -DK3_BINARY_DIR="\"$folder\"" -DK3_VERSION='"aarch64"')
mkdir -p "$folder/objects"
objects=()
commands=()
add() {  # add SOURCE FLAG...
  local object
  object=$folder/objects/$(tr '/+' '__' <<<"$1").o
  objects+=("$object")
  if [[ -f $object && -f $object.d ]] && [[ -z $(sed 's/^[^:]*://; s/\\$//' "$object.d" | tr -s ' ' '\n' |
    xargs -r -I{} find {} -newer "$object" -print -quit 2>&1 | head -1) ]]; then return; fi
  commands+=("aarch64-linux-gnu-g++ $(printf '%q ' "${@:2}") -MMD -MF $(printf '%q' "$object.d") -c $1 -o $(printf '%q' "$object")")
}
for source in "${sources[@]}"; do
  [[ -f $source ]] && add "$source" "${flags[@]}"
done
for source in "$gtest/src/gtest-all.cc" "$gtest/src/gtest_main.cc"; do
  add "$source" -std=c++20 -O1 -isystem "$gtest/include" -I"$gtest"
done
((${#commands[@]} == 0)) || printf '%s\0' "${commands[@]}" | xargs -0 -P "$jobs" -I{} bash -c {}
# The cross C library's linker scripts name files from the root on: of the packages, if it came from there.
root=()
[[ -d $tools ]] && root=("--sysroot=$tools")
aarch64-linux-gnu-g++ "${root[@]}" "${objects[@]}" -o "$folder/kernels_tests" -L"$libraries" -Wl,-rpath-link,"$libraries" -lhwy -ltbb -lpthread

# The cross C library where the compiler keeps it, ours behind it.
interpreter=$tools/usr/aarch64-linux-gnu
[[ -d $interpreter ]] || interpreter=/usr/aarch64-linux-gnu
for cpu in ${CPUS:-max}; do
  echo "qemu-aarch64 -cpu $cpu"
  qemu-aarch64 -cpu "$cpu" -L "$interpreter" -E LD_LIBRARY_PATH="$libraries:$interpreter/lib" "$folder/kernels_tests" "$@"
done
