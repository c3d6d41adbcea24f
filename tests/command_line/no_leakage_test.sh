#!/usr/bin/env bash
# Held-out text is read by the final report alone. Every program that fits or chooses something runs here, in a folder that
# has the held-out texts beside the calibration texts, under a watch that sees every open.
watch=$(realpath "$(dirname "$0")/../watch_opens.py")
source "$(dirname "$0")/checks.sh"

mkdir text
for name in prose lexicon code; do
  for i in 1 2 3 4 5 6; do echo "{\"text\": \"$name and the words of the $i.\"}"; done >text/calibration-$name.jsonl
  echo "{\"text\": \"$name held out.\"}" >text/heldout-$name.jsonl
done
"$K3C" compile "$nano" -o nano.k3pack --quiet >/dev/null
"$K3C" compile "$nano" -o ternary.k3pack --trunk ternary --quiet >/dev/null

fits() { expect_status 0 python3 "$watch" text/heldout-*.jsonl -- "$@"; }
fits "$K3EXEC" capture nano.k3pack --text text/calibration-*.jsonl --calibration nano.k3cal --teacher nano.k3teach -q
fits "$K3EXEC" capture nano.k3pack --text text/calibration-*.jsonl --calibration p.k3cal --propagated ternary.k3pack -q
fits "$K3EXEC" sensitivity nano.k3pack --candidates ternary.k3pack --text text/calibration-*.jsonl -o nano.k3sens --max-tokens 256 -q
fits "$K3C" compile "$nano" -o auto.k3pack --trunk auto --sensitivity nano.k3sens --trunk-bits 3 --quiet
fits "$K3EXEC" fit ternary.k3pack --teacher-pack nano.k3pack --text text/calibration-*.jsonl -o ternary.k3tune -q
fits "$K3EXEC" tune ternary.k3pack --teacher-pack nano.k3pack --text text/calibration-*.jsonl --start ternary.k3tune -o ternary.k3tune \
  --steps 1 --step-tokens 256 --check-tokens 256 -q
fits "$K3C" compile "$nano" -o tuned.k3pack --trunk ternary --tuned ternary.k3tune --quiet

# A held-out file among the texts is refused before it is opened.
expect_status 1 python3 "$watch" text/heldout-*.jsonl -- "$K3EXEC" capture nano.k3pack --text text/*.jsonl --calibration x.k3cal
expect_one_line err "text/heldout-code.jsonl: is held-out text by its name"

# The calibration names the texts it is of.
python3 - <<'PYTHON' || fail "the calibration names other texts than it was given"
import json
data = open("nano.k3cal", "rb").read()
offset, length = (int.from_bytes(data[i : i + 8], "little") for i in (16, 24))
names = [text["name"] for text in json.loads(data[offset : offset + length])["texts"]]
assert names == ["calibration-code", "calibration-lexicon", "calibration-prose"], names
PYTHON

# The watch sees what is opened: a report may, and does.
expect_status 3 python3 "$watch" text/heldout-*.jsonl -- "$K3EXEC" eval nano.k3pack --text text/heldout-prose.jsonl -q
expect_line err "opened: text/heldout-prose.jsonl"
echo "only reports read held-out text"
