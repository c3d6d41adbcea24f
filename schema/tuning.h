// A .k3tune file: block scales and norm gains that were tuned for one pack, with its codes as they
// are or with codes that were trained together with them. `k3exec fit`, `k3exec tune` or another
// training program writes it, `k3c compile --tuned` puts it into the pack.
//
// It is a safetensors file, so that a training program needs no code of ours. A
// tensor has the name of the pack's: for a matrix in blocks160 it is [rows, blocks], the scale of
// each 160 inputs of a row, w = scale x code; for a norm it is [width], the gain. Both are F32.
// Codes are I8 [rows, cols] under the matrix' name and ".codes"; its scales are then there too.
// What is not named stays as it is. The metadata have kind "k3tune", version "1" and
// pack_payload_xxh3, the payload hash of the pack.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/file.h"
#include "schema/safetensors.h"
#include "schema/shape.h"

namespace k3 {

inline constexpr std::string_view kTunedCodesEnding = ".codes";

struct TunedTensor {
  std::string name;
  Shape shape;                     // [rows, blocks] of a matrix, [width] of a norm
  std::vector<float> values = {};  // finite; scales are not negative
  std::vector<int8_t> codes = {};  // [rows, cols] instead, with the ending in the name
};

// Throws Error when the file cannot be written; an older one is then untouched.
void write_tuning(const std::string& path, uint64_t pack_payload_xxh3,
                  std::span<const TunedTensor> tensors);

class TuningReader {
 public:
  // Reads the header. Throws Error for what is no .k3tune file, for other types and ranks.
  explicit TuningReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  uint64_t pack_payload_xxh3() const { return pack_payload_xxh3_; }
  int64_t tensors() const { return header_.tensors(); }
  std::string_view name(int64_t i) const { return header_.name(i); }
  const Shape& shape(int64_t i) const { return header_.shape(i); }

  // The name of the pack's tensor that it is for.
  std::string_view target(int64_t i) const;
  bool has_codes(int64_t i) const { return header_.dtype(i) == Dtype::kI8; }

  // Fills `values`, of the tensor's size. Thread-safe. Throws Error for a value that is not finite
  // and for a negative scale.
  void read(int64_t i, std::span<float> values) const;
  // Likewise codes; throws Error for one beyond `largest` or its negative.
  void read_codes(int64_t i, int largest, std::span<int8_t> codes) const;

  uint64_t file_xxh3() const;  // reads the whole file

 private:
  File file_;
  SafetensorsHeader header_;
  uint64_t pack_payload_xxh3_ = 0;
};

}  // namespace k3
