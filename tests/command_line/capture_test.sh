#!/usr/bin/env bash
# k3exec capture from the command line: a capture that is killed at any moment goes on and gives the bytes of one that was
# not; files are merged; what is wrong is said in one line.
source "$(dirname "$0")/checks.sh"
"$K3C" compile "$nano" -o nano.k3pack --quiet >/dev/null
for i in $(seq 24); do
  echo "{\"text\": \"And king $i reigned in his stead over the people of the land, and did that which was evil.\"}"
done >calibration-kings.jsonl
for i in $(seq 8); do echo "{\"text\": \"def word_$i(self, value): return value + $i\"}"; done >calibration-words.jsonl

capture=("$K3EXEC" capture nano.k3pack --text calibration-kings.jsonl --calibration out.k3cal --teacher out.k3teach --top-k 8 --trace out.k3trace)
expect_status 0 "${capture[@]}" --json
"$K3C" trace stats out.k3trace --json >want.stats
mv out.k3cal want.k3cal
mv out.k3teach want.k3teach

# Killed when the journal has reached a given line, and again at once after it went on.
for lines in 1 2 4 6 9; do
  "${capture[@]}" -q >/dev/null & process=$!
  until [[ $(wc -l 2>/dev/null <out.k3cal.work/journal) -ge $lines ]]; do
    kill -0 $process 2>/dev/null || break
    sleep 0.002
  done
  kill -9 $process 2>/dev/null || true
  wait $process 2>/dev/null || true
  [[ ! -e out.k3cal ]] || fail "a killed capture left a calibration under its final name"
  timeout -s KILL 0.05 "${capture[@]}" -q >/dev/null 2>&1 || true
  [[ ! -e out.k3cal ]] || continue
  expect_status 0 "${capture[@]}" --threads 1 --chunk-tokens 7
  ((lines < 3)) || expect_line err "goes on behind layer [1-8]"
  cmp out.k3cal want.k3cal || fail "a capture killed at line $lines and continued gave another calibration"
  cmp out.k3teach want.k3teach || fail "a capture killed at line $lines and continued gave another teacher"
  "$K3C" trace stats out.k3trace --json | cmp - want.stats || fail "a capture killed at line $lines and continued gave another trace"
  [[ ! -e out.k3cal.work ]] || fail "the work folder stayed"
  rm out.k3cal out.k3teach out.k3trace
done

# What is left of one capture is not mixed into another.
"${capture[@]}" -q >/dev/null & process=$!
until [[ -s out.k3cal.work/journal ]]; do sleep 0.002; done
kill -9 $process && wait $process 2>/dev/null || true
expect_status 1 "${capture[@]}" --window-tokens 4
expect_one_line err "journal: belongs to a capture of other packs, texts or options; remove its folder"
rm -r out.k3cal.work

expect_status 0 "$K3EXEC" capture nano.k3pack --text calibration-words.jsonl --calibration words.k3cal -q
expect_status 0 "$K3EXEC" capture --merge want.k3cal words.k3cal --calibration both.k3cal
expect_line out "^both.k3cal: 50 inputs of 106 matrices"
cp words.k3cal third.k3cal
expect_status 1 "$K3EXEC" capture --merge want.k3cal words.k3cal third.k3cal --calibration third.k3cal
expect_one_line err "third.k3cal: is one of the files to merge, expected another path"
cmp words.k3cal third.k3cal || fail "a refused merge wrote over one of its files"
expect_status 1 "$K3EXEC" capture --merge both.k3cal words.k3cal --calibration x.k3cal
expect_one_line err "is in both and would count twice"
expect_status 1 "$K3EXEC" capture --merge want.k3cal nano.k3pack --calibration x.k3cal
expect_one_line err "nano.k3pack: not a calibration"
expect_status 1 "$K3EXEC" capture --merge want.k3cal --calibration x.k3cal
expect_status 1 "$K3EXEC" capture nano.k3pack --text absent.jsonl --calibration x.k3cal
expect_one_line err "absent.jsonl: cannot open"
expect_status 1 "$K3EXEC" capture nano.k3pack --text calibration-words.jsonl --calibration absent/x.k3cal
expect_one_line err "absent/x.k3cal.work: cannot create the work folder"
expect_status 2 "$K3EXEC" capture nano.k3pack --no-such-flag
[[ ! -e x.k3cal && ! -e x.k3cal.work ]] || fail "a refused capture left files"
echo "captures go on after a kill"
