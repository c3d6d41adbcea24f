# On a terminal long work shows a bar with rate and time left; into a file it writes plain lines.
source "$(dirname "$0")/checks.sh"

"$K3C" synth large --preset odd --quiet >/dev/null
python3 - "$K3C" <<'PYTHON' || fail "no bar on a terminal"
import os, pty, re, subprocess, sys
reader, terminal = pty.openpty()
process = subprocess.Popen([sys.argv[1], "compile", "large", "-o", "out.k3pack", "--head", "int8", "--threads", "1"],
                           stdout=subprocess.DEVNULL, stderr=terminal)
os.close(terminal)
said = b""
while True:
    try:
        part = os.read(reader, 1 << 16)
    except OSError:  # the other end is closed
        break
    if not part:
        break
    said += part
assert process.wait() == 0
text = said.decode()
bars = re.findall(r"\rencode \[(#*)(\.*)\] +(\d+) %  [\d.]+ [kMG]?B/s  [\d.]+ (?:s|min|h)[^\r]* left\x1b\[K", text)
assert bars, text
assert all(len(done) + len(left) == 30 for done, left, _ in bars), bars
assert re.search(r"\r\x1b\[Kencode: [\d.]+ MB in [\d.]+ s, [\d.]+ [kMG]?B/s\r\n", text), text
PYTHON
expect_status 0 "$K3C" compile large -o out.k3pack
expect_line err '^encode: [0-9.]+ MB in [0-9.]+ s, [0-9.]+ [kMG]B/s$'
grep -q $'\r' err && fail "a bar in a file"
true
