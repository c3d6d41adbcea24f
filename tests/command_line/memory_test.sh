# --memory-gb is a ceiling: fewer workers run below it, what is too little is refused with the least that works, and
# the peak of resident memory is what was said.
source "$(dirname "$0")/checks.sh"

"$K3C" synth large --preset odd --quiet >/dev/null

cat >peak.py <<'PYTHON'
# peak.py command...: runs it; prints the peak of its resident memory in bytes. stdout goes to the file out.
import os, subprocess, sys
with open("out", "w") as out:
    process = subprocess.Popen(sys.argv[1:], stdout=out)
    _, status, usage = os.wait4(process.pid, 0)
if status != 0:
    sys.exit(f"{sys.argv[1:]} failed")
print(usage.ru_maxrss * 1024)
PYTHON
said() { python3 -c "import json; print(json.load(open('out'))['$1'])"; }

peaks=()
for threads in 1 8; do
  peak=$(python3 peak.py "$K3C" compile large -o $threads.k3pack --threads $threads --json --quiet)
  [[ $(said workers) == "$threads" ]] || fail "$(said workers) workers for $threads threads"
  ((peak <= $(said memory_bytes))) || fail "the peak was $peak bytes, $(said memory_bytes) were announced"
  peaks+=("$(said memory_bytes)")
done

# Half way between one worker and eight there is room for four.
ceiling=$(((peaks[0] + peaks[1]) / 2))
gigabytes=$(python3 -c "print($ceiling / 1e9)")
peak=$(python3 peak.py "$K3C" compile large -o some.k3pack --threads 8 --memory-gb "$gigabytes" --json --quiet)
(($(said workers) > 1 && $(said workers) < 8)) || fail "$(said workers) workers under $ceiling bytes"
((peak <= ceiling && $(said memory_bytes) <= ceiling)) || fail "the peak was $peak bytes, the ceiling $ceiling"
cmp some.k3pack 1.k3pack || fail "the ceiling changed the pack"

# Rotated outputs are made of whole matrices.
peak=$(python3 peak.py "$K3C" compile large -o rotated.k3pack --rotate --threads 8 --json --quiet)
((peak <= $(said memory_bytes))) || fail "the peak with --rotate was $peak bytes, $(said memory_bytes) were announced"
(($(said memory_bytes) > peaks[1])) || fail "rotation was announced to take no memory"

expect_status 1 "$K3C" compile large --dry-run --memory-gb 0.005 --quiet
expect_one_line err '^k3c: --memory-gb: 0\.0[01] GB are too little: the plan takes .*, a worker .*; the least that works is 0\.[0-9][0-9]$'
least=$(grep -oE '[0-9.]+$' err)
expect_status 0 "$K3C" compile large --dry-run --memory-gb "$least" --threads 8
expect_line out '^memory: at most [0-9.]+ MB: the plan [0-9.]+ MB, [0-9]+ workers with [0-9.]+ MB each$'
expect_status 2 "$K3C" compile large --dry-run --memory-gb 0
