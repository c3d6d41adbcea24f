# The whole way of pruning: trace, statistics, plan, pack, receipt.
source "$(dirname "$0")/checks.sh"

"$K3C" compile "$nano" -o full.k3pack --quiet >/dev/null
head -n 2 "$K3_SOURCE_DIR/examples/nano/text/calibration-lexicon.jsonl" >chosen.jsonl
echo '{"text": "And the children of Israel did evil in the sight of the LORD, and served other gods."}' >tested.jsonl

expect_status 0 "$K3EXEC" eval full.k3pack --text chosen.jsonl --trace eval.k3trace -q
expect_status 0 "$K3EXEC" run full.k3pack -p "And it came to pass" -n 8 --trace run.k3trace

expect_status 0 "$K3C" trace stats eval.k3trace --heldout run.k3trace --svg charts
expect_line out '^ *[0-9,]+ tokens \(0 decoded\) of 2 documents; 4 of 64 experts in each of 7 layers, an expert 13\.06 kB'
expect_line out 'LRU +per-layer LRU +decayed LFU +Belady'
[[ -s charts/cache.svg && -s charts/load.svg && -s charts/coverage.svg ]] || fail "a chart is missing"
expect_status 0 "$K3C" trace merge eval.k3trace run.k3trace -o both.k3trace
expect_line out '^both\.k3trace: [0-9,]+ tokens$'
expect_status 0 "$K3C" trace stats both.k3trace --json --cache-gb 0.001,0.002
expect_line out '"documents": 3,'
expect_line out '"gb": 0\.000'

# A killed run loses its last block, and says so.
head -c $(($(stat -c %s both.k3trace) - 100)) both.k3trace >cut.k3trace
expect_status 0 "$K3C" trace stats cut.k3trace --replay-tokens 0
expect_line out '^cut\.k3trace was cut'

# A plan, the pack that it makes, and the full pack run by it are one model.
expect_status 0 "$K3C" compile "$nano" -o pruned.k3pack --trace eval.k3trace --prune-topk 32 --plan-out reap.json --quiet
expect_status 0 "$K3C" verify pruned.k3pack --quiet
expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" pruned.k3pack
expect_status 0 "$K3C" compile "$nano" -o replayed.k3pack --prune-plan reap.json --quiet
cmp pruned.k3pack replayed.k3pack || fail "a replayed plan made another pack"
expect_status 0 "$K3EXEC" run pruned.k3pack -p "And it came to pass" -n 16
cp out pruned_text
expect_status 0 "$K3EXEC" run full.k3pack --prune-plan reap.json -p "And it came to pass" -n 16
cmp out pruned_text || fail "the masked pack wrote another text"
expect_status 0 "$K3C" compile "$nano" -o cold.k3pack --prune-plan reap.json --cold keep --quiet
expect_status 0 "$K3C" verify cold.k3pack --quiet
expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" cold.k3pack
expect_line out ' cold'
expect_status 0 "$K3EXEC" run cold.k3pack -p "And it came to pass" -n 16
cmp out pruned_text || fail "cold experts changed the text"

# The receipt stands beside other choices of as many experts.
for score in random frequency; do
  expect_status 0 "$K3C" compile "$nano" --trace eval.k3trace --prune-topk 32 --score $score --plan-out $score.json --dry-run --quiet
done
expect_status 0 "$K3EXEC" eval pruned.k3pack --against full.k3pack --text tested.jsonl --beside random.json --beside frequency.json --receipt r.k3eval -q
expect_status 0 "$K3C" attach pruned.k3pack r.k3eval
expect_status 0 "$K3C" inspect pruned.k3pack
expect_line out '^option expert score: reap$'
expect_line out '^  experts +text +perplexity +KL \[95 %\], nats +KL p99 +flipped % +missing % +present %$'
expect_line out '^  this pack +tested +[0-9.]+ +[0-9.]+ \[[0-9.]+, [0-9.]+\]'
expect_line out '^  by random +tested '
expect_line out '^  by frequency +tested '

# What cannot be: one line and the reason.
expect_status 1 "$K3C" compile "$nano" -o x.k3pack --trace eval.k3trace --prune-topk 3 --quiet
expect_one_line err 'prune-topk is 3, expected 4, which a token chooses, to 64'
expect_status 1 "$K3EXEC" run pruned.k3pack --prune-plan reap.json -p x
expect_one_line err 'routes to 32 of 64 experts, --prune-plan needs a pack that has them all'
expect_status 1 "$K3EXEC" eval full.k3pack --prune-plan reap.json --text tested.jsonl --receipt r.k3eval -q
expect_one_line err 'receipt would bind the result to a pack'
expect_status 1 "$K3EXEC" eval pruned.k3pack --against full.k3pack --text tested.jsonl --beside wide.json -q
expect_one_line err 'wide\.json: cannot open'
echo '{"tok":0,"layers":[[1,2],[3,4]]}' >ids.jsonl
expect_status 0 "$K3C" trace import ids.jsonl -o ids.k3trace --json
expect_line out '"tokens": 1'
expect_status 1 "$K3C" compile "$nano" -o x.k3pack --trace ids.k3trace --prune-topk 8 --score frequency --quiet
expect_one_line err 'the traces are of no known model'
expect_status 1 "$K3C" trace import ids.jsonl -o ids.k3trace --pack full.k3pack
expect_one_line err 'ids\.jsonl: has 2 layers with 2 experts a token, full\.k3pack has 7 with 4'
expect_status 1 "$K3C" trace merge eval.k3trace ids.k3trace -o x.k3trace
expect_one_line err 'ids\.k3trace: is of another model'
expect_status 1 "$K3C" trace stats "$K3_SOURCE_DIR/README.md"
expect_one_line err 'README\.md: is not a routing trace'
expect_status 2 "$K3C" compile "$nano" -o x.k3pack --prune-topk 8
expect_status 2 "$K3C" compile "$nano" -o x.k3pack --trace eval.k3trace --prune-topk 8 --prune-budget-gb 1
expect_status 2 "$K3C" trace
