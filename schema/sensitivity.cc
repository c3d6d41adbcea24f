#include "schema/sensitivity.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/printable.h"

namespace k3 {
namespace {

constexpr std::string_view kKind = "k3sens";
constexpr int64_t kVersion = 1;
constexpr int64_t kLargestFile = int64_t{1} << 28;  // K3 has 630 matrices: half a megabyte

void write_swap(JsonWriter& json, const JointSwap& swap) {
  json.member("candidate", swap.candidate);
  json.member("matrices", swap.matrices);
  json.member("kl", swap.kl);
  json.member("single_kl", swap.single_kl);
}

// Calls `write` for every item of a list, which becomes an array of objects.
template <class Item, class Write>
void write_objects(JsonWriter& json, std::string_view name, const std::vector<Item>& items,
                   const Write& write) {
  json.key(name);
  json.begin_array();
  for (const Item& item : items) {
    json.begin_object();
    write(item);
    json.end_object();
  }
  json.end_array();
}

// Reads values out of a parsed document; every step that fails names the key.
class Fields {
 public:
  using Element = simdjson::dom::element;

  Fields(const std::string& path, Element object) : path_(path), object_(object) {}

  Element member(std::string_view key) const {
    Element value;
    if (object_.at_key(key).get(value) != simdjson::SUCCESS) fail(key, "is missing");
    return value;
  }
  std::string text(std::string_view key) const {
    std::string_view value;
    if (member(key).get_string().get(value) != simdjson::SUCCESS) fail(key, "is not a string");
    return std::string(value);
  }
  int64_t natural(std::string_view key, int64_t limit) const {
    int64_t value = 0;
    if (member(key).get_int64().get(value) != simdjson::SUCCESS || value < 0 || value >= limit) {
      fail(key, "is not a whole number from 0 to " + std::to_string(limit - 1));
    }
    return value;
  }
  double kl(std::string_view key) const {
    double value = 0;
    if (member(key).get_double().get(value) != simdjson::SUCCESS || !std::isfinite(value) ||
        value < 0) {
      fail(key, "is not a KL, a finite number of at least 0");
    }
    return value;
  }
  uint64_t hash(std::string_view key) const {
    const std::string digits = text(key);
    uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16) {
      fail(key, "is not a hash of 16 hexadecimal digits");
    }
    return value;
  }
  Format format(std::string_view key) const {
    const auto value = parse_format(text(key));
    if (!value || *value == Format::kMxfp4) fail(key, "is no format of a trunk matrix");
    return *value;
  }
  Family family(std::string_view key) const {
    const std::string name = text(key);
    const auto found = std::find(kFamilyNames.begin(), kFamilyNames.end(), name);
    if (found == kFamilyNames.end()) fail(key, "is no family");
    return static_cast<Family>(found - kFamilyNames.begin());
  }
  // Calls `read` with the fields of each object of an array.
  template <class Read>
  void each(std::string_view key, const Read& read) const {
    simdjson::dom::array items;
    if (member(key).get_array().get(items) != simdjson::SUCCESS) fail(key, "is not an array");
    for (const Element item : items) read(Fields(path_, item));
  }
  JointSwap joint_swap(int64_t candidates) const {
    return {natural("candidate", candidates), natural("matrices", int64_t{1} << 31), kl("kl"),
            kl("single_kl")};
  }
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw Error(path_, ": ", key, " ", what);
  }

 private:
  const std::string& path_;
  Element object_;
};

MatrixSensitivity read_matrix(const Fields& fields, int64_t candidates) {
  MatrixSensitivity matrix{.name = fields.text("name"),
                           .family = fields.family("family"),
                           .source_xxh3 = fields.hash("source_xxh3"),
                           .format = fields.format("format"),
                           .swaps = {}};
  std::set<Format> formats = {matrix.format};
  fields.each("swaps", [&](const Fields& swap) {
    matrix.swaps.push_back({swap.natural("candidate", candidates), swap.format("format"),
                            swap.hash("extent_xxh3"), swap.kl("kl")});
    if (!formats.insert(matrix.swaps.back().format).second) {
      fields.fail(
          printable(matrix.name),
          "has the format " + std::string(format_name(matrix.swaps.back().format)) + " twice");
    }
  });
  return matrix;
}

}  // namespace

const MatrixSensitivity* Sensitivity::find(std::string_view matrix) const {
  const auto found =
      std::find_if(matrices.begin(), matrices.end(),
                   [matrix](const MatrixSensitivity& one) { return one.name == matrix; });
  return found == matrices.end() ? nullptr : &*found;
}

