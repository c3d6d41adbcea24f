# What every command-line test starts with: a folder of its own, and checks that say what failed. Source it.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
nano=$K3_SOURCE_DIR/examples/nano/checkpoint

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect_status N command...: runs it with stdout and stderr in files out and err.
expect_status() {
  local want=$1 got=0
  shift
  "$@" >out 2>err || got=$?
  [[ $got == "$want" ]] || fail "$* ended with status $got, expected $want; stderr: $(cat err)"
}

expect_line() {  # expect_line FILE PATTERN: some line of FILE matches
  grep -qE -- "$2" "$1" || fail "no line of $1 matches '$2'; it has: $(cat "$1")"
}

expect_one_line() {  # expect_one_line FILE PATTERN: FILE is one line, which matches
  [[ $(wc -l <"$1") == 1 ]] || fail "$1 should be one line; it has: $(cat "$1")"
  expect_line "$1" "$2"
}
