# A compile that is killed at any moment can be continued, and then gives the bytes of one that was not. The first
# argument is how often it is killed.
source "$(dirname "$0")/checks.sh"
kills=${1:-50}

"$K3C" synth large --preset odd --experts 400 --quiet >/dev/null
compile=("$K3C" compile large -o out.k3pack --trunk int8 --head int8 --quiet)

cat >kill.py <<'PYTHON'
# kill.py SECONDS command...: runs it, kills it SECONDS after its journal appeared (before zero: before that), and prints
# "killed" or how many seconds of its own it had from there to its end.
import os, subprocess, sys, time
moment = float(sys.argv[1])
process = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
begun = time.monotonic()
while moment >= 0 and process.poll() is None and not os.path.exists("out.k3pack.unfinished.journal"):
    time.sleep(0.0005)
    begun = time.monotonic()
while process.poll() is None and time.monotonic() - begun < abs(moment):
    time.sleep(0.0005)
if process.poll() is None:
    process.kill()
    process.wait()
    print("killed")
elif process.returncode == 0:
    print(time.monotonic() - begun)
else:
    sys.exit(f"the compile ended with status {process.returncode}")
PYTHON

seconds=$(python3 kill.py 1000 "${compile[@]}")
mv out.k3pack want.k3pack
landed=0
for i in $(seq "$kills"); do
  moment=$(python3 -c "import random; random.seed($i); print(random.uniform(-0.1, 1) * $seconds)")
  said=$(python3 kill.py "$moment" "${compile[@]}" --resume)
  if [[ $said == killed && -e out.k3pack.unfinished.journal ]]; then
    landed=$((landed + 1))
    cp --sparse=always out.k3pack.unfinished left.unfinished
    cp out.k3pack.unfinished.journal left.journal
  fi
  # Every other one is killed again, on what the first has left.
  if ((i % 2)); then python3 kill.py "$moment" "${compile[@]}" --resume >/dev/null; fi
  expect_status 0 "${compile[@]}" --resume
  cmp out.k3pack want.k3pack || fail "kill $i after $moment s and --resume gave another pack"
  [[ $(echo out.k3pack*) == out.k3pack ]] || fail "--resume left $(echo out.k3pack*)"
  rm out.k3pack
done
((landed > kills / 3)) || fail "only $landed of $kills kills came in the middle"
echo "$landed of $kills kills came in the middle"

left() {  # what a killed compile left, anew; --sparse keeps the reserved but unwritten part from taking disk
  rm -f out.k3pack
  cp --sparse=always left.unfinished out.k3pack.unfinished
  cp left.journal out.k3pack.unfinished.journal
}
resumed_to_the_same() {
  expect_status 0 "${compile[@]}" --resume --json
  cmp out.k3pack want.k3pack || fail "$1: --resume gave another pack"
}
resumed_bytes() { python3 -c 'import json; print(json.load(open("out"))["resumed_bytes"])'; }

left
resumed_to_the_same "untouched"
whole=$(resumed_bytes)
((whole > 0)) || fail "nothing was taken over"

# A journal cut anywhere costs what it no longer claims.
size=$(stat -c %s left.journal)
for at in 0 1 55 56 57 111 112 113 $((size / 2)) $((size - 1)); do
  left
  truncate -s "$at" out.k3pack.unfinished.journal
  resumed_to_the_same "journal cut at $at"
  (($(resumed_bytes) <= whole)) || fail "a shorter journal claims more"
done

flip() {  # flip FILE OFFSET: one bit of that byte
  python3 - "$@" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte ^ 16]))
PYTHON
}

# A bit that flipped in a finished extent, or between two, or in the journal.
left
first=$(python3 -c '
import struct
journal = open("left.journal", "rb").read()
print(min(struct.unpack_from("<Q", journal, at)[0] for at in range(56, len(journal) - 55, 56)))
')
# Extents of the trunk lie in the order of the items.
at=$("$K3C" inspect want.k3pack --report sources | python3 -c "
import sys
name = sys.stdin.read().split('\n')[1 + $first].split('\t')[0].removeprefix('language_model.')
print(name)
")
at=$("$K3C" explain want.k3pack "$at" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["extent"]["offset_bytes"])')
flip out.k3pack.unfinished $((at + 3))
expect_status 0 "$K3C" compile large -o out.k3pack --trunk int8 --head int8 --resume
expect_line err 'were there; 1 were damaged and encoded again$'
cmp out.k3pack want.k3pack || fail "a damaged extent was taken over"
for offset in 70 5000; do
  left
  flip out.k3pack.unfinished $offset
  resumed_to_the_same "a bit at $offset"
done
for offset in 3 60 100 130; do
  left
  flip out.k3pack.unfinished.journal $offset
  resumed_to_the_same "a bit of the journal at $offset"
done
left
truncate -s 1000000 out.k3pack.unfinished
resumed_to_the_same "an unfinished pack that was cut"

# Other options, another checkpoint, no --resume: refused, and nothing is lost.
left
before=$(sha256sum out.k3pack.unfinished out.k3pack.unfinished.journal)
expect_status 1 "${compile[@]}"
expect_one_line err '^k3c: out\.k3pack\.unfinished: is the work of a compile that was killed; go on with it by --resume, or remove it'
expect_status 1 "$K3C" compile large -o out.k3pack --quiet --resume
expect_one_line err '^k3c: out\.k3pack\.unfinished\.journal: was begun with other options, '
shard=$(echo large/*.safetensors | cut -d' ' -f2)
touch -r "$shard" time
touch "$shard"
expect_status 1 "${compile[@]}" --resume
expect_one_line err 'a shard of the checkpoint has changed since'
touch -r time "$shard"
[[ $(sha256sum out.k3pack.unfinished out.k3pack.unfinished.journal) == "$before" ]] || fail "a refusal cost work"
resumed_to_the_same "after the refusals"
(($(resumed_bytes) == whole)) || fail "after the refusals $(resumed_bytes) bytes were taken over, $whole were there"

# SIGTERM leaves the work when --resume was given, and says how to go on.
rm out.k3pack
"${compile[@]}" --resume --threads 1 >out 2>err &
process=$!
for _ in $(seq 500); do
  [[ -e out.k3pack.unfinished.journal ]] && break
  sleep 0.01
done
kill -TERM $process
wait $process && fail "the compile was over before it could be interrupted"
expect_one_line err '^k3c: interrupted; --resume goes on with out\.k3pack\.unfinished$'
resumed_to_the_same "SIGTERM"
