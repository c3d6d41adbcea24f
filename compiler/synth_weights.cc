// What each kind of tensor is filled with is one table. A matrix's gain is the root mean square of
// its outputs for inputs of mean square one; where the released model or the bundled trained one
// shows a value (A_log, dt_bias, convolutions, router bias), it is near that.
#include "compiler/synth_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <string_view>

#include "compiler/synth_matrix.h"
#include "compiler/synth_mxfp4.h"
#include "compiler/synth_random.h"
#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/formats/mxfp4.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr std::string_view kCodesName = ".weight_packed";

enum class Filling : uint8_t {
  kMatrix,     // gain
  kEmbedding,  // root mean square of an entry
  kVector,     // mean, standard deviation
  kTaps,       // of the newest tap: mean, standard deviation; the older ones have mean 0
};

struct Recipe {
  std::string_view kind_end;  // the first row that ends a tensor's kind applies
  Filling filling;
  float number;
  float deviation = 0;
};

constexpr std::array kRecipes = {
    Recipe{"embed_tokens.weight", Filling::kEmbedding, 0.3f},
    Recipe{"lm_head.weight", Filling::kMatrix, 2.5f},
    Recipe{"pos_emb.weight", Filling::kEmbedding, 0.1f},
    Recipe{"patch_embed.proj.weight", Filling::kMatrix, 1},
    // Scores of order one over the snapshots.
    Recipe{"_res_proj.weight", Filling::kMatrix, 0.8f},
    Recipe{"_conv1d.weight", Filling::kTaps, 0.83f, 0.2f},
    Recipe{"A_log", Filling::kVector, 0.3f, 0.3f},
    // Slow decay for most channels.
    Recipe{"dt_bias", Filling::kVector, -3, 1.1f},
    Recipe{"e_score_correction_bias", Filling::kVector, 0, 0.02f},
    Recipe{"gate.weight", Filling::kMatrix, 2},
    // Into the residual stream, two of them a layer.
    Recipe{"o_proj.weight", Filling::kMatrix, 0.8f},
    Recipe{"down_proj.weight", Filling::kMatrix, 0.8f},
    Recipe{"proj.weight", Filling::kMatrix, 1},
    Recipe{"proj_with_mqa.weight", Filling::kMatrix, 1},
    Recipe{"proj.0.weight", Filling::kMatrix, 1},
    Recipe{"proj.2.weight", Filling::kMatrix, 1},
    Recipe{"wqkv.weight", Filling::kMatrix, 1},
    Recipe{"wo.weight", Filling::kMatrix, 0.5f},
    Recipe{"fc0.weight", Filling::kMatrix, 1},
    Recipe{"fc1.weight", Filling::kMatrix, 0.5f},
    Recipe{"norm.weight", Filling::kVector, 1, 0.06f},
    Recipe{"norm0.weight", Filling::kVector, 1, 0.06f},
    Recipe{"norm1.weight", Filling::kVector, 1, 0.06f},
    // Routed experts, packed or not. At K3's widths 1.4 gives the released experts' scales.
    Recipe{"w1.weight", Filling::kMatrix, 1.4f},
    Recipe{"w2.weight", Filling::kMatrix, 1.4f},
    Recipe{"w3.weight", Filling::kMatrix, 1.4f},
    Recipe{"w1.weight_packed", Filling::kMatrix, 1.4f},
    Recipe{"w2.weight_packed", Filling::kMatrix, 1.4f},
    Recipe{"w3.weight_packed", Filling::kMatrix, 1.4f},
};

constexpr MatrixCharacter kTrunkCharacter = {.rank = 16,
                                             .strong_share = 0.4f,
                                             .row_spread = 0.15f,
                                             .column_spread = 0.25f,
                                             .outlier_columns = 128,
                                             .outlier_gain = 5};
// Channels that are large for every token make the residual stream's, and with it every trunk
// matrix's, inputs uneven.
constexpr MatrixCharacter kEmbeddingCharacter = {.rank = 16,
                                                 .strong_share = 0.5f,
                                                 .row_spread = 0.2f,
                                                 .column_spread = 0.25f,
                                                 .outlier_columns = 100,
                                                 .outlier_gain = 8};
// Gains of columns would change how often codes occur.
constexpr MatrixCharacter kExpertCharacter = {.rank = 4, .strong_share = 0.2f};

const Recipe& recipe_of(std::string_view kind) {
  const auto found = std::find_if(kRecipes.begin(), kRecipes.end(), [kind](const Recipe& recipe) {
    return kind.ends_with(recipe.kind_end);
  });
  K3_CHECK(found != kRecipes.end());
  return *found;
}

bool is_codes(const SynthTensor& tensor) {
  return tensor.kind.ends_with(kCodesName);
}

int64_t rows_of(const SynthTensor& tensor) {
  return tensor.shape.rank() > 1 ? tensor.shape[0] : tensor.entries();
}

// A matrix of few rows has no room for strong directions.
MatrixCharacter fitted(MatrixCharacter character, int64_t rows, int64_t cols) {
  constexpr int64_t kRoomForOne = 4;
  character.rank = std::min(character.rank, std::min(rows, cols) / kRoomForOne);
  return character;
}

