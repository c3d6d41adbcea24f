#!/usr/bin/env bash
# From measured sensitivities to a budgeted trunk, and from a fit to a tuned pack.
source "$(dirname "$0")/checks.sh"

text=$K3_SOURCE_DIR/examples/nano/text
for format in bf16 ternary2 ternary; do
  "$K3C" compile "$nano" -o $format.k3pack --trunk $format --quiet >/dev/null
done
few="--window-tokens 48 --max-tokens 48 --quiet"

expect_status 1 "$K3EXEC" sensitivity bf16.k3pack --candidates ternary.k3pack --text "$text"/heldout-prose.jsonl -o s.k3sens $few
expect_one_line err "heldout-prose.jsonl: is held-out"
expect_status 0 "$K3EXEC" sensitivity bf16.k3pack --candidates ternary2.k3pack,ternary.k3pack \
  --text "$text"/calibration-prose.jsonl -o s.k3sens $few
expect_line out "^whole trunk +ternary2 +78 "
expect_line out "^kda +ternary +30 "

# A budget is kept, every matrix says why it is what it is, and the prediction is in the pack.
auto="--trunk auto --sensitivity s.k3sens --quiet"
expect_status 0 "$K3C" compile "$nano" -o auto.k3pack $auto --trunk-bits 2.5
expect_line out "^note: auto: [0-9]+ in ternary, [0-9]+ in ternary2; .* 2\.[34][0-9]* nominal bits .*predicted KL"
cp auto.k3pack again.k3pack
expect_status 0 "$K3C" compile "$nano" -o auto.k3pack $auto --trunk-bits 2.5 --threads 1
cmp auto.k3pack again.k3pack || fail "the same budget made another pack"
expect_status 0 "$K3C" inspect auto.k3pack
expect_line out "^option trunk bits: 2.5$"
expect_line out "^option sensitivity: [0-9a-f]{16}$"
expect_line out "^pass ternary_trunk: predicted KL: "
expect_status 0 "$K3C" explain auto.k3pack model.layers.0.mlp.down_proj.weight
expect_line out "decision .*ternary2?: what its sensitivity earns .*KL in nats"
expect_status 0 "$K3C" verify auto.k3pack --quiet

gigabytes() { "$K3C" inspect auto.k3pack --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["provenance"]["passes"]["ternary_trunk"]["trunk bytes"] / 1e9)'; }
expect_status 0 "$K3C" compile "$nano" -o auto.k3pack $auto --trunk-budget-gb 0.004
python3 -c "import sys; sys.exit(not 0.0035 < $(gigabytes) <= 0.004)" || fail "the trunk takes $(gigabytes) GB"
expect_status 0 "$K3C" compile "$nano" -o auto.k3pack $auto --max-kl 0
expect_line out "^note: auto: 78 in bf16; .*predicted KL 0:"
expect_status 1 "$K3C" compile "$nano" -o none.k3pack $auto --max-kl 1e-6 --trunk-budget-gb 0.004
expect_one_line err "s.k3sens: a predicted KL of 1e-06 is out of reach within the budget; the best point there is 0.00[0-9]* GB.*; the bound takes"
expect_status 1 "$K3C" compile "$nano" -o none.k3pack $auto --trunk-budget-gb 0.001
expect_one_line err "s.k3sens: the trunk does not fit the budget; the least is"
[[ ! -e none.k3pack ]] || fail "a pack was left behind"
expect_status 2 "$K3C" compile "$nano" -o none.k3pack $auto
expect_status 2 "$K3C" compile "$nano" -o none.k3pack --trunk auto --max-kl 1
expect_status 2 "$K3C" compile "$nano" -o none.k3pack --trunk ternary --max-kl 1

# Other weights, other sensitivities.
"$K3C" synth other --preset nano --quiet >/dev/null
expect_status 1 "$K3C" compile other -o none.k3pack $auto --max-kl 1
expect_one_line err "s.k3sens: tensor model.layers.0.[a-z_.]*.weight: was measured on weights"

# A fit is for one pack: with it the outputs change, codes and sizes do not; another pack refuses it.
expect_status 0 "$K3EXEC" fit ternary.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl \
  -o t.k3tune --window-tokens 64 --max-tokens 256 -q
expect_line out "^78 matrices fitted on 256 tokens: "
expect_status 0 "$K3C" compile "$nano" -o tuned.k3pack --trunk ternary --tuned t.k3tune --quiet
[[ $(stat -c %s tuned.k3pack) -ge $(stat -c %s ternary.k3pack) ]] || fail "the tuned pack is smaller"
expect_status 0 "$K3C" verify tuned.k3pack --quiet
expect_status 1 "$K3C" diff ternary.k3pack tuned.k3pack --check
expect_status 0 "$K3C" explain tuned.k3pack model.layers.3.self_attn.q_b_proj.weight
expect_line out "decision +tuning: tuned scales: "
expect_status 1 "$K3C" compile "$nano" -o none.k3pack --trunk ternary --experts compact --tuned t.k3tune --quiet
expect_one_line err "t.k3tune: was tuned for the pack with payload [0-9a-f]{16}, without it .* make payload [0-9a-f]{16}$"
[[ ! -e none.k3pack ]] || fail "a pack was left behind"
expect_status 1 "$K3C" compile "$nano" -o none.k3pack --trunk bf16 --tuned t.k3tune --quiet
expect_line err "expected a matrix with block scales or a norm's gain"

