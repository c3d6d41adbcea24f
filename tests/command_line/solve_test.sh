# A trunk solved for calibration: captured, solved, resumed from the work folder, the same bytes at any thread count, better
# than rounding on documents that the solver did not see, and refused for another model's weights.
source "$(dirname "$0")/checks.sh"
nano="$K3_SOURCE_DIR/examples/nano"

head -n 12 "$nano/text/calibration-prose.jsonl" >calibration-prose.jsonl
expect_status 0 "$K3C" compile "$nano/checkpoint" -o nano.k3pack --quiet
expect_status 0 "$K3EXEC" capture nano.k3pack --text calibration-prose.jsonl --calibration nano.k3cal --quiet

solve=("$K3C" compile "$nano/checkpoint" --trunk ternary --calibration nano.k3cal --quiet)
expect_status 0 "${solve[@]}" -o one.k3pack --threads 1 --keep-work
expect_line out '^note: 78 matrices are solved for calibration: their outputs are off by [0-9.]+ % on select documents'
[[ $(ls one.k3pack.work | wc -l) == 78 ]] || fail "the work folder has $(ls one.k3pack.work | wc -l) files"
expect_status 0 "$K3C" verify one.k3pack --quiet
expect_status 0 "${solve[@]}" -o two.k3pack --threads 2
[[ ! -e two.k3pack.work ]] || fail "two.k3pack.work is left"
cmp one.k3pack two.k3pack || fail "the thread count changed the pack"

# What was solved and then tuned has the tuned scales; the errors that it lists are those of the solver.
cp -r one.k3pack.work tuned.k3pack.work
expect_status 0 "$K3EXEC" tune one.k3pack --teacher-pack nano.k3pack --text calibration-prose.jsonl -o one.k3tune --steps 1 \
  --window-tokens 64 --step-tokens 64 --check-tokens 64 -q
expect_status 0 "${solve[@]}" -o tuned.k3pack --tuned one.k3tune
expect_status 0 "$K3C" verify tuned.k3pack --quiet
expect_status 0 "$K3C" inspect tuned.k3pack
expect_line out '^output error of [0-9]+ kda matrices in ternary, before tuning: '

# A second compile finds the work of the first, but for what was damaged or lost.
mv one.k3pack.work three.k3pack.work
touched=$(ls three.k3pack.work | head -n 1)
printf 'x' >>"three.k3pack.work/$touched"
rm "three.k3pack.work/$(ls three.k3pack.work | tail -n 1)"
expect_status 0 "$K3C" compile "$nano/checkpoint" --trunk ternary --calibration nano.k3cal -o three.k3pack
expect_line err '^solve: 76 matrices were solved before'
cmp one.k3pack three.k3pack || fail "solutions from the work folder gave another pack"

# The errors are in the pack, for people and programs, and far below rounding's.
expect_status 0 "$K3C" inspect one.k3pack
expect_line out '^output error of [0-9]+ kda matrices in ternary: [0-9.]+ % fit, [0-9.]+ % select, bound [0-9.]+ %$'
expect_line out '^option calibration: [0-9a-f]{16}$'
expect_status 0 "$K3C" inspect one.k3pack --json
python3 - <<'PYTHON' || fail "see above"
import json
rows = json.load(open("out"))["trunk_errors"]
assert len(rows) == 78, len(rows)
for row in rows:
    assert row["format"] == "ternary" and 1.6 < row["stored_bits"] < 4, row
    # No step loses what the one before had won (the first is no step but where others stop); the ridge costs a little.
    order = [row[f"{step}_fit"] for step in ("exact_scale", "feedback", "descent")]
    assert order[2] <= order[1] * 1.01 and order[2] <= order[0], row
    assert row["fit"] < row["rounding_fit"] and row["select"] < row["rounding_select"], row
PYTHON

# Without solving, a dry run says what would be done; text that was not captured is no calibration.
expect_status 0 "${solve[@]}" --dry-run
[[ ! -e .work ]] || fail "a dry run left a work folder"
"$K3C" synth other --preset nano --quiet >/dev/null
expect_status 1 "$K3C" compile other -o other.k3pack --trunk ternary --calibration nano.k3cal --quiet
expect_one_line err '^k3c: nano\.k3cal: .*'
[[ ! -e other.k3pack && ! -e other.k3pack.work ]] || fail "a refused compile left something"
head -c 1000 nano.k3cal >cut.k3cal
expect_status 1 "$K3C" compile "$nano/checkpoint" -o cut.k3pack --trunk ternary --calibration cut.k3cal --quiet
expect_one_line err '^k3c: cut\.k3cal: .*'
