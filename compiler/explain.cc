#include "compiler/explain.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/nearest_names.h"
#include "compiler/pack_history.h"
#include "compiler/quantities.h"
#include "compiler/report.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/pack_reader.h"
#include "schema/printable.h"
#include "schema/source_hashes.h"

namespace k3 {
namespace {

constexpr size_t kNamesOffered = 3;

struct NamedShape {
  const char* name;  // of the matrix, empty for a tensor
  Shape shape;
};

struct ExpertPlace {
  size_t position = 0;  // in the bank, hottest first
  bool cold = false;
  size_t kept = 0;
  int64_t source_experts = 0;
  std::array<uint8_t, 3> least_exponent = {};  // by ExpertMatrix
  int32_t fixed_point = 0;
};

struct Explanation {
  std::string subject;  // as decisions name it
  Family family = Family::kNorm;
  bool in_pack = true;
  std::string left_out;  // why not, in words; empty when it is
  // What follows stands only for what is in the pack.
  std::vector<NamedShape> shapes;
  Format format = Format::kBf16;
  Layout layout = Layout::kRowMajor;
  Extent extent;
  std::optional<ExpertPlace> expert;
  std::vector<RecordedSource> sources;
  uint64_t source_xxh3 = 0;
  // What the passes chose, about the thing itself and about its bank.
  std::vector<RecordedDecision> decisions;

  double bits_per_weight() const {
    int64_t weights = 0;
    for (const NamedShape& one : shapes) weights += one.shape.elements().value_or(0);
    return weights == 0
               ? 0
               : 8.0 * static_cast<double>(extent.length_bytes) / static_cast<double>(weights);
  }
};

struct ExpertName {
  int64_t layer = 0;
  int64_t source_id = 0;
  bool of_tensor = false;  // one tensor of the expert was named
};

// Takes a number off the front of `text`.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

// model.layers.L.experts.E, model.layers.L.block_sparse_moe.experts.E and the latter's tensors.
std::optional<ExpertName> parse_expert(std::string_view name) {
  if (!take(name, "model.layers.")) return std::nullopt;
  const auto layer = take_number(name);
  if (!layer || !take(name, ".")) return std::nullopt;
  const bool in_full = take(name, "block_sparse_moe.");
  if (!take(name, "experts.")) return std::nullopt;
  const auto source_id = take_number(name);
  if (!source_id || !(name.empty() || (in_full && name.front() == '.'))) return std::nullopt;
  return ExpertName{*layer, *source_id, !name.empty()};
}

class Explainer {
 public:
  explicit Explainer(const PackReader& pack) : pack_(pack), history_(pack) {}

  Explanation explain(const std::string& asked) const {
    const std::string& prefix = history_.source_prefix();
    const std::string name = asked.starts_with(prefix) ? asked.substr(prefix.size()) : asked;
    if (const PackTensor* tensor = pack_.find(name)) return explain_tensor(*tensor);
    if (const auto expert = parse_expert(name)) return explain_expert(asked, name, *expert);
    if (auto vision = explain_vision(name)) return *vision;
    fail_unknown(asked, name);
  }

 private:
  const PackContent& content() const { return pack_.index().content; }

  Explanation explain_tensor(const PackTensor& tensor) const {
    Explanation said;
    said.subject = tensor.name;
    said.family = tensor.family;
    said.shapes = {{"", tensor.shape}};
    said.format = tensor.format;
    said.layout = tensor.layout;
    said.extent = tensor.extent;
    said.sources = history_.sources_of_tensor(tensor.name);
    said.source_xxh3 =
        SourceHashes(pack_).of_tensor(static_cast<size_t>(&tensor - content().tensors.data()));
    said.decisions = history_.decisions_about(tensor.name);
    return said;
  }

