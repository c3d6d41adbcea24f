#include "schema/calibration_index.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <unordered_set>

#include "schema/error.h"
#include "schema/gram_place.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/layout.h"
#include "schema/printable.h"

namespace k3 {
namespace {

constexpr int64_t kWidest = int64_t{1} << 22;      // as of a pack's config
constexpr int64_t kMostTokens = int64_t{1} << 33;  // of products below 2^30, in 63 bits

void write_extents(JsonWriter& json, std::string_view name, const std::vector<Extent>& extents) {
  json.key(name);
  json.begin_array();
  for (const Extent& extent : extents) {
    json.begin_array();
    json.value(extent.offset_bytes);
    json.value(extent.length_bytes);
    json.value(hex_digits(extent.xxh3));
    json.end_array();
  }
  json.end_array();
}

void write_input(JsonWriter& json, const CalibrationInput& input) {
  const bool propagated = input.source_steps.length_bytes != 0;
  json.begin_object();
  json.member("name", input.name);
  json.member("width", input.width);
  json.key("matrices");
  json.begin_array();
  for (const CalibrationMatrix& matrix : input.matrices) {
    json.begin_object();
    json.member("name", matrix.name);
    json.member("source_xxh3", hex_digits(matrix.source_xxh3));
    json.end_object();
  }
  json.end_array();
  write_extents(json, "steps", {input.steps});
  if (propagated) write_extents(json, "source_steps", {input.source_steps});
  for (const CalibrationHalf half : kCalibrationHalves) {
    const CalibrationSums& sums = input.of(half);
    json.key(kCalibrationHalfNames[static_cast<size_t>(half)]);
    json.begin_object();
    write_extents(json, "gram", sums.gram);
    if (propagated) {
      write_extents(json, "cross", sums.cross);
      write_extents(json, "source_gram", sums.source_gram);
    }
    json.end_object();
  }
  json.end_object();
}

// Reads values out of a parsed document; every step that fails names the key.
class IndexParser {
 public:
  using Element = simdjson::dom::element;

  IndexParser(const std::string& path, std::string_view json) : path_(path) {
    const auto error = parser_.parse(json.data(), json.size(), true).get(root_);
    if (error != simdjson::SUCCESS) {
      throw Error(path_, ": index: ", simdjson::error_message(error));
    }
  }
  Element root() const { return root_; }

  bool has(Element object, std::string_view key) const {
    return object.at_key(key).error() == simdjson::SUCCESS;
  }
  Element member(Element object, std::string_view key) const {
    Element value;
    if (object.at_key(key).get(value) != simdjson::SUCCESS) {
      throw Error(path_, ": index: ", key, " is missing");
    }
    return value;
  }
  std::string text(Element object, std::string_view key) const {
    return std::string(as_text(member(object, key), key));
  }
  int64_t natural(Element object, std::string_view key) const {
    return as_natural(member(object, key), key);
  }
  uint64_t hash(Element object, std::string_view key) const {
    return as_hash(member(object, key), key);
  }
  simdjson::dom::array array(Element object, std::string_view key) const {
    return as_array(member(object, key), key);
  }
  uint64_t as_hash(Element value, std::string_view key) const {
    const std::string_view digits = as_text(value, key);
    uint64_t hash = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16) {
      throw Error(path_, ": index: ", key, " is \"", printable(digits),
                  "\", expected 16 hexadecimal digits");
    }
    return hash;
  }
  std::vector<Extent> extents(Element object, std::string_view key) const {
    std::vector<Extent> extents;
    for (const Element item : array(object, key)) {
      const simdjson::dom::array parts = as_array(item, key);
      if (parts.size() != 3) {
        throw Error(path_, ": index: ", key, " has an extent of ", parts.size(),
                    " parts, expected offset, length and hash");
      }
      extents.push_back({as_natural(parts.at(0).value(), key), as_natural(parts.at(1).value(), key),
                         as_hash(parts.at(2).value(), key)});
    }
    return extents;
  }
  Extent extent(Element object, std::string_view key) const {
    const std::vector<Extent> all = extents(object, key);
    if (all.size() != 1) {
      throw Error(path_, ": index: ", key, " has ", all.size(), " extents, expected 1");
    }
    return all.front();
  }
  CalibrationInput input(Element object) const {
    CalibrationInput input{.name = text(object, "name"),
                           .width = natural(object, "width"),
                           .matrices = {},
                           .steps = extent(object, "steps"),
                           .source_steps = {},
                           .sums = {}};
    for (const Element matrix : array(object, "matrices")) {
      input.matrices.push_back({text(matrix, "name"), hash(matrix, "source_xxh3")});
    }
    const bool propagated = has(object, "source_steps");
    if (propagated) input.source_steps = extent(object, "source_steps");
    for (const CalibrationHalf half : kCalibrationHalves) {
      const auto position = static_cast<size_t>(half);
      const Element sums = member(object, kCalibrationHalfNames[position]);
      input.sums[position].gram = extents(sums, "gram");
      if (!propagated) continue;
      input.sums[position].cross = extents(sums, "cross");
      input.sums[position].source_gram = extents(sums, "source_gram");
    }
    return input;
  }

