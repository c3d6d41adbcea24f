// The values of a made checkpoint's tensors: any part of any tensor from the seed alone.
//
// Like a trained model's in what the compiler and the runtime react to: activations stay of order
// one through all layers, matrices have a spectrum that falls (a few strong directions over a bulk,
// rows and columns of different size, a few outlier columns), experts use the sixteen codes as
// often as K3's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/synth_tensors.h"

namespace k3 {

// A piece of a shard that is made at once: rows of one tensor, or an expert's packed codes with the
// scales that follow them.
struct SynthPiece {
  size_t tensor = 0;  // index of the (first) tensor
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t offset_bytes = 0;  // from the end of the header
  int64_t length_bytes = 0;
};

// Cuts a shard's tensors, given in file order, into pieces of about 4 MB or less (an expert's
// matrix stays whole) that together are all of its bytes.
std::vector<SynthPiece> cut_into_pieces(std::span<const SynthTensor> tensors);

// Fills `bytes` [piece.length_bytes] with the piece's part of the file: the same whatever else is
// made, in whatever order.
void make_weights(std::span<const SynthTensor> tensors, const SynthPiece& piece, uint64_t seed,
                  std::span<std::byte> bytes);

}  // namespace k3
