#!/usr/bin/env bash
# compile_and_verify.sh BUILD_FOLDER WORK_FOLDER [ROUNDS]: the speed of `k3c compile` against copying the same bytes, and of
# `k3c verify` against hashing them, on a made checkpoint of about 4 GB. Compile and copy alternate, warm; both end on disk
# (compile syncs the pack before it renames it). Prints a table of medians with their spread. Needs xxhsum and 13 GB.
set -euo pipefail
build=$(realpath "$1")
mkdir -p "$2"
cd "$2"
rounds=${3:-5}
[[ -d mid ]] || "$build/k3c" synth mid --preset mid --quiet >/dev/null
cat mid/* >/dev/null

python3 - "$build" "$rounds" <<'PYTHON'
import glob, os, re, shutil, statistics, subprocess, sys, threading, time

build, rounds = sys.argv[1], int(sys.argv[2])
k3c = f"{build}/k3c"
source_bytes = sum(os.path.getsize(path) for path in glob.glob("mid/*"))

def seconds(command):
    started = time.monotonic()
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started

def anonymous_peak(command):
    """The peak of RssAnon in bytes, looked at every 5 ms."""
    process, peak = subprocess.Popen(command, stdout=subprocess.DEVNULL), 0
    while process.poll() is None:
        try:
            found = re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{process.pid}/status").read())
            peak = max(peak, int(found[1]) * 1024 if found else 0)
        except OSError:
            pass
        time.sleep(0.005)
    assert process.returncode == 0
    return peak

def remove():
    shutil.rmtree("copy", ignore_errors=True)
    for path in glob.glob("mid.k3pack*"):
        os.remove(path)
    os.sync()

times = {"copy": [], "compile": [], "xxhsum -H3": [], "verify, 1 thread": []}
for _ in range(rounds):
    remove()
    times["copy"].append(seconds("cp -r --reflink=never mid copy && sync -f copy"))
    remove()
    times["compile"].append(seconds(f"{k3c} compile mid -o mid.k3pack --quiet"))
for _ in range(rounds):
    times["xxhsum -H3"].append(seconds("xxhsum -H3 mid.k3pack"))
    times["verify, 1 thread"].append(seconds(f"taskset -c 0 {k3c} verify mid.k3pack --quiet"))
remove()
peak = anonymous_peak([k3c, "compile", "mid", "-o", "mid.k3pack", "--quiet"])

print(f"{source_bytes / 1e9:.2f} GB of checkpoint, {os.path.getsize('mid.k3pack') / 1e9:.2f} GB of pack, {os.cpu_count()} cores")
for name, values in times.items():
    print(f"{name:18} median {statistics.median(values):6.2f} s  ({min(values):.2f} to {max(values):.2f})")
median = {name: statistics.median(values) for name, values in times.items()}
print(f"compile / copy     {median['compile'] / median['copy']:.2f}   (aim 1.15, at most 1.3)")
print(f"xxhsum / verify    {median['xxhsum -H3'] / median['verify, 1 thread']:.2f}   (at least 0.9)")
K3_BYTES = 1_560_860_324_864
hours = K3_BYTES / source_bytes * median["compile"] / 3600
print(f"forecast for K3    {hours:.2f} h at this rate, copying would take {hours * median['copy'] / median['compile']:.2f} h")
print(f"RssAnon of compile {peak / 1e6:.0f} MB")
remove()
PYTHON
