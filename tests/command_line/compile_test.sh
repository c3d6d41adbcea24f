# A compile of the nano checkpoint, seen from outside: results on stdout, progress on stderr, same bytes every time.
source "$(dirname "$0")/checks.sh"

expect_status 0 "$K3C" compile "$nano" -o a.k3pack
expect_line out '^routed experts +mxfp4 +1,344 +11,010,048 +4\.250 '
expect_line out '^a\.k3pack: [0-9,]+ bytes, payload [0-9a-f]{16}$'
expect_line err '^encode: '
expect_status 0 "$K3C" compile "$nano" -o b.k3pack --quiet --threads 1
[[ ! -s err ]] || fail "--quiet is not quiet: $(cat err)"
cmp a.k3pack b.k3pack || fail "two compiles differ"

expect_status 0 "$K3C" compile "$nano" -o c.k3pack --trunk int8 --head int8 --json --quiet
python3 -c '
import json, os, sys
said = json.load(open("out"))
assert said["file_bytes"] == os.path.getsize("c.k3pack"), said
rows = {(row["family"], row["format"]): row for row in said["rows"]}
assert 8.05 < rows["head", "int8"]["bits_per_weight"] < 11, rows["head", "int8"]
assert ("router", "int8") not in rows and ("embedding", "int8") not in rows
' || fail "the JSON of compile is wrong: $(cat out)"

for options in "" "--trunk int8" "--head int8" "--trunk ternary" "--trunk ternary2 --head int8"; do
  # shellcheck disable=SC2086
  expect_status 0 "$K3C" compile "$nano" --dry-run --json --quiet $options
  predicted=$(python3 -c 'import json; print(json.load(open("out"))["file_bytes"])')
  # shellcheck disable=SC2086
  expect_status 0 "$K3C" compile "$nano" -o d.k3pack --quiet $options
  [[ $predicted == $(stat -c %s d.k3pack) ]] || fail "dry run predicted $predicted bytes, $(stat -c %s d.k3pack) were written"
done

expect_status 0 "$K3C" verify c.k3pack
expect_one_line out '^c\.k3pack: OK, [0-9,]+ bytes, payload [0-9a-f]{16}, .*/s$'
expect_status 0 "$K3C" inspect c.k3pack
expect_line out '^option trunk: int8$'
expect_line out '^pass census: trunk tensors: 210$'
expect_status 0 "$K3C" inspect c.k3pack --json
python3 -m json.tool out >/dev/null || fail "the JSON of inspect is none"
expect_status 0 "$K3C" inspect c.k3pack --report decisions
expect_line out '^lm_head\.weight	ternary_trunk	int8	asked for'
expect_status 0 "$K3C" inspect c.k3pack --report sources
expect_line out '^language_model\.lm_head\.weight	model-00009-of-000009\.safetensors	'

# The stored rate of a ternary trunk is the arithmetic of its layout: nano's 256 inputs are two blocks.
for format in ternary ternary2; do
  expect_status 0 "$K3C" compile "$nano" -o t.k3pack --trunk $format --quiet
  expect_line out "^note: 78 matrices are $format by rounding alone, untrained: their weights are off by [0-9.]+ %"
  expect_line out "^latent +$format +14 "
  expect_status 0 "$K3C" verify t.k3pack
  expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" t.k3pack
  expect_line out " model\.layers\.0\.mlp\.up_proj\.weight $format blocks160 "
  expect_status 0 "$K3C" inspect t.k3pack --report decisions
  expect_line out "^model\.layers\.0\.mlp\.up_proj\.weight	ternary_trunk	$format	asked for; rounded, not trained; .*	0\.[0-9]+$"
done
expect_status 2 "$K3C" compile "$nano" -o t.k3pack --head ternary

expect_status 0 "$K3C" compile "$nano" --stop-after census --quiet
expect_line out '^census: trunk tensors: 210$'
expect_status 0 "$K3C" census "$nano"

# Compact experts: fewer bytes, the same model to the last bit.
expect_status 0 "$K3C" compile "$nano" -o compact.k3pack --experts compact --quiet
expect_status 0 "$K3C" verify compact.k3pack --quiet
expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" --quiet compact.k3pack
expect_status 0 "$K3C" explain compact.k3pack model.layers.3.experts.17
expect_line out '^  stored as +mxfp4 in expert_bands_compact, 4\.125 bits per weight$'
expect_status 0 "$K3C" inspect compact.k3pack
expect_line out "^routed experts +mxfp4 +1,344 +11,010,048 +4\.125 "
for pack in a compact; do
  expect_status 0 "$K3EXEC" run $pack.k3pack -p "And it came to pass" -n 4 --dump $pack.dump
done
cmp a.dump compact.dump || fail "compact experts changed the output"
