#!/usr/bin/env bash
# The expert cache from the command line: no flag of it changes a token, each changes what is reported or is refused.
source "$(dirname "$0")/checks.sh"
pack=nano.k3pack
"$K3C" compile "$nano" -o $pack --quiet >/dev/null
prompt="And it came to pass in the days of the king, that the people went up"

ids() { sed -E 's/.*"ids":\[([0-9,]*)\],"prefill.*/\1/' out; }

expect_status 0 "$K3EXEC" run $pack -p "$prompt" -n 12 --json
expect_line out '"all_held":true,"reads":"buffered, '
want=$(ids)
for flags in "" "--expert-cache-policy lru" "--expert-cache-policy lru-per-layer" "--prefetch 4" "--expert-reads buffered" \
  "--no-verify" "--chunk-tokens 5" "--missing fetch" "--missing drop"; do
  # shellcheck disable=SC2086  # several words
  expect_status 0 "$K3EXEC" run $pack -p "$prompt" -n 12 --json --expert-cache-gb 0.0018 $flags
  [[ $(ids) == "$want" ]] || fail "$flags changed the tokens"
  expect_line out '"all_held":false,'
  expect_line out '"misses":[1-9]'
done
expect_status 0 "$K3EXEC" run $pack -p "$prompt" -n 12 --json --expert-cache-gb 0.0018 --prefetch 4
expect_line out '"prefetch_hits":[1-9]'
expect_status 0 "$K3EXEC" run $pack -p "$prompt" -n 12 --json --expert-cache-gb 0.0018 --expert-reads buffered
expect_line out '"reads":"buffered, '

expect_status 0 "$K3EXEC" bench $pack --rounds 1 --prompt-tokens 8 --new-tokens 4 --expert-cache-gb 0.0018
expect_line out '^experts of a decoded token: '
expect_status 0 "$K3EXEC" bench $pack --rounds 1 --prompt-tokens 8 --new-tokens 4 --expert-cache-gb 0.0018 --json
expect_line out '"token_to_compute_and_read": [0-9]'

expect_status 1 "$K3EXEC" run $pack -p x --expert-cache-gb 0.00005
expect_one_line err "nano.k3pack: the expert cache may take 50000 bytes, one layer's 4 experts need 65536"
expect_status 1 "$K3EXEC" run $pack -p x --expert-cache-gb 0.0003 --expert-cache-policy lru-per-layer
expect_one_line err "7 layers' 4 experts need 458752"
expect_status 1 "$K3EXEC" run $pack -p x --prefetch=-1
expect_one_line err "--prefetch is -1, expected 0 or more"
expect_status 2 "$K3EXEC" run $pack -p x --expert-cache-policy mru
expect_line err "is mru, expected one of lru,lru-per-layer,lfu-decayed"
expect_status 2 "$K3EXEC" run $pack -p x --missing ignore
head -n 1 "$K3_SOURCE_DIR/examples/nano/text/heldout-lexicon.jsonl" >text.jsonl
expect_status 1 "$K3EXEC" eval $pack --text text.jsonl --receipt r --missing drop
expect_one_line err "--receipt is about a pack as it runs unasked"

# A damaged expert is one line, when it is fetched. The experts are the second half of the file; those far inside it are all
# damaged, since which of them a text asks for is the model's business.
python3 - $pack <<'PYTHON'
import os, sys
size = os.path.getsize(sys.argv[1])
with open(sys.argv[1], "r+b") as pack:
    for page in range(size * 6 // 10 // 4096, size * 9 // 10 // 4096):
        pack.seek(page * 4096 + 8)
        byte = pack.read(1)[0]
        pack.seek(page * 4096 + 8)
        pack.write(bytes([byte ^ 0x55]))
PYTHON
expect_status 1 "$K3EXEC" run $pack --prompt-file "$nano/../text/heldout-prose.jsonl" -n 1 --expert-cache-gb 0.0018
expect_one_line err "nano.k3pack: layer [0-9]+ expert [0-9]+: is damaged: its hash does not match its bytes"
echo "all expert cache command lines behave"
