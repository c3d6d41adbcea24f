#!/usr/bin/env bash
# Measures what pruning costs nano: every score rule at 75, 50, 25 and 12.5 % of the experts, on held-out text; then
# choices from one domain, tested on the others.
#
#   examples/nano/prune_experts.sh FOLDER       with k3c and k3exec in PATH; some hours on two cores, less on more
#
# Leaves traces, plans, packs with their receipts (k3c inspect) and the results as JSON in FOLDER.
set -euo pipefail
nano=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
domains=(prose lexicon code)
heldout=()
for domain in "${domains[@]}"; do heldout+=(--text "$nano/text/heldout-$domain.jsonl"); done

[[ -s full.k3pack ]] || k3c compile "$nano/checkpoint" -o full.k3pack --quiet
for domain in "${domains[@]}"; do
  [[ -s $domain.k3trace ]] || k3exec eval --chunk-tokens 256 full.k3pack --text "$nano/text/calibration-$domain.jsonl" \
    --trace $domain.k3trace -q
done
traces=(--trace prose.k3trace --trace lexicon.k3trace --trace code.k3trace)

plan() {  # plan NAME compile-flags...
  k3c compile "$nano/checkpoint" --dry-run --quiet --plan-out "$1.json" "${@:2}" >/dev/null
}

for keep in 48 32 16 8; do
  for score in reap frequency gate random; do plan $score$keep "${traces[@]}" --prune-topk $keep --score $score; done
  k3c compile "$nano/checkpoint" -o reap$keep.k3pack --prune-plan reap$keep.json --quiet >/dev/null
  k3exec eval --chunk-tokens 256 reap$keep.k3pack --against full.k3pack "${heldout[@]}" --receipt reap$keep.k3eval -q \
    --beside frequency$keep.json --beside gate$keep.json --beside random$keep.json
  k3c attach reap$keep.k3pack reap$keep.k3eval
done

for domain in "${domains[@]}"; do
  plan $domain --trace $domain.k3trace --prune-topk 16
  k3exec eval --chunk-tokens 256 full.k3pack --prune-plan $domain.json --against full.k3pack "${heldout[@]}" --json -q \
    >chosen_on_$domain.result
done
