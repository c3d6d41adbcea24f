#include "schema/prune_plan.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/printable.h"

namespace k3 {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kKind = "k3prune";
constexpr int64_t kVersion = 1;
constexpr int64_t kMostExperts = 65535;              // as many as a trace can name
constexpr int64_t kLargestPlan = int64_t{64} << 20;  // K3's has 3 MB

// One object of the file: every member is asked for exactly once, by name and type.
class PlanObject {
 public:
  PlanObject(const std::string& where, dom::element element) : where_(where) {
    if (element.get(object_) != simdjson::SUCCESS) throw Error(where_, ": is not a JSON object");
    for (const dom::key_value_pair member : object_) {
      if (!unread_.insert(member.key).second) {
        throw Error(where_, ": ", printable(member.key), ": is there twice");
      }
    }
  }

  template <class T>
  T take(std::string_view name, std::string_view expected) {
    unread_.erase(name);
    T value;
    if (object_[name].get(value) != simdjson::SUCCESS) {
      throw Error(where_, ": ", name, ": is missing or of another type, expected ", expected);
    }
    return value;
  }
  int64_t integer(std::string_view name, int64_t least, int64_t most) {
    const auto value = take<int64_t>(name, "an integer");
    if (value < least || value > most) {
      throw Error(where_, ": ", name, ": is ", value, ", expected ", least, " to ", most);
    }
    return value;
  }
  uint64_t hash(std::string_view name) {
    const auto text = take<std::string_view>(name, "16 hexadecimal digits");
    uint64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.size() != 16 || fault != std::errc() || end != text.data() + text.size()) {
      throw Error(where_, ": ", name, ": is ", printable(text), ", expected 16 hexadecimal digits");
    }
    return value;
  }
  dom::array array(std::string_view name) { return take<dom::array>(name, "a list"); }

  // Call when all members were taken.
  void expect_nothing_else() const {
    if (!unread_.empty()) {
      throw Error(where_, ": ", printable(*unread_.begin()), ": is not a member of a prune plan");
    }
  }

 private:
  const std::string& where_;
  dom::object object_;
  std::set<std::string_view> unread_;
};

std::vector<int32_t> read_ids(const std::string& where, dom::array ids, int64_t experts) {
  std::vector<int32_t> list;
  for (const dom::element element : ids) {
    int64_t id = -1;
    if (element.get(id) != simdjson::SUCCESS || id < 0 || id >= experts) {
      throw Error(where, ": expert is ", simdjson::minify(element), ", expected 0 to ",
                  experts - 1);
    }
    list.push_back(static_cast<int32_t>(id));
  }
  return list;
}

PlanLayer read_layer(const std::string& path, dom::element element, const PrunePlan& plan) {
  PlanLayer layer;
  const std::string where = path + ": layer " + std::to_string(plan.layers.size());
  PlanObject object(where, element);
  layer.layer = object.integer("layer", 0, 9999);
  layer.kept = read_ids(where, object.array("kept"), plan.experts);
  layer.dropped = read_ids(where, object.array("dropped"), plan.experts);
  for (const dom::element score : object.array("scores")) {
    double value = 0;
    if (score.get(value) != simdjson::SUCCESS) {
      throw Error(where, ": score is ", simdjson::minify(score), ", expected a number");
    }
    layer.scores.push_back(value);
  }
  object.expect_nothing_else();

  if (!plan.layers.empty() && plan.layers.back().layer >= layer.layer) {
    throw Error(where, ": is of layer ", layer.layer, ", behind one of layer ",
                plan.layers.back().layer);
  }
  std::vector<int32_t> all = layer.kept;
  all.insert(all.end(), layer.dropped.begin(), layer.dropped.end());
  std::sort(all.begin(), all.end());
  const bool each_once = std::adjacent_find(all.begin(), all.end()) == all.end();
  if (!each_once || std::ssize(all) != plan.experts) {
    throw Error(where, ": keeps ", layer.kept.size(), " and drops ", layer.dropped.size(),
                " experts, expected each of ", plan.experts, " once");
  }
  if (std::ssize(layer.kept) < plan.experts_per_token) {
    throw Error(where, ": keeps ", layer.kept.size(), " experts, a token chooses ",
                plan.experts_per_token);
  }
  if (std::ssize(layer.scores) != plan.experts) {
    throw Error(where, ": has ", layer.scores.size(), " scores, expected ", plan.experts);
  }
  return layer;
}

