# Makes the checkpoint of a preset and compiles it: make_pack.sh K3C PRESET OUT.k3pack
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" synth "$folder/checkpoint" --preset "$2" --quiet
"$1" compile "$folder/checkpoint" -o "$3" --quiet
