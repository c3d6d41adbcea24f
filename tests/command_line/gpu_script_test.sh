#!/usr/bin/env bash
# tests/gpu.sh on machines that are not this one: what it builds for which cards, and what it says when there is none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "FAILED: $*"; exit 1; }

# pretend PROGRAM LINE...: PROGRAM becomes a script of these lines.
mkdir bin
pretend() {
  printf '%s\n' '#!/usr/bin/env bash' "${@:2}" >"bin/$1"
  chmod +x "bin/$1"
}
run_script() { PATH=$folder/bin:$PATH bash "$K3_SOURCE_DIR/tests/gpu.sh" "$folder/build" >out 2>err; }

pretend nvidia-smi 'echo "no devices were found"' 'exit 6'
pretend cmake 'exit 1'
run_script && fail "it went on without a card"
[[ $(cat err) == "gpu.sh: nvidia-smi fails: no devices were found" ]] || fail "it said: $(cat err)"

# Cards of two kinds, named one by one: every kind is built for, and nobody dies of a pipe that nobody reads.
pretend nvidia-smi 'echo 9.0' 'sleep 0.1' 'echo 12.0' 'sleep 0.1' 'echo 9.0'
pretend cmake 'echo "$@"' 'exit 1'
run_script && fail "it went on when cmake failed"
grep -q -- "-DK3_GPU_ARCHITECTURES=120;90 *$" err || fail "it built for other cards: $(cat err)"
