# A damaged byte anywhere is found and named; the stand-alone reader agrees in both cases.
source "$(dirname "$0")/checks.sh"
reader=$K3_SOURCE_DIR/tests/spec_reader.py

"$K3C" compile "$nano" -o n.k3pack --trunk int8 --quiet >compiled
payload=$(grep -oE 'payload [0-9a-f]{16}' compiled)
expect_status 0 python3 "$reader" n.k3pack
expect_line out "^n\.k3pack: OK, [0-9]+ bytes, $payload$"
expect_line out ' layer 7 expert 63 mxfp4$'
expect_line out ' lm_head\.weight bf16 row_major \[2048, 256\]$'

damage() {  # damage OFFSET: a copy of the pack with one bit of that byte flipped
  cp n.k3pack damaged.k3pack
  python3 - "$1" <<'PYTHON'
import sys
at = int(sys.argv[1])
with open("damaged.k3pack", "r+b") as file:
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 16]))
PYTHON
}

size=$(stat -c %s n.k3pack)
for at in 5 20 60 100 4096 1000000 $((size / 2)) $((size - 100000)) $((size - 20000)) $((size - 1)); do
  damage "$at"
  expect_status 1 "$K3C" verify damaged.k3pack --quiet
  expect_one_line err '^k3c: damaged\.k3pack: '
  expect_status 1 python3 "$reader" --quiet damaged.k3pack
done

damage 100
printf x >>damaged.k3pack
expect_status 1 "$K3C" verify damaged.k3pack --quiet
expect_one_line err 'has 1 bytes after its end'
damage 4096
expect_status 1 "$K3C" verify damaged.k3pack --quiet --json
python3 -c '
import json
said = json.load(open("out"))
assert said["whole"] is False and len(said["faults"]) == 1, said
' || fail "the JSON of verify is wrong: $(cat out)"
