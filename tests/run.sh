#!/usr/bin/env bash
# The README's second command: installs what is missing, builds, and runs every test. Extra arguments go to ctest.
set -euo pipefail
cd "$(dirname "$0")/.."

.ci/install_packages.sh
cmake --preset release
cmake --build --preset release
exec ctest --preset release "$@"
