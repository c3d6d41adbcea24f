# Receipts go into the pack they were measured on, and only there.
source "$(dirname "$0")/checks.sh"

"$K3C" compile "$nano" -o n.k3pack --quiet >compiled
payload=$(grep -oE '[0-9a-f]{16}$' compiled)
receipt() { printf '{"kind": "k3eval", "version": 1, "pack_payload_xxh3": "%s", "kl": %s}\n' "$1" "$2"; }
receipt "$payload" 0.25 >first.k3eval
receipt "$payload" 0.5 >second.k3eval
receipt 0000000000000000 1 >other.k3eval

expect_status 0 "$K3C" attach n.k3pack first.k3eval
expect_status 0 "$K3C" attach n.k3pack second.k3eval
expect_line out "has 2 receipts, payload $payload"
expect_status 0 "$K3C" verify n.k3pack --quiet
expect_status 0 python3 "$K3_SOURCE_DIR/tests/spec_reader.py" n.k3pack
expect_line out ' retired index 1$'
expect_status 0 "$K3C" inspect n.k3pack
expect_line out '^receipt k3eval: .*0\.25'
expect_line out '^receipt k3eval: .*0\.5'

before=$(sha256sum n.k3pack)
expect_status 1 "$K3C" attach n.k3pack other.k3eval
expect_one_line err '^k3c: other\.k3eval: was measured on payload 0000000000000000, n\.k3pack has '
echo '{"kind": "k3eval",' >broken.k3eval
expect_status 1 "$K3C" attach n.k3pack broken.k3eval
expect_one_line err '^k3c: broken\.k3eval: is not JSON'
[[ $(sha256sum n.k3pack) == "$before" ]] || fail "a refused receipt changed the pack"

# An attach that ended before it rewrote the frame leaves a tail.
head -c 20000 /dev/zero >>n.k3pack
expect_status 1 "$K3C" verify n.k3pack --quiet
expect_one_line err 'run `k3c attach` again'
expect_status 0 "$K3C" attach n.k3pack second.k3eval --json
expect_line out '"attached": false,'
expect_line out '"receipts": 2,'
expect_line err 'dropped 20000 bytes'
[[ $(sha256sum n.k3pack) == "$before" ]] || fail "the tail was not dropped"