  Explanation explain_expert(const std::string& asked, const std::string& name,
                             const ExpertName& which) const {
    const PackBank* bank = pack_.bank(which.layer);
    if (bank == nullptr) {
      throw Error(pack_.path(), ": ", printable(asked), ": layer ", which.layer,
                  " has no experts; layers with experts are ", layers_with_experts());
    }
    if (which.source_id >= bank->source_experts) {
      throw Error(pack_.path(), ": ", printable(asked), ": layer ", which.layer,
                  " has experts 0 to ", bank->source_experts - 1);
    }
    Explanation said;
    said.subject =
        "expert " + std::to_string(which.source_id) + " of layer " + std::to_string(which.layer);
    said.family = Family::kRoutedExperts;
    said.decisions = history_.decisions_about("bank of layer " + std::to_string(which.layer));
    for (RecordedDecision& own : history_.decisions_about(said.subject)) {
      said.decisions.push_back(own);
    }
    const auto found = std::find_if(
        bank->experts.begin(), bank->experts.end(),
        [&](const PackExpert& expert) { return int64_t{expert.source_id} == which.source_id; });
    if (found == bank->experts.end()) {
      said.in_pack = false;
      said.left_out = "its bank keeps " + std::to_string(bank->experts.size()) + " of " +
                      std::to_string(bank->source_experts) + " experts";
      return said;
    }
    said.sources = history_.sources_of_expert(which.layer, which.source_id);
    const auto is_named = [&](const RecordedSource& source) {
      return source.tensor == history_.source_prefix() + name;
    };
    if (which.of_tensor && std::none_of(said.sources.begin(), said.sources.end(), is_named)) {
      std::vector<std::string> names;
      for (const RecordedSource& source : said.sources) names.emplace_back(source.tensor);
      fail_unknown(asked, name, names);
    }
    const int64_t width = pack_.config().expert_width();
    const int64_t inner = pack_.config().expert_intermediate_size;
    said.shapes = {{"w1", {inner, width}}, {"w3", {inner, width}}, {"w2", {width, inner}}};
    said.format = bank->format;
    said.layout = bank->layout;
    said.extent = found->extent;
    const auto position = static_cast<size_t>(found - bank->experts.begin());
    said.expert = ExpertPlace{position,
                              found->cold,
                              bank->experts.size(),
                              bank->source_experts,
                              found->least_exponent,
                              bank->fixed_point};
    said.source_xxh3 =
        SourceHashes(pack_).of_expert(static_cast<size_t>(bank - content().banks.data()), position);
    return said;
  }

  // The vision part is left out as a whole and by name, before any pass runs; the census has
  // counted it.
  std::optional<Explanation> explain_vision(std::string_view name) const {
    Explanation said;
    if (name.starts_with("vision_tower.")) {
      said.family = Family::kVision;
    } else if (name.starts_with("mm_projector.")) {
      said.family = Family::kProjector;
    } else {
      return std::nullopt;
    }
    const int64_t dropped = pass_count("census", "dropped tensors");
    if (dropped == 0) return std::nullopt;
    said.subject = name;
    said.in_pack = false;
    said.left_out = "a pack holds a text model; reading the checkpoint left out " +
                    grouped(dropped) + " tensors with " +
                    grouped(pass_count("census", "dropped bytes")) + " bytes";
    return said;
  }

  // 0 where the pack does not say.
  int64_t pass_count(std::string_view pass, std::string_view number) const {
    for (const PassRecord& record : pack_.index().provenance.passes) {
      if (record.name != pass) continue;
      for (const auto& [name, value] : record.numbers) {
        if (name != number) continue;
        if (!(value >= 0 && value < 0x1p63)) {
          throw Error(pack_.path(), ": pass ", pass, ": its ", number, " are ", value,
                      ", expected a count");
        }
        return static_cast<int64_t>(value);
      }
    }
    return 0;
  }

  std::string layers_with_experts() const {
    const auto& banks = content().banks;
    if (banks.empty()) return "none";
    return std::to_string(banks.front().layer) + " to " + std::to_string(banks.back().layer);
  }

  [[noreturn]] void fail_unknown(const std::string& asked, const std::string& name) const {
    std::vector<std::string> names;
    for (const PackTensor& tensor : content().tensors) names.push_back(tensor.name);
    for (const PackBank& bank : content().banks) {
      names.push_back("model.layers." + std::to_string(bank.layer) + ".experts.0");
    }
    fail_unknown(asked, name, names);
  }
  [[noreturn]] void fail_unknown(const std::string& asked, const std::string& name,
                                 const std::vector<std::string>& names) const {
    std::string offered;
    constexpr size_t kLongest = 1000;  // what is longer resembles no name
    for (const std::string& one : nearest_names(name.substr(0, kLongest), names, kNamesOffered)) {
      offered += (offered.empty() ? "" : ", ") + one;
    }
    throw Error(pack_.path(), ": ", printable(asked),
                ": is no tensor or expert of this pack; the nearest names are ", offered);
  }

