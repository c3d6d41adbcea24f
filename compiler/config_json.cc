#include "compiler/config_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "compiler/printable.h"
#include "schema/error.h"
#include "schema/file.h"

namespace k3 {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kDeepest = 64;

std::string_view type_name(dom::element element) {
  switch (element.type()) {
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::INT64:
      return "an integer";
    case dom::element_type::UINT64:
      return "an integer of 2^63 or more";
    case dom::element_type::DOUBLE:
      return "a real number";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "a boolean";
    case dom::element_type::NULL_VALUE:
      return "null";
  }
  return "unknown";
}

// simdjson keeps all members of an object, also repeated ones, and returns the first.
void check_keys(const std::string& path, const std::string& where, dom::element element) {
  if (element.is_array()) {
    for (const dom::element item : dom::array(element)) check_keys(path, where, item);
  }
  if (!element.is_object()) return;
  std::vector<std::string_view> keys;
  for (const dom::key_value_pair member : dom::object(element)) {
    keys.push_back(member.key);
    check_keys(path, where + std::string(member.key) + '.', member.value);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    throw Error(path, ": ", printable(where + std::string(*twice)), ": is there twice");
  }
}

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return std::move(text).str();
}

}  // namespace

ConfigFile::ConfigFile(const std::string& path)
    : ConfigFile(path, read_whole_file(path, kLargestConfigFile)) {}

ConfigFile::ConfigFile(const std::string& path, std::vector<std::byte> bytes)
    : path_(std::make_unique<std::string>(path)),
      bytes_(std::move(bytes)),
      parser_(std::make_unique<dom::parser>(static_cast<size_t>(kLargestConfigFile))) {
  dom::element document;
  auto error = parser_->allocate(bytes_.size() + 1, kDeepest);
  if (!error) {
    error =
        parser_->parse(reinterpret_cast<const char*>(bytes_.data()), bytes_.size()).get(document);
  }
  if (error) throw Error(path, ": not JSON: ", simdjson::error_message(error));
  if (document.get(root_)) {
    throw Error(path, ": holds ", type_name(document), ", expected an object");
  }
  check_keys(path, "", document);
}

ConfigObject ConfigFile::root() const {
  return ConfigObject(*path_, "", root_);
}

void ConfigObject::fail(std::string_view name, const std::string& what) const {
  throw Error(*path_, ": ", where_, name, ": ", what);
}

void ConfigObject::fail_type(std::string_view name, dom::element found,
                             std::string_view expected) const {
  fail(name, joined("is ", type_name(found), ", expected ", expected));
}

bool ConfigObject::has(std::string_view name) const {
  dom::element found;
  return !object_.at_key(name).get(found) && !found.is_null();
}

dom::element ConfigObject::field(std::string_view name, std::string_view expected) const {
  dom::element found;
  if (object_.at_key(name).get(found)) fail(name, joined("missing, expected ", expected));
  return found;
}

ConfigObject ConfigObject::object(std::string_view name) const {
  const dom::element found = field(name, "an object");
  dom::object inner;
  if (found.get(inner)) fail_type(name, found, "an object");
  return {*path_, joined(where_, name, '.'), inner};
}

ConfigObject ConfigObject::only_object_of(std::string_view name) const {
  const ConfigObject outer = object(name);
  if (outer.object_.size() != 1) {
    fail(name, joined("has ", outer.object_.size(), " members, expected one"));
  }
  return outer.object(dom::key_value_pair(*outer.object_.begin()).key);
}

int64_t ConfigObject::integer(std::string_view name, int64_t least, int64_t most) const {
  const dom::element found = field(name, "an integer");
  int64_t value = 0;
  // get<int64_t> would also accept what fits of a uint64; a real number is refused even if whole.
  if (found.type() != dom::element_type::INT64 || found.get(value)) {
    fail_type(name, found, "an integer");
  }
  if (value < least || value > most) {
    fail(name, joined("is ", value, ", expected ", least, " to ", most));
  }
  return value;
}

double ConfigObject::number(std::string_view name) const {
  const dom::element found = field(name, "a number");
  double value = 0;
  if (found.get(value)) fail_type(name, found, "a number");
  if (!std::isfinite(value)) fail(name, "is not finite");
  return value;
}

double ConfigObject::positive_number(std::string_view name) const {
  const double value = number(name);
  if (value <= 0) fail(name, joined("is ", value, ", expected a number above 0"));
  return value;
}

bool ConfigObject::boolean(std::string_view name) const {
  const dom::element found = field(name, "a boolean");
  bool value = false;
  if (found.get(value)) fail_type(name, found, "a boolean");
  return value;
}

std::string_view ConfigObject::text(std::string_view name) const {
  const dom::element found = field(name, "a string");
  std::string_view value;
  if (found.get(value)) fail_type(name, found, "a string");
  return value;
}

std::vector<int64_t> ConfigObject::integers(std::string_view name) const {
  const dom::element found = field(name, "a list of integers");
  dom::array items;
  if (found.get(items)) fail_type(name, found, "a list of integers");
  std::vector<int64_t> values;
  for (const dom::element item : items) {
    if (item.type() != dom::element_type::INT64) {
      fail(name, joined("holds ", type_name(item), ", expected integers alone"));
    }
    values.push_back(int64_t(item));
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

}  // namespace k3