template <class Values>
void write_list(JsonWriter& json, std::string_view name, const Values& values) {
  json.key(name);
  json.begin_array();
  for (const auto value : values) json.value(value);
  json.end_array();
}

}  // namespace

const PlanLayer* PrunePlan::find(int64_t layer) const {
  const auto found = std::find_if(layers.begin(), layers.end(),
                                  [&](const PlanLayer& each) { return each.layer == layer; });
  return found == layers.end() ? nullptr : &*found;
}

// A line a layer: readable in an editor, and a diff shows which layers differ.
std::string format_prune_plan(const PrunePlan& plan) {
  std::ostringstream text;
  text << "{\n\"kind\": \"" << kKind << "\",\n\"version\": " << kVersion << ",\n\"router_xxh3\": \""
       << hex_digits(plan.router_xxh3) << "\",\n\"experts\": " << plan.experts
       << ",\n\"experts_per_token\": " << plan.experts_per_token << ",\n\"score\": ";
  JsonWriter(text).value(plan.score);
  text << ",\n\"traces\": [";
  for (size_t i = 0; i < plan.traces.size(); ++i) {
    text << (i == 0 ? "\n" : ",\n");
    JsonWriter json(text);
    json.begin_object();
    json.member("xxh3", hex_digits(plan.traces[i].xxh3));
    json.member("tokens", plan.traces[i].tokens);
    json.end_object();
  }
  text << "\n],\n\"layers\": [";
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    text << (i == 0 ? "\n" : ",\n");
    JsonWriter json(text);
    json.begin_object();
    json.member("layer", plan.layers[i].layer);
    write_list(json, "kept", plan.layers[i].kept);
    write_list(json, "dropped", plan.layers[i].dropped);
    write_list(json, "scores", plan.layers[i].scores);
    json.end_object();
  }
  text << "\n]\n}\n";
  return std::move(text).str();
}

PrunePlan parse_prune_plan(std::string_view text, const std::string& path) {
  if (text.empty()) throw Error(path, ": is empty, expected a prune plan");
  dom::parser parser;
  dom::element root;
  const auto fault = parser.parse(text.data(), text.size()).get(root);
  if (fault != simdjson::SUCCESS) {
    throw Error(path, ": is not JSON: ", simdjson::error_message(fault));
  }
  PrunePlan plan;
  PlanObject object(path, root);
  const auto kind = object.take<std::string_view>("kind", "\"k3prune\"");
  if (kind != kKind) {
    throw Error(path, ": kind is ", printable(kind), ", expected ", kKind);
  }
  object.integer("version", kVersion, kVersion);
  plan.router_xxh3 = object.hash("router_xxh3");
  plan.experts = object.integer("experts", 1, kMostExperts);
  plan.experts_per_token = object.integer("experts_per_token", 1, plan.experts);
  plan.score = object.take<std::string_view>("score", "a string");
  const std::string where_trace = path + ": trace";
  for (const dom::element element : object.array("traces")) {
    PlanObject trace(where_trace, element);
    plan.traces.push_back({trace.hash("xxh3"), trace.integer("tokens", 0, int64_t{1} << 40)});
    trace.expect_nothing_else();
  }
  for (const dom::element element : object.array("layers")) {
    plan.layers.push_back(read_layer(path, element, plan));
  }
  object.expect_nothing_else();
  return plan;
}

PrunePlan read_prune_plan(const std::string& path) {
  const std::vector<std::byte> bytes = read_whole_file(path, kLargestPlan);
  return parse_prune_plan({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

void check_plan_fits(const PrunePlan& plan, const std::string& path, const ModelConfig& config,
                     uint64_t router_xxh3, std::span<const int64_t> layers) {
  if (plan.router_xxh3 != router_xxh3) {
    throw Error(path, ": was made for the model with router hash ", hex_digits(plan.router_xxh3),
                ", this one has ", hex_digits(router_xxh3));
  }
  // The hash is of these numbers too, but nothing ties it to those that the plan states.
  if (plan.experts != config.experts || plan.experts_per_token != config.experts_per_token) {
    throw Error(path, ": a token chooses ", plan.experts_per_token, " of ", plan.experts,
                " experts, the model's ", config.experts_per_token, " of ", config.experts);
  }
  for (const int64_t layer : layers) {
    if (plan.find(layer) == nullptr) throw Error(path, ": says nothing of layer ", layer);
  }
  if (plan.layers.size() != layers.size()) {
    throw Error(path, ": has ", plan.layers.size(), " layers, the model has ", layers.size(),
                " with experts");
  }
}

}  // namespace k3
