// simdjson parses; its document is then copied into a small tree of our own. The copy is where keys
// given twice are found, which simdjson passes, and it keeps simdjson out of the header: the layout
// of its parser depends on a macro that only some of our targets have.
#include "compiler/config_json.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>
#include <utility>
#include <variant>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/printable.h"

namespace k3 {

struct ConfigMember;
struct ConfigValue {
  using List = std::vector<ConfigValue>;
  using Object = std::vector<ConfigMember>;
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, List, Object> value;

  std::string_view type_name() const {
    constexpr std::array<std::string_view, std::variant_size_v<decltype(value)>> kNames = {
        "null",          "a boolean", "an integer", "an integer of 2^63 or more",
        "a real number", "a string",  "a list",     "an object"};
    return kNames[value.index()];
  }
};
struct ConfigMember {
  std::string key;
  ConfigValue value;
};

namespace {

namespace dom = simdjson::dom;

constexpr size_t kDeepest = 64;

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return std::move(text).str();
}

// `where` names the element in messages, with a final dot. The depth is at most kDeepest.
ConfigValue copy_value(const std::string& path, const std::string& where, dom::element element) {
  switch (element.type()) {
    case dom::element_type::NULL_VALUE:
      return {};
    case dom::element_type::BOOL:
      return {bool(element)};
    case dom::element_type::INT64:
      return {int64_t(element)};
    case dom::element_type::UINT64:
      return {uint64_t(element)};
    case dom::element_type::DOUBLE:
      return {double(element)};
    case dom::element_type::STRING:
      return {std::string(std::string_view(element))};
    case dom::element_type::ARRAY: {
      ConfigValue::List list;
      for (const dom::element item : dom::array(element)) {
        list.push_back(copy_value(path, where, item));
      }
      return {std::move(list)};
    }
    case dom::element_type::OBJECT:
      break;
  }
  ConfigValue::Object object;
  std::vector<std::string_view> keys;
  for (const dom::key_value_pair member : dom::object(element)) {
    object.push_back(
        {std::string(member.key), copy_value(path, joined(where, member.key, '.'), member.value)});
    keys.push_back(member.key);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    throw Error(path, ": ", printable(joined(where, *twice)), ": is there twice");
  }
  return {std::move(object)};
}

const ConfigValue* find_member(const ConfigValue& object, std::string_view name) {
  for (const ConfigMember& member : std::get<ConfigValue::Object>(object.value)) {
    if (member.key == name) return &member.value;
  }
  return nullptr;
}

}  // namespace

ConfigFile::ConfigFile(const std::string& path)
    : ConfigFile(path, read_whole_file(path, kLargestConfigFile)) {}

ConfigFile::ConfigFile(const std::string& path, std::vector<std::byte> bytes)
    : path_(std::make_unique<std::string>(path)), bytes_(std::move(bytes)) {
  if (bytes_.empty()) throw Error(path, ": not JSON: the file is empty");
  dom::parser parser;
  dom::element document;
  auto error = parser.allocate(bytes_.size() + 1, kDeepest);
  if (!error) {
    error = parser.parse(reinterpret_cast<const char*>(bytes_.data()), bytes_.size()).get(document);
  }
  if (error) throw Error(path, ": not JSON: ", simdjson::error_message(error));
  auto root = std::make_unique<ConfigValue>(copy_value(path, "", document));
  if (!std::holds_alternative<ConfigValue::Object>(root->value)) {
    throw Error(path, ": holds ", root->type_name(), ", expected an object");
  }
  root_ = std::move(root);
}
ConfigFile::~ConfigFile() = default;
ConfigFile::ConfigFile(ConfigFile&&) noexcept = default;
ConfigFile& ConfigFile::operator=(ConfigFile&&) noexcept = default;

void ConfigObject::fail(std::string_view name, const std::string& what) const {
  throw Error(*path_, ": ", printable(joined(where_, name)), ": ", what);
}

bool ConfigObject::has(std::string_view name) const {
  const ConfigValue* found = find_member(*value_, name);
  return found != nullptr && !std::holds_alternative<std::monostate>(found->value);
}

const ConfigValue& ConfigObject::field(std::string_view name, std::string_view expected) const {
  const ConfigValue* found = find_member(*value_, name);
  if (found == nullptr) fail(name, joined("missing, expected ", expected));
  return *found;
}

template <class T>
const T& ConfigObject::typed(std::string_view name, std::string_view expected) const {
  const ConfigValue& found = field(name, expected);
  if (const T* value = std::get_if<T>(&found.value)) return *value;
  fail(name, joined("is ", found.type_name(), ", expected ", expected));
}

ConfigObject ConfigObject::object(std::string_view name) const {
  typed<ConfigValue::Object>(name, "an object");
  return {*path_, joined(where_, name, '.'), field(name, "an object")};
}

ConfigObject ConfigObject::only_object_of(std::string_view name) const {
  const auto& members = typed<ConfigValue::Object>(name, "an object");
  if (members.size() != 1) fail(name, joined("has ", members.size(), " members, expected one"));
  return object(name).object(members.front().key);
}

int64_t ConfigObject::integer(std::string_view name, int64_t least, int64_t most) const {
  const auto value = typed<int64_t>(name, "an integer");
  if (value < least || value > most) {
    fail(name, joined("is ", value, ", expected ", least, " to ", most));
  }
  return value;
}

double ConfigObject::number(std::string_view name) const {
  const ConfigValue& found = field(name, "a number");
  if (const auto* whole = std::get_if<int64_t>(&found.value)) return static_cast<double>(*whole);
  return typed<double>(name, "a number");  // JSON has no other than finite ones
}

double ConfigObject::positive_number(std::string_view name) const {
  const double value = number(name);
  if (value <= 0) fail(name, joined("is ", value, ", expected a number above 0"));
  return value;
}

bool ConfigObject::boolean(std::string_view name) const {
  return typed<bool>(name, "a boolean");
}

std::string_view ConfigObject::text(std::string_view name) const {
  return typed<std::string>(name, "a string");
}

std::vector<int64_t> ConfigObject::integers(std::string_view name) const {
  std::vector<int64_t> values;
  for (const ConfigValue& item : typed<ConfigValue::List>(name, "a list of integers")) {
    const auto* value = std::get_if<int64_t>(&item.value);
    if (value == nullptr) {
      fail(name, joined("holds ", item.type_name(), ", expected integers alone"));
    }
    values.push_back(*value);
  }
  return values;
}

void ConfigObject::require_integer(std::string_view name, int64_t wanted) const {
  const int64_t value =
      integer(name, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (value != wanted) fail(name, joined("is ", value, ", only ", wanted, " is implemented"));
}

void ConfigObject::require_boolean(std::string_view name, bool wanted) const {
  if (boolean(name) == wanted) return;
  fail(name, wanted ? "is false, only true is implemented" : "is true, only false is implemented");
}

void ConfigObject::require_text(std::string_view name, std::string_view wanted) const {
  const std::string_view value = text(name);
  if (value != wanted) {
    fail(name, joined("is \"", printable(value), "\", only \"", wanted, "\" is implemented"));
  }
}

void ConfigObject::require_off(std::string_view name) const {
  const ConfigValue* found = find_member(*value_, name);
  if (found == nullptr || std::holds_alternative<std::monostate>(found->value)) return;
  const bool* flag = std::get_if<bool>(&found->value);
  if (flag != nullptr && !*flag) return;
  fail(name, "is set, this family of models is only implemented without it");
}

}  // namespace k3
