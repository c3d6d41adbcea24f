# k3c synth from outside: what it makes, what it refuses, and that it makes the same every time.
source "$(dirname "$0")/checks.sh"

expect_status 0 "$K3C" synth made --preset kimi-linear-nano --layers 4 --experts 7 --vocab 300 --seed 5
expect_one_line out '^made: kimi-linear-nano, 4 layers, .* in 1 shards$'
expect_line err '^making weights: '
expect_status 0 "$K3C" synth again --preset kimi-linear-nano --layers 4 --experts 7 --vocab 300 --seed 5 --threads 1 --quiet
[[ ! -s err ]] || fail "--quiet is not quiet: $(cat err)"
diff -r made again || fail "one seed made two checkpoints"
expect_status 0 "$K3C" synth other --preset kimi-linear-nano --layers 4 --experts 7 --vocab 300 --seed 6 --quiet
cmp -s made/model-00001-of-000001.safetensors other/model-00001-of-000001.safetensors && fail "another seed made the same weights"

# It is what was asked for, and compiles and runs.
expect_status 0 "$K3C" census made --json
python3 -c '
import json
said = json.load(open("out"))
assert said["family"] == "kimi-linear", said
shape = said["architecture"]
assert (shape["layer_map"], shape["experts"], shape["vocab_size"]) == ("kKKM", 7, 300), shape
' || fail "the census is wrong: $(cat out)"
expect_status 0 "$K3C" compile made -o made.k3pack --quiet
expect_status 0 "$K3C" verify made.k3pack --quiet
expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" --quiet made.k3pack
expect_status 0 "$K3EXEC" run made.k3pack -p "a" -n 3 --json
expect_line out '"finish_reason":"length"'
expect_status 1 "$K3EXEC" run made.k3pack --chat -p "a" -n 3
expect_one_line err '^k3exec: '

# Other layers than the preset's; the whole of K3 without its bytes.
expect_status 0 "$K3C" synth map --preset odd --layer-map mKM --experts 6 --headers-only --json
python3 -c '
import json
said = json.load(open("out"))
assert (said["layers"], said["preset"], said["headers_only"]) == (3, "odd", True), said
' || fail "the JSON of synth is wrong: $(cat out)"
expect_status 0 "$K3C" census map
expect_line out ' mKM '
expect_status 0 "$K3C" synth whole --preset k3 --headers-only --quiet
expect_status 0 "$K3C" compile whole --dry-run --quiet
expect_line out '^routed experts +mxfp4 +247,296 +2,722,740,830,208 +4\.250 '
expect_line out '^memory to run: '

# Refusals leave nothing behind.
refused() {  # refused STATUS PATTERN options...
  local status=$1 pattern=$2
  shift 2
  expect_status "$status" "$K3C" synth none --quiet "$@"
  expect_one_line err "$pattern"
  [[ ! -e none && ! -e none.unfinished ]] || fail "a refused synth left $(ls -d none*)"
}
refused 2 '^k3c: --preset: ' --preset k4
refused 2 '^k3c: ' --layers 2 --layer-map kM
refused 1 '^k3c: layers: is 9, expected 1 to 8 for the preset nano$' --layers 9
refused 1 '^k3c: experts: is 3, expected 4 to 64 for the preset nano$' --experts 3
refused 1 '^k3c: vocabulary: is 271, expected 272 to 2048 for the preset nano$' --vocab 271
refused 1 '^k3c: layer map: is "Kk", expected letters k and m, then K and M$' --layer-map Kk
refused 1 '^k3c: layer map: is "kX", ' --layer-map kX
expect_status 1 "$K3C" synth made --quiet
expect_one_line err '^k3c: made: is not empty, it stays as it is$'