std::string sensitivity_text(const Sensitivity& sensitivity) {
  std::ostringstream text;
  JsonWriter json(text, 1);
  json.begin_object();
  json.member("kind", kKind);
  json.member("version", kVersion);
  json.member("base_payload_xxh3", hex_digits(sensitivity.base_payload_xxh3));
  write_objects(json, "texts", sensitivity.texts, [&](const SensitivityText& one) {
    json.member("name", one.name);
    json.member("xxh3", hex_digits(one.xxh3));
  });
  json.member("window_tokens", sensitivity.window_tokens);
  json.member("positions", sensitivity.positions);
  write_objects(json, "candidates", sensitivity.candidates, [&](const SensitivityCandidate& one) {
    json.member("name", one.name);
    json.member("payload_xxh3", hex_digits(one.payload_xxh3));
  });
  write_objects(json, "whole", sensitivity.whole,
                [&](const JointSwap& swap) { write_swap(json, swap); });
  write_objects(json, "families", sensitivity.families, [&](const FamilySwap& one) {
    json.member("family", family_name(one.family));
    write_swap(json, one.swap);
  });
  write_objects(json, "matrices", sensitivity.matrices, [&](const MatrixSensitivity& matrix) {
    json.member("name", matrix.name);
    json.member("family", family_name(matrix.family));
    json.member("source_xxh3", hex_digits(matrix.source_xxh3));
    json.member("format", format_name(matrix.format));
    write_objects(json, "swaps", matrix.swaps, [&](const MatrixSwap& swap) {
      json.member("candidate", swap.candidate);
      json.member("format", format_name(swap.format));
      json.member("extent_xxh3", hex_digits(swap.extent_xxh3));
      json.member("kl", swap.kl);
    });
  });
  json.end_object();
  text << '\n';
  return std::move(text).str();
}

Sensitivity read_sensitivity(const std::string& path) {
  const std::vector<std::byte> bytes = read_whole_file(path, kLargestFile);
  if (bytes.empty()) throw Error(path, ": is empty, expected a .k3sens file");
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto error =
      parser.parse(reinterpret_cast<const char*>(bytes.data()), bytes.size(), true).get(root);
  if (error != simdjson::SUCCESS) {
    throw Error(path, ": is not a .k3sens file: ", simdjson::error_message(error));
  }
  const Fields fields(path, root);
  if (const std::string kind = fields.text("kind"); kind != kKind) {
    throw Error(path, ": kind is ", printable(kind), ", expected ", kKind);
  }
  if (const int64_t version = fields.natural("version", int64_t{1} << 31); version != kVersion) {
    throw Error(path, ": version is ", version, ", this program reads ", kVersion);
  }
  constexpr int64_t kAny = int64_t{1} << 62;
  Sensitivity sensitivity;
  sensitivity.file_xxh3 = xxh3(bytes);
  sensitivity.base_payload_xxh3 = fields.hash("base_payload_xxh3");
  sensitivity.window_tokens = fields.natural("window_tokens", kAny);
  sensitivity.positions = fields.natural("positions", kAny);
  fields.each("texts", [&](const Fields& one) {
    sensitivity.texts.push_back({one.text("name"), one.hash("xxh3")});
  });
  fields.each("candidates", [&](const Fields& one) {
    sensitivity.candidates.push_back({one.text("name"), one.hash("payload_xxh3")});
  });
  const auto candidates = static_cast<int64_t>(sensitivity.candidates.size());
  fields.each("whole",
              [&](const Fields& one) { sensitivity.whole.push_back(one.joint_swap(candidates)); });
  fields.each("families", [&](const Fields& one) {
    sensitivity.families.push_back({one.family("family"), one.joint_swap(candidates)});
  });
  std::set<std::string> names;
  fields.each("matrices", [&](const Fields& one) {
    sensitivity.matrices.push_back(read_matrix(one, candidates));
    const std::string& name = sensitivity.matrices.back().name;
    if (!names.insert(name).second)
      throw Error(path, ": matrix ", printable(name), " is there twice");
  });
  if (sensitivity.whole.size() != sensitivity.candidates.size()) {
    throw Error(path, ": whole has ", sensitivity.whole.size(), " swaps, expected one for each of ",
                candidates, " candidates");
  }
  return sensitivity;
}

}  // namespace k3
