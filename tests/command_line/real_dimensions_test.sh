# Layers of Kimi K3's own widths, made, compiled and run: a KDA layer with its dense FFN and an MLA layer with experts,
# finite, in the memory that --dry-run predicts. Takes 10 GB of disk and 5 GB of memory.
source "$(dirname "$0")/checks.sh"

expect_status 0 "$K3C" synth wide --preset k3 --layer-map kM --experts 64 --vocab 1024 --quiet
expect_status 0 "$K3C" compile wide --dry-run --json --quiet
cp out predicted
expect_status 0 "$K3C" compile wide -o wide.k3pack --quiet
rm -r wide

# Peak memory is what was predicted, and less than 0.1 GB of program, buffers and vocabulary. One layer alone takes what
# it has: the second layer's trunk and experts stay unread.
python3 - <<'PYTHON' || fail "see above"
import json, os, resource, subprocess

MARGIN = 100_000_000
said = json.load(open("predicted"))
assert said["file_bytes"] == os.path.getsize("wide.k3pack"), said["file_bytes"]
need = said["memory_to_run"]
rows = {row["family"]: row["bytes"] for row in said["rows"]}
second_layer = sum(rows[family] for family in ("mla", "latent", "shared experts", "routed experts"))

def peak_of_run(*options):
    command = [os.environ["K3EXEC"], "run", "wide.k3pack", "--ids", "300,301", "-n", "1", "--json", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert len(json.loads(done.stdout)["ids"]) == 1, done.stdout
    # The greatest of all children so far, so the smaller run comes first.
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024

one = peak_of_run("--layers", "1")
both = peak_of_run()
print(f"predicted {need['all_bytes']}, peak {both}; of one layer {one}")
assert need["least_bytes"] <= both <= need["all_bytes"] + MARGIN, (need, both)
assert one <= need["all_bytes"] - second_layer + MARGIN, (need, second_layer, one)
PYTHON
