#include "schema/tuning.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/printable.h"
#include "schema/safetensors_writer.h"

namespace k3 {
namespace {

constexpr const char* kKind = "k3tune";
constexpr const char* kVersion = "1";
constexpr const char* kPayloadKey = "pack_payload_xxh3";
constexpr int64_t kHashedAtOnce = int64_t{1} << 20;

std::string_view metadata(const File& file, const SafetensorsHeader& header, std::string_view key) {
  for (const auto& [name, value] : header.metadata()) {
    if (name == key) return value;
  }
  throw Error(file.path(), ": metadata ", key, " is missing, expected that of a .k3tune file");
}

}  // namespace

void write_tuning(const std::string& path, uint64_t pack_payload_xxh3,
                  std::span<const TunedTensor> tensors) {
  std::vector<TensorToWrite> items;
  for (const TunedTensor& tensor : tensors) {
    const bool has_codes = tensor.name.ends_with(kTunedCodesEnding);
    K3_CHECK(tensor.shape.elements() ==
             (has_codes ? std::ssize(tensor.codes) : std::ssize(tensor.values)));
    items.push_back({tensor.name, has_codes ? Dtype::kI8 : Dtype::kF32, tensor.shape,
                     has_codes ? std::as_bytes(std::span(tensor.codes))
                               : std::as_bytes(std::span(tensor.values))});
  }
  const std::pair<std::string, std::string> facts[] = {
      {"kind", kKind}, {"version", kVersion}, {kPayloadKey, hex_digits(pack_payload_xxh3)}};
  write_safetensors(path, items, facts);
}

TuningReader::TuningReader(const std::string& path)
    : file_(path), header_(read_safetensors_header(file_)) {
  for (const auto& [key, expected] : {std::pair{"kind", kKind}, std::pair{"version", kVersion}}) {
    if (const std::string_view found = metadata(file_, header_, key); found != expected) {
      throw Error(path, ": ", key, " is ", printable(found), ", expected ", expected);
    }
  }
  const std::string_view digits = metadata(file_, header_, kPayloadKey);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), pack_payload_xxh3_, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16) {
    throw Error(path, ": ", kPayloadKey, " is ", printable(digits),
                ", expected 16 hexadecimal digits");
  }
  for (int64_t i = 0; i < tensors(); ++i) {
    const bool is_named_codes = name(i).ends_with(kTunedCodesEnding);
    const int64_t rank = shape(i).rank();
    const bool is_codes = has_codes(i) && rank == 2;
    const bool is_floats = header_.dtype(i) == Dtype::kF32 && (rank == 1 || rank == 2);
    if (is_named_codes ? !is_codes : !is_floats) {
      throw Error(path, ": tensor ", printable(name(i)), ": is ", dtype_name(header_.dtype(i)), " ",
                  shape(i), ", expected ",
                  is_named_codes ? "I8 [rows, cols]" : "F32 [rows, blocks] or [width]");
    }
  }
}

std::string_view TuningReader::target(int64_t i) const {
  return has_codes(i) ? name(i).substr(0, name(i).size() - kTunedCodesEnding.size()) : name(i);
}

void TuningReader::read(int64_t i, std::span<float> values) const {
  K3_CHECK(!has_codes(i) && std::ssize(values) == shape(i).elements());
  file_.read_at(header_.offset_bytes(i), std::as_writable_bytes(values));
  const bool is_scale = shape(i).rank() == 2;
  for (size_t at = 0; at < values.size(); ++at) {
    if (std::isfinite(values[at]) && !(is_scale && values[at] < 0)) continue;
    throw Error(path(), ": tensor ", printable(name(i)), ": value ", at, " is ", values[at],
                ", expected a ", is_scale ? "finite number of at least 0" : "finite number");
  }
}

void TuningReader::read_codes(int64_t i, int largest, std::span<int8_t> codes) const {
  K3_CHECK(has_codes(i) && std::ssize(codes) == shape(i).elements());
  file_.read_at(header_.offset_bytes(i), std::as_writable_bytes(codes));
  for (size_t at = 0; at < codes.size(); ++at) {
    const int code = codes[at];
    if (code >= -largest && code <= largest) continue;
    throw Error(path(), ": tensor ", printable(name(i)), ": value ", at, " is ", code,
                ", expected ", -largest, " to ", largest);
  }
}

uint64_t TuningReader::file_xxh3() const {
  Xxh3Stream hash;
  std::vector<std::byte> piece;
  for (int64_t at = 0; at < file_.size_bytes(); at += kHashedAtOnce) {
    piece.resize(static_cast<size_t>(std::min(kHashedAtOnce, file_.size_bytes() - at)));
    read_hashed(file_, at, piece, hash);
  }
  return hash.digest();
}

}  // namespace k3