  const PackReader& pack_;
  PackHistory history_;
};

std::ostream& label(const char* text) {
  return std::cout << "  " << std::left << std::setw(14) << text << std::right;
}

void print_expert(const ExpertPlace& expert) {
  label("place") << "position " << expert.position << " of the " << expert.kept << " kept of "
                 << expert.source_experts << (expert.cold ? ", cold" : "") << '\n';
  const auto& least = expert.least_exponent;
  label("scales") << "least exponents w1 " << int{least[0]} << ", w3 " << int{least[1]} << ", w2 "
                  << int{least[2]} << "; outputs are added as integers of 2^-" << expert.fixed_point
                  << '\n';
}

void print_text(const Explanation& said) {
  std::cout << said.subject << '\n';
  label("family") << family_name(said.family) << '\n';
  if (!said.in_pack) {
    label("left out") << said.left_out << '\n';
  } else {
    for (const NamedShape& one : said.shapes) {
      label("shape") << one.name << (*one.name != '\0' ? " " : "") << one.shape << '\n';
    }
    label("stored as") << format_name(said.format) << " in " << layout_name(said.layout) << ", "
                       << fixed(said.bits_per_weight(), 3) << " bits per weight\n";
    label("extent") << grouped(said.extent.length_bytes) << " bytes at "
                    << grouped(said.extent.offset_bytes) << ", xxh3 "
                    << hex_digits(said.extent.xxh3) << '\n';
    if (said.expert) print_expert(*said.expert);
    for (const RecordedSource& source : said.sources) {
      label("source") << source.tensor << ": " << grouped(source.length_bytes) << " bytes at "
                      << grouped(source.offset_bytes) << " of " << source.shard << '\n';
    }
    label("source hash") << hex_digits(said.source_xxh3) << '\n';
  }
  for (const RecordedDecision& decision : said.decisions) {
    label("decision") << decision.pass << ": "
                      << (decision.subject == said.subject ? ""
                                                           : std::string(decision.subject) + ": ")
                      << decision.choice << ": " << decision.reason << ": "
                      << shortest(decision.number) << '\n';
  }
}

void write_stored(const Explanation& said, JsonWriter& json) {
  json.key("shapes");
  json.begin_array();
  for (const NamedShape& one : said.shapes) {
    json.begin_object();
    if (*one.name != '\0') json.member("matrix", one.name);
    json.key("shape");
    json.begin_array();
    for (const int64_t dim : one.shape.dims()) json.value(dim);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.member("format", format_name(said.format));
  json.member("layout", layout_name(said.layout));
  json.member("bits_per_weight", said.bits_per_weight());
  json.key("extent");
  json.begin_object();
  json.member("offset_bytes", said.extent.offset_bytes);
  json.member("length_bytes", said.extent.length_bytes);
  json.member("xxh3", hex_digits(said.extent.xxh3));
  json.end_object();
  if (said.expert) {
    json.member("position", said.expert->position);
    json.member("cold", said.expert->cold);
    json.member("kept", said.expert->kept);
    json.member("source_experts", said.expert->source_experts);
    json.key("least_exponents");
    json.begin_object();
    json.member("w1", said.expert->least_exponent[0]);
    json.member("w3", said.expert->least_exponent[1]);
    json.member("w2", said.expert->least_exponent[2]);
    json.end_object();
    json.member("fixed_point", said.expert->fixed_point);
  }
  json.key("sources");
  json.begin_array();
  for (const RecordedSource& source : said.sources) {
    json.begin_object();
    json.member("tensor", source.tensor);
    json.member("shard", source.shard);
    json.member("offset_bytes", source.offset_bytes);
    json.member("length_bytes", source.length_bytes);
    json.end_object();
  }
  json.end_array();
  json.member("source_xxh3", hex_digits(said.source_xxh3));
}

void print_json(const Explanation& said) {
  JsonWriter json(std::cout, 2);
  json.begin_object();
  json.member("subject", said.subject);
  json.member("family", family_name(said.family));
  json.member("in_pack", said.in_pack);
  if (said.in_pack) {
    write_stored(said, json);
  } else {
    json.member("left_out", said.left_out);
  }
  json.key("decisions");
  json.begin_array();
  for (const RecordedDecision& decision : said.decisions) {
    json.begin_object();
    json.member("subject", decision.subject);
    json.member("pass", decision.pass);
    json.member("choice", decision.choice);
    json.member("reason", decision.reason);
    json.member("number", decision.number);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  std::cout << '\n';
}

}  // namespace

void run_explain(const ExplainRequest& request) {
  const PackReader pack(request.pack);
  const Explainer explainer(pack);
  const Explanation said = explainer.explain(request.name);
  request.json ? print_json(said) : print_text(said);
}

}  // namespace k3