 private:
  std::string_view as_text(Element value, std::string_view key) const {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      throw Error(path_, ": index: ", key, " is not a string");
    }
    return text;
  }
  int64_t as_natural(Element value, std::string_view key) const {
    int64_t number = 0;
    if (value.get(number) != simdjson::SUCCESS || number < 0) {
      throw Error(path_, ": index: ", key, " is not an integer from 0 to 2^63 - 1");
    }
    return number;
  }
  simdjson::dom::array as_array(Element value, std::string_view key) const {
    simdjson::dom::array array;
    if (value.get(array) != simdjson::SUCCESS) {
      throw Error(path_, ": index: ", key, " is not an array");
    }
    return array;
  }

  const std::string& path_;
  simdjson::dom::parser parser_;
  Element root_;
};

class IndexCheck {
 public:
  IndexCheck(const std::string& path, const CalibrationIndex& index) : path_(path), index_(index) {}

  void documents() const {
    for (const CalibrationHalf half : kCalibrationHalves) {
      const CalibrationDocuments& documents = index_.of(half);
      const std::string_view name = kCalibrationHalfNames[static_cast<size_t>(half)];
      if (documents.tokens > kMostTokens) {
        throw Error(path_, ": index: the ", name, " half has ", documents.tokens,
                    " tokens, at most ", kMostTokens, " fit its sums");
      }
      for (const uint64_t xxh3 : documents.xxh3) {
        if (half_of_document(xxh3) != half) {
          throw Error(path_, ": index: document ", hex_digits(xxh3), " is in the ", name,
                      " half, by its hash it belongs to the other");
        }
      }
    }
  }

  void inputs(int64_t index_offset_bytes) {
    std::unordered_set<std::string_view> names;
    std::unordered_set<std::string_view> matrices;
    const bool propagated = index_.propagated_payload_xxh3.has_value();
    for (const CalibrationInput& input : index_.inputs) {
      if (input.name.empty() || !names.insert(input.name).second) {
        throw Error(path_, ": index: input \"", printable(input.name),
                    "\" has no name or another's");
      }
      if (input.width < 1 || input.width > kWidest) {
        throw Error(path_, ": index: input ", printable(input.name), ": width is ", input.width,
                    ", expected 1 to ", kWidest);
      }
      for (const CalibrationMatrix& matrix : input.matrices) {
        if (!matrices.insert(matrix.name).second) {
          throw Error(path_, ": index: matrix ", printable(matrix.name), " reads two inputs");
        }
      }
      if ((input.source_steps.length_bytes != 0) != propagated) {
        throw Error(path_, ": index: input ", printable(input.name),
                    propagated ? ": has no" : ": has", " sums of the source model, the file is ",
                    propagated ? "" : "not ", "propagated");
      }
      extents_.push_back(input.steps);
      if (propagated) extents_.push_back(input.source_steps);
      for (const CalibrationSums& sums : input.sums) {
        add_pieces(input, sums.gram, {input.width, true});
        if (!propagated) continue;
        add_pieces(input, sums.cross, {input.width, false});
        add_pieces(input, sums.source_gram, {input.width, true});
      }
    }
    places(index_offset_bytes);
  }

 private:
  void add_pieces(const CalibrationInput& input, const std::vector<Extent>& pieces,
                  const GramPlace& place) {
    const size_t want = place.pieces().size();
    if (pieces.size() != want) {
      throw Error(path_, ": index: input ", printable(input.name), ": a matrix of width ",
                  input.width, " is in ", pieces.size(), " pieces, expected ", want);
    }
    extents_.insert(extents_.end(), pieces.begin(), pieces.end());
  }

