// A .k3cal file: what the trunk's matrices read while calibration text ran through a model, as Gram
// matrices. `k3exec capture` writes it, `k3c` reads it. The layout is in schema/README.md.
//
// A Gram matrix H = sum of x x' over tokens is kept as integers: every channel has a power-of-two
// step, fixed by its largest value over all tokens, and what is stored are the int64 sums of
// products of int16 codes. Integer addition has no order, so the same texts give the same bytes
// however they were cut, spread over threads or spilled.
//
// Documents are split into two halves that never share one: `fit` is for solving, `select` for
// choosing between solutions. Which half a document is in depends on its bytes alone, so two
// captures never disagree about it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schema/extent.h"
#include "schema/file.h"

namespace k3 {

enum class CalibrationHalf : uint8_t { kFit = 0, kSelect = 1 };
inline constexpr std::array<CalibrationHalf, 2> kCalibrationHalves = {CalibrationHalf::kFit,
                                                                      CalibrationHalf::kSelect};
inline constexpr std::array<std::string_view, 2> kCalibrationHalfNames = {"fit", "select"};

// The half of a document whose UTF-8 text has this XXH3: one in four is for selecting.
inline CalibrationHalf half_of_document(uint64_t text_xxh3) {
  return text_xxh3 % 4 == 0 ? CalibrationHalf::kSelect : CalibrationHalf::kFit;
}

struct CalibrationText {
  std::string name;   // the file's base name without extension
  uint64_t xxh3 = 0;  // of the file's bytes
};

struct CalibrationDocuments {
  int64_t tokens = 0;
  std::vector<uint64_t> xxh3;  // of each document's text, in the order of the texts
};

struct CalibrationMatrix {
  std::string name;          // in the pack, e.g. model.layers.7.self_attn.g_proj.weight
  uint64_t source_xxh3 = 0;  // of its bytes in the checkpoint, as the pack's source_hashes has it
};

// The sums of one half, each in pieces of whole rows (schema/gram_place.h).
struct CalibrationSums {
  std::vector<Extent> gram;         // of what the matrices read, x x': rows of the upper triangle
  std::vector<Extent> cross;        // propagated only: y x', all rows
  std::vector<Extent> source_gram;  // propagated only: y y', rows of the upper triangle
};

// Exponents of a channel's step 2^s: the least s with max|x| <= 32639 x 2^s, as for the activations
// of a product (kernels/quantize_activations.h). A channel that was always zero has the least one.
inline constexpr int kLeastStep = -163;
inline constexpr int kLargestStep = 114;

// One vector that one or more matrices read. In a propagated calibration x is what they read in the
// compressed model and y what they read in the source model at the same token.
struct CalibrationInput {
  std::string name;  // SharedInput::name
  int64_t width = 0;
  std::vector<CalibrationMatrix> matrices;
  Extent steps;         // of x
  Extent source_steps;  // of y; propagated only
  std::array<CalibrationSums, 2> sums;

  const CalibrationSums& of(CalibrationHalf half) const { return sums[static_cast<size_t>(half)]; }
};

struct CalibrationIndex {
  uint64_t model_payload_xxh3 = 0;  // the pack that ran; of a propagated one the source model
  std::optional<uint64_t> propagated_payload_xxh3;  // the compressed model whose inputs these are
  int64_t window_tokens = 0;  // that documents were cut into, each from a fresh state; 0: whole
  std::vector<CalibrationText> texts;
  std::array<CalibrationDocuments, 2> documents;  // by half
  std::vector<CalibrationInput> inputs;

  const CalibrationDocuments& of(CalibrationHalf half) const {
    return documents[static_cast<size_t>(half)];
  }
  // Names the split: XXH3 of the hashes of all fit documents, then of all select documents.
  uint64_t split_xxh3() const;
  // Names the texts: XXH3 of their hashes.
  uint64_t text_xxh3() const;
};

class CalibrationReader {
 public:
  // Reads and checks frame and index; sums are read when asked for. Throws Error.
  explicit CalibrationReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  uint64_t index_xxh3() const {
    return index_xxh3_;
  }  // names the whole file: the index has the
     // hash of every extent
  const CalibrationIndex& index() const { return index_; }
  bool is_propagated() const { return index_.propagated_payload_xxh3.has_value(); }
  int64_t tokens(CalibrationHalf half) const { return index_.of(half).tokens; }

  // The input that the matrix of this name reads; null when it was not captured.
  const CalibrationInput* find(std::string_view matrix) const;
  // The same for a matrix whose bytes in the checkpoint hash to `source_xxh3` and that has `cols`
  // columns. Throws Error when the file lacks it or was captured on other weights.
  const CalibrationInput& expect(std::string_view matrix, int64_t cols, uint64_t source_xxh3) const;

  // H of one half, [width, width], both triangles: the sum of x x' over its tokens, neither divided
  // by their number nor damped. Takes one piece (8 MiB) besides `dst`, which has width x width
  // values; the doubles are exact below 8.4 million tokens. Thread-safe. Throws Error for damage.
  void gram(const CalibrationInput& input, CalibrationHalf half, std::span<double> dst) const;
  void gram(const CalibrationInput& input, CalibrationHalf half, std::span<float> dst) const;

  // C of one half, [width, width]: the sum of y x', row i for channel i of y. Propagated only.
  void cross(const CalibrationInput& input, CalibrationHalf half, std::span<double> dst) const;
  void cross(const CalibrationInput& input, CalibrationHalf half, std::span<float> dst) const;

  // The sum of y y' of one half, as gram(). Propagated only.
  void source_gram(const CalibrationInput& input, CalibrationHalf half,
                   std::span<double> dst) const;
  void source_gram(const CalibrationInput& input, CalibrationHalf half, std::span<float> dst) const;

  // The exponent of each channel's step, [width].
  std::vector<int16_t> steps(const CalibrationInput& input) const;
  std::vector<int16_t> source_steps(const CalibrationInput& input) const;

  // One piece as stored, for merging: the sums of its rows one after the other.
  std::vector<int64_t> piece(const Extent& extent, int64_t entries) const;

 private:
  template <class Number>
  void symmetric(const std::vector<Extent>& pieces, std::span<const int16_t> steps,
                 std::span<Number> dst) const;
  template <class Number>
  void full(const std::vector<Extent>& pieces, std::span<const int16_t> row_steps,
            std::span<const int16_t> col_steps, std::span<Number> dst) const;
  std::vector<int16_t> read_steps(const Extent& extent, int64_t width) const;

  File file_;
  CalibrationIndex index_;
  uint64_t index_xxh3_ = 0;
  std::unordered_map<std::string_view, const CalibrationInput*> by_matrix_;
};

}  // namespace k3
