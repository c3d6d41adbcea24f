#!/usr/bin/env bash
# k3exec from the command line: what it prints, what it refuses, and with which exit status.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
pack=nano.k3pack
"$K3C" compile "$K3_SOURCE_DIR/examples/nano/checkpoint" -o $pack --quiet >/dev/null

fail() { echo "FAILED: $*"; exit 1; }

# expect STATUS PATTERN COMMAND...: exit status, and one line on stderr that matches when the status is not 0.
expect() {
  local status=$1 pattern=$2 got=0
  shift 2
  "$@" >out 2>err || got=$?
  [[ $got == "$status" ]] || fail "$* exited with $got, expected $status: $(cat err)"
  if ((status == 1)); then
    [[ $(wc -l <err) == 1 ]] || fail "$*: stderr is not one line: $(cat err)"
    grep -qE "$pattern" err || fail "$*: stderr does not match '$pattern': $(cat err)"
  elif ((status == 0)); then
    grep -qE "$pattern" out || fail "$*: stdout does not match '$pattern': $(cat out)"
  fi
}

prompt="And it came to pass in the days of the king, that the people went up"
expect 0 "to the house of the LORD" "$K3EXEC" run $pack --prompt "$prompt" -n 24
cp out whole
printf '%s' "$prompt" >prompt.txt
expect 0 "to the house" "$K3EXEC" run $pack --prompt-file prompt.txt -n 24 --threads 1 --chunk-tokens 3
cmp out whole || fail "threads or chunks changed the text"
expect 0 '"finish_reason":"stop"' "$K3EXEC" run $pack -p "$prompt" -n 24 --json --stop " of the"
expect 0 '"text":" to the house"' "$K3EXEC" run $pack -p "$prompt" -n 24 --json --stop " of the"
expect 0 "." "$K3EXEC" run $pack -p "$prompt" -n 16 --temperature 1 --top-p 0.9 --seed 3
cp out drawn
expect 0 "." "$K3EXEC" run $pack -p "$prompt" -n 16 --temperature 1 --top-p 0.9 --seed 3
cmp out drawn || fail "the same seed drew other tokens"
expect 0 '"prompt_ids":\[2035,' "$K3EXEC" run $pack --chat -p "hi<|end_of_msg|>" -n 1 --json
expect 0 '"prompt_ids":\[2032,84\]' "$K3EXEC" run $pack --ids 2032,84 -n 1 --json

# The first layers alone are another model, and a state of it belongs to it.
expect 0 '"layers":3,' "$K3EXEC" run $pack --ids 2032,84 -n 1 --json --layers 3 --save-state three
expect 1 "three: has 14 tensors, expected 28" "$K3EXEC" run $pack -n 1 --load-state three
expect 0 '"layers":3,' "$K3EXEC" run $pack -n 1 --json --layers 3 --load-state three
expect 1 "layers is 9, expected 1 to 8, which nano.k3pack has" "$K3EXEC" run $pack -p x --layers 9

# A saved state goes on as if nothing had happened; a state of another pack is refused.
expect 0 "." "$K3EXEC" run $pack -p "$prompt" -n 10 --json --temperature 1 --seed 5 --save-state s
expect 0 "." "$K3EXEC" run $pack -n 14 --json --temperature 1 --seed 5 --load-state s
second=$(sed -E 's/.*"ids":\[([0-9,]*)\],"prefill.*/\1/' out)
expect 0 "." "$K3EXEC" run $pack -p "$prompt" -n 24 --json --temperature 1 --seed 5
[[ $(sed -E 's/.*"ids":\[([0-9,]*)\],"prefill.*/\1/' out) == *"$second" ]] || fail "the state did not go on"
"$K3C" compile "$K3_SOURCE_DIR/examples/nano/checkpoint" -o int8.k3pack --trunk int8 --quiet >/dev/null
expect 1 "s: the pack it belongs to is" "$K3EXEC" run int8.k3pack -n 1 --load-state s

# Evaluation, receipt, attach.
head -n 1 "$K3_SOURCE_DIR/examples/nano/text/heldout-lexicon.jsonl" >text.jsonl
expect 0 "KL in nats" "$K3EXEC" eval int8.k3pack --text text.jsonl --against $pack --receipt r.k3eval -q
expect 1 "mean KL is .* --max-kl allows 1e-09" "$K3EXEC" eval int8.k3pack --text text.jsonl --against $pack --max-kl 1e-9 -q
expect 0 "." "$K3C" attach int8.k3pack r.k3eval
expect 0 "mean_kl|k3eval" "$K3C" inspect int8.k3pack
expect 1 "r.k3eval: " "$K3C" attach $pack r.k3eval
expect 0 " of the bound, " "$K3EXEC" bench $pack --rounds 1 --prompt-tokens 8 --new-tokens 4
expect 0 '"share_of_bound"' "$K3EXEC" bench $pack --rounds 1 --prompt-tokens 8 --new-tokens 4 --json

# Wrong input: one line and 1. Wrong command line: 2.
expect 1 "absent.k3pack: cannot open" "$K3EXEC" run absent.k3pack -p x
expect 1 "prompt.txt: " "$K3EXEC" run prompt.txt -p x
expect 1 "not a regular file" "$K3EXEC" run $pack --load-state /dev/null
expect 1 "prompt.txt" "$K3EXEC" run $pack --load-state prompt.txt
expect 1 "token id is 2048" "$K3EXEC" run $pack --ids 2048
expect 1 "not a list of token ids" "$K3EXEC" run $pack --ids 1,x
expect 1 "UTF-8" "$K3EXEC" run $pack -p $'\xff'
expect 1 "rounds is 9223372036854775807, expected 1 to" "$K3EXEC" bench $pack --prompt-tokens 9223372036854775807
expect 1 "max-kl is nan, expected 0 or more" "$K3EXEC" eval $pack --text absent.txt --against $pack --max-kl nan
expect 1 "temperature is -1" "$K3EXEC" run $pack -p x --temperature=-1
expect 1 "backend is gpu" "$K3EXEC" run $pack -p x --backend gpu
export CUDA_VISIBLE_DEVICES=-1  # as on a machine without a GPU
expect 1 "no GPU can be used: |this build has no CUDA" "$K3EXEC" run $pack -p x --backend cuda
expect 0 "to the house of the LORD" "$K3EXEC" run $pack --prompt "$prompt" -n 24 --backend auto
cmp out whole || fail "--backend auto changed the text"
grep -qE "backend cpu: (no GPU|this build)" err || fail "--backend auto does not say why: $(cat err)"
expect 1 "numerics fp64 needs --backend cuda" "$K3EXEC" run $pack -p x --numerics fp64
expect 1 "numerics is double, expected exact or fp64" "$K3EXEC" run $pack -p x --numerics double
expect 1 "gpu-experts-gb needs --backend cuda" "$K3EXEC" run $pack -p x --gpu-experts-gb 1
expect 1 "expert-cache-gb" "$K3EXEC" run $pack -p x --expert-cache-gb 1e9
expect 1 "expert cache may take" "$K3EXEC" run $pack -p x --expert-cache-gb 0.00001
expect 1 "absent.txt: cannot open" "$K3EXEC" eval $pack --text absent.txt
expect 1 "cannot write" "$K3EXEC" run $pack -p x -n 1 --dump /nowhere/dump.safetensors
expect 2 "" "$K3EXEC" run $pack --no-such-flag
expect 2 "" "$K3EXEC"
expect 2 "" "$K3EXEC" run $pack -p a --ids 1
echo "all k3exec command lines behave"
