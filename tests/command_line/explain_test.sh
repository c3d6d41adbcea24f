# What was decided about a tensor or an expert can be asked of the pack alone, and two packs can be compared.
source "$(dirname "$0")/checks.sh"

"$K3C" compile "$nano" -o plain.k3pack --quiet >/dev/null
"$K3C" compile "$nano" -o int8.k3pack --trunk int8 --quiet >compiled
payload=$(grep -oE '[0-9a-f]{16}$' compiled)

expect_status 0 "$K3C" explain int8.k3pack model.layers.0.mlp.up_proj.weight
expect_line out '^  family +dense ffn$'
expect_line out '^  shape +\[[0-9]+, 256\]$'
expect_line out '^  stored as +int8 in blocks160, [0-9.]+ bits per weight$'
expect_line out '^  source +language_model\.model\.layers\.0\.mlp\.up_proj\.weight: [0-9,]+ bytes at [0-9,]+ of model-0000[0-9]-of-000009\.safetensors$'
expect_line out '^  decision +ternary_trunk: int8: asked for; '
mv out canonical
expect_status 0 "$K3C" explain int8.k3pack language_model.model.layers.0.mlp.up_proj.weight
cmp out canonical || fail "the checkpoint's own name explains something else"

# The source bytes and their hash are those of the shard.
expect_status 0 "$K3C" explain int8.k3pack model.layers.3.experts.17 --json
python3 - "$K3_SOURCE_DIR" "$nano" <<'PYTHON' || fail "explain --json is wrong: $(cat out)"
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests")
from spec_reader import xxh3
said = json.load(open("out"))
assert said["subject"] == "expert 17 of layer 3" and said["in_pack"], said
assert said["format"] == "mxfp4" and said["layout"] == "expert_bands", said
pieces = b""
assert [s["tensor"].split(".experts.17.")[1] for s in said["sources"]] == [
    "w1.weight_packed", "w1.weight_scale", "w2.weight_packed", "w2.weight_scale", "w3.weight_packed", "w3.weight_scale"]
for source in said["sources"]:
    with open(sys.argv[2] + "/" + source["shard"], "rb") as shard:
        shard.seek(source["offset_bytes"])
        pieces += shard.read(source["length_bytes"])
assert f"{xxh3(pieces):016x}" == said["source_xxh3"], said
extent = said["extent"]
with open("int8.k3pack", "rb") as pack:
    pack.seek(extent["offset_bytes"])
    assert f"{xxh3(pack.read(extent['length_bytes'])):016x}" == extent["xxh3"], said
assert [d["pass"] for d in said["decisions"]] == ["prune_experts", "reorder_layout"], said
PYTHON
expect_status 0 "$K3C" explain int8.k3pack language_model.model.layers.3.block_sparse_moe.experts.17.w2.weight_scale
expect_line out '^expert 17 of layer 3$'

refused() {  # refused NAME PATTERN
  expect_status 1 "$K3C" explain int8.k3pack "$1"
  expect_one_line err "^k3c: int8\.k3pack: $1: $2"
}
refused model.layers.0.mlp.up_prj.weight 'is no tensor or expert of this pack; the nearest names are model\.layers\.0\.mlp\.up_proj\.weight, '
refused vision_tower.patch_embed.proj.weight 'is no tensor'  # nano has none that could have been left out
refused model.layers.3.experts.64 'layer 3 has experts 0 to 63$'
refused model.layers.0.experts.1 'layer 0 has no experts; layers with experts are 1 to 7$'
refused model.layers.3.experts.17.w1 'is no tensor'
refused model.layers.3.block_sparse_moe.experts.17.w9 'is no tensor or expert of this pack; the nearest names are language_model\..*w1'
refused model.layers.99999999999999999999.experts.1 'is no tensor'

cp plain.k3pack same.k3pack
expect_status 0 "$K3C" diff plain.k3pack same.k3pack --check
expect_one_line out 'same payload [0-9a-f]{16}, 0 differences'
printf '{"kind": "k3eval", "version": 1, "pack_payload_xxh3": "%s", "kl": 0.25}' "$payload" >a.k3eval
cp int8.k3pack measured.k3pack
"$K3C" attach measured.k3pack a.k3eval >/dev/null
expect_status 0 "$K3C" diff int8.k3pack measured.k3pack --check
expect_line out '^receipt: - \| \{"kind"'
expect_line out "same payload $payload, 1 differences"

expect_status 0 "$K3C" diff plain.k3pack int8.k3pack
expect_line out '^tensor model\.layers\.0\.mlp\.up_proj\.weight: format: bf16 \| int8$'
expect_line out '^option trunk: value: bf16 \| int8$'
expect_line out '^pass ternary_trunk: int8 tensors: - \| [1-9]'
expect_line out 'payload [0-9a-f]{16} \| [0-9a-f]{16}, '
grep -qE '^(bank|config|tensor .*(source hash|norm))' out && fail "differences that are none: $(cat out)"
expect_status 1 "$K3C" diff plain.k3pack int8.k3pack --check --json
python3 -c '
import json
said = json.load(open("out"))
assert said["same_payload"] is False and said["differences"], said
' || fail "diff --json is wrong: $(cat out)"
expect_status 1 "$K3C" diff plain.k3pack no.k3pack
expect_one_line err '^k3c: no\.k3pack: cannot open'
