#!/usr/bin/env bash
# The README's first command: installs what is missing, builds, compiles the bundled nano checkpoint, shows the pack, and
# generates text from it.
set -euo pipefail
cd "$(dirname "$0")/.."

.ci/install_packages.sh
cmake --preset release
cmake --build --preset release --target k3c k3exec

bin=build/release
pack=$bin/nano.k3pack
prompt="And it came to pass in the days of the king, that the people went up"

$bin/k3c compile examples/nano/checkpoint -o $pack
$bin/k3c inspect $pack
echo
echo "$prompt"
$bin/k3exec run $pack --prompt "$prompt" -n 48
