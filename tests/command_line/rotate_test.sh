# A pack in another basis: every tool knows it; what belongs to one basis is refused by another; what belongs to the model,
# as routing does, serves both.
source "$(dirname "$0")/checks.sh"

expect_status 0 "$K3C" compile "$nano" -o plain.k3pack --quiet
expect_status 0 "$K3C" compile "$nano" -o int8.k3pack --rotate --rotate-seed 3 --trunk int8 --head int8 --quiet
expect_line out '^note: rotated, and stored as f32, .*: embedding, router, small projections$'
expect_line out '^embedding +f32 +1 '
expect_status 0 "$K3C" verify int8.k3pack
expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" int8.k3pack
expect_status 0 "$K3C" inspect int8.k3pack
expect_line out '^rotation: seed 3, blocks: stream 256, query rank 32; online: kda heads 64, mla heads 32, dense 512, shared 128, latent 128$'
expect_line out '^option rotate: seed 3$'
expect_status 0 "$K3C" inspect int8.k3pack --json
python3 -c 'import json; assert json.load(open("out"))["config"]["rotation"]["shared_block"] == 128' || fail "no rotation in the JSON"
expect_status 0 "$K3C" inspect plain.k3pack --json
python3 -c 'import json; assert json.load(open("out"))["config"]["rotation"] is None' || fail "a rotation in the JSON"
expect_status 0 "$K3C" explain int8.k3pack model.layers.1.self_attn.o_proj.weight
expect_line out '^  decision +rotate_stream: inputs rotated online, outputs rotated: .*: 64$'
expect_status 0 "$K3C" explain int8.k3pack model.layers.1.input_layernorm.weight
expect_line out '^  decision +rotate_stream: ones: '
expect_status 0 "$K3C" diff plain.k3pack int8.k3pack
expect_line out '^config: rotation seed: none \| 3$'
rotate=("$K3C" compile "$nano" --rotate --rotate-seed 3 --trunk int8 --head int8 --quiet)
expect_status 0 "${rotate[@]}" -o s.k3pack --threads 1 --memory-gb 0.5
cmp int8.k3pack s.k3pack || fail "two rotated compiles differ"
expect_status 0 "${rotate[@]}" --dry-run --json
predicted=$(python3 -c 'import json; print(json.load(open("out"))["file_bytes"])')
[[ $predicted == $(stat -c %s s.k3pack) ]] || fail "dry run predicted $predicted bytes, $(stat -c %s s.k3pack) were written"

# A killed compile goes on in its basis and in no other.
rm s.k3pack
"${rotate[@]}" -o s.k3pack --threads 1 --resume >/dev/null & process=$!
until [[ -s s.k3pack.unfinished.journal ]]; do
  kill -0 $process 2>/dev/null || fail "the compile was over before it could be killed"
  sleep 0.002
done
kill -9 $process
wait $process 2>/dev/null || true
expect_status 1 "$K3C" compile "$nano" --rotate --rotate-seed 4 --trunk int8 --head int8 --quiet -o s.k3pack --resume
expect_one_line err 's\.k3pack\.unfinished\.journal: was begun with other options, '
expect_status 0 "${rotate[@]}" -o s.k3pack --resume
cmp int8.k3pack s.k3pack || fail "a rotated compile that went on gave another pack"

expect_status 2 "$K3C" compile "$nano" -o s.k3pack --rotate-seed 3
expect_status 0 "$K3C" synth linear --preset kimi-linear-nano --quiet
expect_status 1 "$K3C" compile linear -o s.k3pack --rotate --quiet
expect_one_line err 'rotate_stream: the routed experts of this model read the stream itself'

# Logits can be compared between bases; inputs cannot.
echo '{"text": "And it came to pass, that the king reigned in his stead."}' >tested.jsonl
expect_status 0 "$K3C" compile "$nano" -o rotated.k3pack --rotate --quiet
expect_status 0 "$K3EXEC" eval rotated.k3pack --against plain.k3pack --text tested.jsonl --receipt r.k3eval --json -q
python3 -c 'import json; assert json.load(open("out"))["texts"][0]["kl"]["mean"] < 1e-6' || fail "rotation changed the model: $(cat out)"
expect_status 0 "$K3C" attach rotated.k3pack r.k3eval
expect_status 0 "$K3C" verify rotated.k3pack
expect_status 1 "$K3EXEC" propagate rotated.k3pack --against plain.k3pack --text tested.jsonl
expect_one_line err 'plain\.k3pack: is in another basis than rotated\.k3pack'

# Calibration belongs to a basis.
head -n 2 "$K3_SOURCE_DIR/examples/nano/text/calibration-prose.jsonl" >calibration-prose.jsonl
capture=(--text calibration-prose.jsonl --quiet)
expect_status 0 "$K3EXEC" capture rotated.k3pack "${capture[@]}" --calibration rotated.k3cal
expect_status 1 "$K3EXEC" capture plain.k3pack "${capture[@]}" --calibration x.k3cal --propagated rotated.k3pack
expect_one_line err 'rotated\.k3pack: is in another basis than plain\.k3pack'
expect_status 1 "$K3EXEC" sensitivity plain.k3pack --candidates rotated.k3pack "${capture[@]}" -o x.k3sens
expect_one_line err 'rotated\.k3pack: is in another basis than plain\.k3pack'
expect_status 1 "$K3EXEC" fit rotated.k3pack --teacher-pack plain.k3pack "${capture[@]}" -o x.k3tune
expect_one_line err 'plain\.k3pack: is in another basis than rotated\.k3pack'
expect_status 1 "$K3EXEC" tune rotated.k3pack --teacher-pack plain.k3pack "${capture[@]}" --codes -o x.k3tune
expect_one_line err 'plain\.k3pack: is in another basis than rotated\.k3pack'
solve=("$K3C" compile "$nano" --trunk ternary2 --training-steps 0 --calibration rotated.k3cal --quiet)
expect_status 0 "${solve[@]}" --rotate -o two.k3pack --threads 2
expect_status 0 "${solve[@]}" --rotate -o one.k3pack --threads 1
cmp one.k3pack two.k3pack || fail "the thread count changed the solution of a rotated trunk"
expect_status 0 "$K3C" verify one.k3pack
expect_status 0 "$K3EXEC" capture rotated.k3pack "${capture[@]}" --calibration x.k3cal --propagated one.k3pack
expect_status 1 "${solve[@]}" -o x.k3pack
expect_one_line err 'rotated\.k3cal: .*'
expect_status 1 "${solve[@]}" -o x.k3pack --rotate --rotate-seed 1
expect_one_line err 'rotated\.k3cal: .*'

# Routing belongs to the model: a trace of one basis prunes the other.
expect_status 0 "$K3EXEC" eval plain.k3pack --text tested.jsonl --trace plain.k3trace -q
expect_status 0 "$K3C" compile "$nano" -o pruned.k3pack --rotate --trace plain.k3trace --prune-topk 32 --plan-out plan.json --quiet
expect_status 0 "$K3C" verify pruned.k3pack
expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" pruned.k3pack
expect_status 0 "$K3EXEC" run pruned.k3pack -p "And it came to pass" -n 16
cp out pruned_text
expect_status 0 "$K3EXEC" run plain.k3pack --prune-plan plan.json -p "And it came to pass" -n 16
cmp out pruned_text || fail "the rotated pruned pack wrote another text"
