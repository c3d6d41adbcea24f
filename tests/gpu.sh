#!/usr/bin/env bash
# Builds the GPU's kernels for the card of this machine, checks their bits against the committed vectors, times them, and
# prints one table. Needs nvcc, CMake, ninja and a driver; none of our libraries and no network.
#
# Usage: tests/gpu.sh [--build-only ARCHITECTURES] [BUILD_FOLDER]
#   --build-only   compile and link for these compute capabilities ("90;120"), without a card
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
architectures=
if [[ ${1-} == --build-only ]]; then
  architectures=$2
  shift 2
fi
build=${1-$root/build/gpu}
run=true
if [[ -n $architectures ]]; then
  run=false
else
  command -v nvidia-smi > /dev/null || { echo "gpu.sh: no nvidia-smi: this machine has no NVIDIA driver" >&2; exit 1; }
  # Of all cards: the one that CUDA calls the first need not be nvidia-smi's.
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader) ||
    { echo "gpu.sh: nvidia-smi fails: $capabilities" >&2; exit 1; }
  architectures=$(sort -u <<< "$capabilities" | tr -d '. ' | paste -sd ';')
fi
mkdir -p "$(dirname "$build")"
cmake -S "$root/tests/gpu" -B "$build" -G Ninja -DK3_GPU_ARCHITECTURES="$architectures" > "$build.log" 2>&1 ||
  { cat "$build.log" >&2; exit 1; }
cmake --build "$build" >> "$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
if $run; then "$build/gpu_kernels" "$root/tests/golden/kernels"; fi
