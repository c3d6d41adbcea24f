# Bad usage ends with status 2 and one line, bad input with status 1 and one line; help and version with 0.
source "$(dirname "$0")/checks.sh"

expect_status 2 "$K3C"
expect_one_line err '^k3c: .*subcommand'
expect_status 2 "$K3C" no-such-command
expect_one_line err '^k3c: '
expect_status 2 "$K3C" compile "$nano" -o out.k3pack --trunk fp8
expect_one_line err '^k3c: --trunk: '
expect_status 2 "$K3C" compile "$nano" -o out.k3pack --threads 0
expect_one_line err '^k3c: --threads: '
expect_status 2 "$K3C" compile "$nano" -o out.k3pack --stop-after no_such_pass
expect_one_line err '^k3c: --stop-after: '
expect_status 2 "$K3C" compile "$nano"
expect_one_line err '^k3c: --output is required'
expect_status 2 "$K3C" inspect out.k3pack --json --report decisions
expect_one_line err '^k3c: '
for flag in memory-gb trunk-budget-gb trunk-bits max-kl prune-budget-gb; do
  for number in nan 1e30 -1; do
    expect_status 2 "$K3C" compile "$nano" --dry-run "--$flag=$number"
    expect_one_line err "^k3c: --$flag: is $number, expected a number from "
  done
done
for flag in --cache-gb=nan --cache-gb=1,1e30 --expert-bytes=1e30 --expert-bytes=1099511627777; do
  expect_status 2 "$K3C" trace stats none.k3trace "$flag"
  expect_one_line err "^k3c: ${flag%=*}: "
done
expect_status 2 "$K3C" trace import ids.jsonl -o ids.k3trace --pack p.k3pack --experts 64
expect_one_line err '^k3c: --pack excludes --experts'
[[ ! -e out.k3pack ]] || fail "bad usage wrote a pack"

expect_status 1 "$K3C" compile no/such/folder -o out.k3pack --quiet
expect_one_line err '^k3c: no/such/folder'
expect_status 1 "$K3C" compile "$nano" -o no/such/folder/out.k3pack --quiet
expect_one_line err '^k3c: no/such/folder/out.k3pack: there is no folder'
echo text >text
expect_status 1 "$K3C" verify text --quiet
expect_one_line err '^k3c: text: not a pack'
expect_status 1 "$K3C" inspect none.k3pack
expect_one_line err '^k3c: none.k3pack: cannot open'

expect_status 0 "$K3C" --version
expect_one_line out '^k3c [0-9]+\.[0-9]+\.[0-9]+$'
expect_status 0 "$K3C" --help
for command in census compile inspect verify explain diff synth attach; do
  expect_line out "^ *$command "
  expect_status 0 "$K3C" "$command" --help
  [[ $(wc -l <out) -ge 6 ]] || fail "$command --help explains nothing"
  expect_status 0 "$K3C" --help
done
for command in census compile inspect verify explain diff synth attach "trace stats" "trace merge" "trace import"; do
  expect_status 0 "$K3C" $command --help
  expect_line out '^ *--json '
done
for command in run eval propagate capture sensitivity fit tune bench; do
  expect_status 0 "$K3EXEC" "$command" --help
  expect_line out '^ *--json '
done
for program in "$K3C" "$K3EXEC"; do
  status=0
  "$program" --help >/dev/full 2>err || status=$?
  [[ $status == 1 ]] || fail "$program ended with status $status though nobody got its output"
  expect_one_line err ': stdout: cannot write'
done
expect_status 0 "$K3C" compile --help
for pass in census rotate_stream ternary_trunk tuning prune_experts reorder_layout assign_offsets; do expect_line out "$pass: "; done