  void places(int64_t index_offset_bytes) {
    std::sort(extents_.begin(), extents_.end(),
              [](const Extent& a, const Extent& b) { return a.offset_bytes < b.offset_bytes; });
    int64_t next = kExtentAlignment;
    for (const Extent& extent : extents_) {
      if (extent.offset_bytes != next || extent.length_bytes < 1 ||
          extent.length_bytes > index_offset_bytes - next) {
        throw Error(path_, ": index: an extent is at ", extent.offset_bytes, " + ",
                    extent.length_bytes, ", expected at ", next, " and before the index at ",
                    index_offset_bytes);
      }
      next = align_up(extent.end_bytes(), kExtentAlignment);
    }
    if (next != index_offset_bytes) {
      throw Error(path_, ": index: is at ", index_offset_bytes, ", the extents end at ", next);
    }
  }

  const std::string& path_;
  const CalibrationIndex& index_;
  std::vector<Extent> extents_;
};

}  // namespace

std::string encode_calibration_input(const CalibrationInput& input) {
  std::ostringstream out;
  JsonWriter json(out);
  write_input(json, input);
  return std::move(out).str();
}

std::string encode_calibration_index(const CalibrationIndex& index) {
  std::ostringstream out;
  JsonWriter json(out);
  json.begin_object();
  json.member("kind", "k3cal");
  json.member("model_payload_xxh3", hex_digits(index.model_payload_xxh3));
  if (index.propagated_payload_xxh3) {
    json.member("propagated_payload_xxh3", hex_digits(*index.propagated_payload_xxh3));
  }
  json.member("window_tokens", index.window_tokens);
  json.key("texts");
  json.begin_array();
  for (const CalibrationText& text : index.texts) {
    json.begin_object();
    json.member("name", text.name);
    json.member("xxh3", hex_digits(text.xxh3));
    json.end_object();
  }
  json.end_array();
  for (const CalibrationHalf half : kCalibrationHalves) {
    json.key(kCalibrationHalfNames[static_cast<size_t>(half)]);
    json.begin_object();
    json.member("tokens", index.of(half).tokens);
    json.key("documents");
    json.begin_array();
    for (const uint64_t xxh3 : index.of(half).xxh3) json.value(hex_digits(xxh3));
    json.end_array();
    json.end_object();
  }
  json.key("inputs");
  json.begin_array();
  for (const CalibrationInput& input : index.inputs) write_input(json, input);
  json.end_array();
  json.end_object();
  return std::move(out).str();
}

CalibrationInput parse_calibration_input(const std::string& path, std::string_view json) {
  const IndexParser parser(path, json);
  return parser.input(parser.root());
}

CalibrationIndex parse_calibration_index(const std::string& path, std::string_view json) {
  const IndexParser parser(path, json);
  const auto root = parser.root();
  if (const std::string kind = parser.text(root, "kind"); kind != "k3cal") {
    throw Error(path, ": index: kind is ", printable(kind), ", expected k3cal");
  }
  CalibrationIndex index;
  index.model_payload_xxh3 = parser.hash(root, "model_payload_xxh3");
  if (parser.has(root, "propagated_payload_xxh3")) {
    index.propagated_payload_xxh3 = parser.hash(root, "propagated_payload_xxh3");
  }
  index.window_tokens = parser.natural(root, "window_tokens");
  for (const auto text : parser.array(root, "texts")) {
    index.texts.push_back({parser.text(text, "name"), parser.hash(text, "xxh3")});
  }
  for (const CalibrationHalf half : kCalibrationHalves) {
    const auto position = static_cast<size_t>(half);
    const auto object = parser.member(root, kCalibrationHalfNames[position]);
    index.documents[position].tokens = parser.natural(object, "tokens");
    for (const auto document : parser.array(object, "documents")) {
      index.documents[position].xxh3.push_back(parser.as_hash(document, "documents"));
    }
  }
  for (const auto input : parser.array(root, "inputs")) index.inputs.push_back(parser.input(input));
  return index;
}

void check_calibration_index(const std::string& path, const CalibrationIndex& index,
                             int64_t index_offset_bytes) {
  IndexCheck check(path, index);
  check.documents();
  check.inputs(index_offset_bytes);
}

}  // namespace k3
