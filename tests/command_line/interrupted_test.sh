# A compile that is killed, or meets a full disk, leaves no pack and an earlier pack untouched.
source "$(dirname "$0")/checks.sh"

# nano with a vocabulary of 2^18, zeros in a sparse shard: a compile long enough to be interrupted.
python3 - "$nano" <<'PYTHON'
import json, os, shutil, struct, sys
nano, vocab = sys.argv[1], 1 << 18
shutil.copytree(nano, "large")
for name in os.listdir("large"):
    os.chmod(f"large/{name}", 0o644)
config = json.load(open("large/config.json"))
config["text_config"]["vocab_size"] = vocab
json.dump(config, open("large/config.json", "w"))
shard = "large/model-00009-of-000009.safetensors"
with open(shard, "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
at = 0
for name, entry in header.items():
    if name == "__metadata__":
        continue
    if entry["shape"][0] == config["text_config"]["vocab_size"] or entry["shape"][0] == 2048:
        entry["shape"][0] = vocab
    size = 2
    for dim in entry["shape"]:
        size *= dim
    entry["data_offsets"] = [at, at + size]
    at += size
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(shard, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + at)
index = json.load(open("large/model.safetensors.index.json"))
index["metadata"]["total_size"] += 2 * (vocab - 2048) * 2 * config["text_config"]["hidden_size"]
json.dump(index, open("large/model.safetensors.index.json", "w"))
PYTHON

# interrupt SIGNAL: starts a compile over out.k3pack and ends it in the middle.
interrupt() {
  "$K3C" compile large -o out.k3pack --head int8 --threads 1 --quiet >out 2>err &
  local process=$!
  for _ in $(seq 500); do
    [[ -e out.k3pack.unfinished ]] && break
    kill -0 $process 2>/dev/null || break
    sleep 0.01
  done
  [[ -e out.k3pack.unfinished ]] || fail "the compile was over before it could be interrupted: $(cat err)"
  kill -"$1" $process
  local status=0
  wait $process || status=$?
  ((status > 128)) || fail "the compile ended with status $status before the signal"
}

# SIGINT is ignored in the background processes of a script, which k3c respects; pack_writer_test.cc has it.
for signal in TERM HUP; do
  interrupt $signal
  [[ ! -e out.k3pack && ! -e out.k3pack.unfinished ]] || fail "SIG$signal left $(ls out.k3pack*)"
done
interrupt KILL
[[ ! -e out.k3pack ]] || fail "SIGKILL left a pack"
[[ -e out.k3pack.unfinished ]] || fail "SIGKILL cannot have been cleaned up after"

# Nothing was encoded yet, so the next compile replaces what was left; the one after it is killed and the pack stays.
# (What is worth keeping is resumed_test.sh's matter.)
rm -f out.k3pack.unfinished.journal
"$K3C" compile "$nano" -o out.k3pack --quiet >/dev/null
[[ ! -e out.k3pack.unfinished ]] || fail "the left-over is still there"
before=$(sha256sum out.k3pack)
interrupt KILL
[[ $(sha256sum out.k3pack) == "$before" ]] || fail "a killed compile changed the earlier pack"
rm out.k3pack out.k3pack.unfinished*

# A file-size limit stands for a full disk.
(
  trap '' XFSZ
  ulimit -f 1000
  "$K3C" compile "$nano" -o full.k3pack --quiet >out 2>err && exit 0
  exit 3
) && fail "a full disk was not noticed"
expect_one_line err '^k3c: full\.k3pack\.unfinished: cannot '
[[ ! -e full.k3pack && ! -e full.k3pack.unfinished ]] || fail "a full disk left $(ls full*)"
