#!/usr/bin/env bash
# Runs the README's first command and the kernels' tests in a fresh Debian or Ubuntu: tests/distribution.sh SUITE [FOLDER]
#
# SUITE is a release's name: bookworm, trixie, noble. The system is unpacked in FOLDER (default build/SUITE), what is committed is
# cloned into it, and nothing is written elsewhere. Needs root, debootstrap and a network, so it is not part of ctest: run it when
# the list of packages, the compilers' flags or schema/highway_targets.h change.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/.." && pwd)
suite=$1
folder=${2:-$source_folder/build/$suite}

mirror=http://deb.debian.org/debian
script=sid
options=(--variant=minbase)
if curl -sfIo /dev/null "http://archive.ubuntu.com/ubuntu/dists/$suite/Release"; then
  mirror=http://archive.ubuntu.com/ubuntu
  script=gutsy
  options+=(--components=main,universe)
  [[ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]] || options+=(--no-check-gpg)
fi
if [[ ! -d $folder/k3c ]]; then
  debootstrap "${options[@]}" "$suite" "$folder" "$mirror" "/usr/share/debootstrap/scripts/$script"
  git clone -q "$source_folder" "$folder/k3c"
else
  git -C "$folder/k3c" fetch -q "$source_folder" HEAD
  git -C "$folder/k3c" reset -q --hard FETCH_HEAD
fi
cp /etc/resolv.conf "$folder/etc/resolv.conf"
mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc"
mountpoint -q "$folder/dev" || mount --bind /dev "$folder/dev"
trap 'umount "$folder/proc" "$folder/dev"' EXIT
chroot "$folder" /bin/bash -ec '
  cd /k3c
  examples/quick_start.sh
  cmake --build --preset release --target kernels_tests
  build/release/tests/kernels_tests --gtest_brief=1'