float scale_for_gain(float gain, int64_t cols) {
  return gain / std::sqrt(static_cast<float>(cols));
}

void store(float value, Dtype dtype, std::byte* dst) {
  if (dtype == Dtype::kF32) {
    store_little_endian(std::bit_cast<uint32_t>(value), dst);
  } else {
    store_little_endian(encode_bf16(value), dst);
  }
}

class RowMaker {
 public:
  RowMaker(const SynthTensor& tensor, uint64_t seed)
      : tensor_(tensor), recipe_(recipe_of(tensor.kind)), stream_(seed, tensor.name) {
    if (recipe_.filling != Filling::kMatrix && recipe_.filling != Filling::kEmbedding) return;
    const int64_t rows = rows_of(tensor);
    const int64_t cols = tensor.entries() / rows;
    const bool table = recipe_.filling == Filling::kEmbedding;
    const float scale = table ? recipe_.number : scale_for_gain(recipe_.number, cols);
    matrix_.emplace(stream_, cols, scale,
                    fitted(table ? kEmbeddingCharacter : kTrunkCharacter, rows, cols));
  }

  void make_row(int64_t row, std::span<float> out) const {
    if (matrix_) return matrix_->make_row(row, out);
    for (size_t j = 0; j < out.size(); ++j) {
      const uint64_t number = static_cast<uint64_t>(row) * out.size() + j;
      const bool has_mean = recipe_.filling == Filling::kVector || j + 1 == out.size();
      const bool used = static_cast<int64_t>(number) < tensor_.used_entries;
      out[j] = (has_mean ? recipe_.number : 0.0f) + recipe_.deviation * stream_.bell(number);
      if (!used) out[j] = 0;
    }
  }

 private:
  const SynthTensor& tensor_;
  const Recipe& recipe_;
  RandomStream stream_;
  std::optional<SynthMatrix> matrix_;
};

void make_rows(const SynthTensor& tensor, const SynthPiece& piece, uint64_t seed,
               std::span<std::byte> bytes) {
  const RowMaker maker(tensor, seed);
  std::vector<float> row(static_cast<size_t>(tensor.entries() / rows_of(tensor)));
  std::byte* dst = bytes.data();
  for (int64_t i = 0; i < piece.rows; ++i) {
    maker.make_row(piece.first_row + i, row);
    for (const float value : row) {
      store(value, tensor.dtype, dst);
      dst += dtype_bytes(tensor.dtype);
    }
  }
}

// Packed codes [rows, inputs / 2], then scales [rows, inputs / 32].
void make_mxfp4(const SynthTensor& tensor, uint64_t seed, std::span<std::byte> bytes) {
  constexpr size_t kGroup = kMxfp4GroupInputs;
  const int64_t rows = tensor.shape[0];
  const int64_t inputs = 2 * tensor.shape[1];
  const float scale =
      natural_mxfp4_deviation(scale_for_gain(recipe_of(tensor.kind).number, inputs));
  const SynthMatrix matrix(RandomStream(seed, tensor.name), inputs, scale,
                           fitted(kExpertCharacter, rows, inputs));
  std::span<std::byte> codes = bytes.first(static_cast<size_t>(tensor.bytes()));
  std::span<std::byte> scales = bytes.subspan(codes.size());
  std::vector<float> row(static_cast<size_t>(inputs));
  for (int64_t i = 0; i < rows; ++i) {
    matrix.make_row(i, row);
    for (size_t j = 0; j < row.size(); j += kGroup) {
      const uint8_t byte =
          quantize_mxfp4_group(std::span(row).subspan(j, kGroup), codes.first(kGroup / 2));
      scales.front() = static_cast<std::byte>(byte);
      codes = codes.subspan(kGroup / 2);
      scales = scales.subspan(1);
    }
  }
}

}  // namespace

std::vector<SynthPiece> cut_into_pieces(std::span<const SynthTensor> tensors) {
  std::vector<SynthPiece> pieces;
  int64_t offset_bytes = 0;
  const auto add = [&](size_t tensor, int64_t first_row, int64_t rows, int64_t length_bytes) {
    pieces.push_back({tensor, first_row, rows, offset_bytes, length_bytes});
    offset_bytes += length_bytes;
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t rows = rows_of(tensors[i]);
    if (is_codes(tensors[i])) {
      // In text order an expert's w1.weight_scale comes right behind its w1.weight_packed.
      K3_CHECK(i + 1 < tensors.size() && tensors[i + 1].kind.ends_with(".weight_scale"));
      add(i, 0, rows, tensors[i].bytes() + tensors[i + 1].bytes());
      ++i;
      continue;
    }
    const int64_t row_bytes = tensors[i].bytes() / rows;
    K3_CHECK(row_bytes > 0);
    const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      add(i, row, count, count * row_bytes);
    }
  }
  return pieces;
}

void make_weights(std::span<const SynthTensor> tensors, const SynthPiece& piece, uint64_t seed,
                  std::span<std::byte> bytes) {
  K3_CHECK(std::ssize(bytes) == piece.length_bytes);
  const SynthTensor& tensor = tensors[piece.tensor];
  if (is_codes(tensor)) {
    make_mxfp4(tensor, seed, bytes);
  } else {
    make_rows(tensor, piece, seed, bytes);
  }
}

}  // namespace k3