# Trained end to end, from the fit on: scales and gains, of which the pack takes both.
expect_status 0 "$K3EXEC" tune ternary.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl --start t.k3tune \
  -o end.k3tune --window-tokens 64 --steps 4 --step-tokens 128 --check-tokens 256 --json -q
python3 -c 'import json; found = json.load(open("out")); assert found["kl_after"] < found["kl_before"] and len(found["steps"]) == 4' \
  || fail "training brought the model no nearer"
expect_status 0 "$K3C" compile "$nano" -o end.k3pack --trunk ternary --tuned end.k3tune --quiet
expect_status 0 "$K3C" verify end.k3pack --quiet
expect_status 0 "$K3C" explain end.k3pack model.layers.3.self_attn.q_a_layernorm.weight
expect_line out "decision +tuning: tuned gain: "
expect_status 0 "$K3EXEC" tune ternary.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl --start end.k3tune \
  --codes --code-rate 0.3 -o codes.k3tune --window-tokens 64 --steps 2 --step-tokens 128 --check-tokens 256 -q
expect_status 0 "$K3C" compile "$nano" -o codes.k3pack --trunk ternary --tuned codes.k3tune --quiet
expect_status 0 "$K3C" verify codes.k3pack --quiet
expect_status 0 "$K3C" explain codes.k3pack model.layers.3.self_attn.q_b_proj.weight
expect_line out "decision +tuning: trained codes: "
expect_status 1 "$K3EXEC" tune ternary.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl --start codes.k3tune -o x.k3tune
expect_one_line err "codes.k3tune: tensor .*[.]codes: .* is nothing that ternary.k3pack has to be tuned, at least without --codes$"
expect_status 1 "$K3EXEC" tune end.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl --start t.k3tune -o x.k3tune
expect_one_line err "t.k3tune: was tuned for the pack with payload [0-9a-f]{16}, end.k3pack has [0-9a-f]{16}$"
expect_status 1 "$K3EXEC" tune ternary.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl --steps 0 -o x.k3tune
expect_one_line err "--steps is 0"
expect_status 1 "$K3EXEC" tune ternary.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl --check-tokens 9 -o x.k3tune
expect_one_line err "--window-tokens is 256 and --check-tokens 9, expected "
for flags in "--steps 9223372036854775807" "--step-tokens -1" "--learning-rate inf" "--codes --code-rate nan" \
  "--window-tokens 9223372036854775807 --check-tokens 9223372036854775807"; do
  expect_status 1 timeout 10 "$K3EXEC" tune ternary.k3pack --teacher-pack bf16.k3pack --text "$text"/calibration-prose.jsonl $flags -o x.k3tune
  expect_one_line err "^k3exec: --.*, expected "
done
[[ ! -e x.k3tune ]] || fail "a tuning was left behind"

# What cannot be written is known before hours of work.
for command in "tune ternary.k3pack --teacher-pack bf16.k3pack" "fit ternary.k3pack --teacher-pack bf16.k3pack" \
  "sensitivity bf16.k3pack --candidates ternary.k3pack"; do
  expect_status 1 timeout 3 "$K3EXEC" $command --text "$text"/calibration-*.jsonl -o nowhere/x
  expect_one_line err "nowhere/x: cannot write: No such file or directory$"
done
expect_status 1 timeout 3 "$K3EXEC" eval ternary.k3pack --text "$text"/heldout-*.jsonl --receipt nowhere/x
expect_one_line err "nowhere/x: cannot write: No such file or directory$"

# Any program can write a tuning. A final gain of zero makes all of the 2048 tokens equally likely.
"$K3C" inspect bf16.k3pack --json >bf16.json
python3 - <<'PYTHON'
import json, struct
pack = json.load(open("bf16.json"))
width = pack["config"]["hidden_size"]
header = json.dumps({
    "__metadata__": {"kind": "k3tune", "version": "1", "pack_payload_xxh3": pack["payload_xxh3"]},
    "model.norm.weight": {"dtype": "F32", "shape": [width], "data_offsets": [0, 4 * width]},
}).encode()
open("zero.k3tune", "wb").write(struct.pack("<Q", len(header)) + header + bytes(4 * width))
PYTHON
expect_status 0 "$K3C" compile "$nano" -o zero.k3pack --tuned zero.k3tune --quiet
echo "Any text at all, some words long." >text.txt
expect_status 0 "$K3EXEC" eval zero.k3pack --text text.txt --json -q
python3 -c 'import json; found = json.load(open("out"))["texts"][0]["perplexity"]; assert abs(found - 2048) < 1e-6, found' \
  || fail "a gain of zero left the model an opinion"
