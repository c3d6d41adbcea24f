# Makes the packs odd, odd_int8 and linear of tests/runtime/packs.h; nano and odd with a trunk in each ternary format, and
# rotated; nano with compact experts:
# make_packs.sh K3C FOLDER
set -euo pipefail
checkpoints=$(mktemp -d)
trap 'rm -rf "$checkpoints"' EXIT
"$1" synth "$checkpoints/odd" --preset odd --quiet
"$1" compile "$checkpoints/odd" -o "$2/odd.k3pack" --quiet
"$1" compile "$checkpoints/odd" -o "$2/odd_int8.k3pack" --trunk int8 --head int8 --quiet
nano=$(dirname "$0")/../examples/nano/checkpoint
for format in ternary ternary2; do
  "$1" compile "$nano" -o "$2/nano_$format.k3pack" --trunk $format --quiet
  "$1" compile "$checkpoints/odd" -o "$2/odd_$format.k3pack" --trunk $format --quiet
done
"$1" compile "$nano" -o "$2/nano_compact.k3pack" --experts compact --quiet
"$1" compile "$nano" -o "$2/nano_rotated.k3pack" --rotate --quiet
"$1" compile "$checkpoints/odd" -o "$2/odd_rotated.k3pack" --rotate --quiet
"$1" compile "$checkpoints/odd" -o "$2/odd_rotated_int8.k3pack" --rotate --trunk int8 --head int8 --quiet
"$1" synth "$checkpoints/linear" --preset kimi-linear-nano --quiet
"$1" compile "$checkpoints/linear" -o "$2/linear.k3pack" --quiet
