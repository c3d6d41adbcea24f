// config.json with every access typed, named and without defaults.
//
// A field that is missing, of another type or out of range throws Error with its full path, as in
//   FOLDER/config.json: text_config.hidden_size: missing, expected an integer
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace k3 {

// Larger than any size of a model, and small enough that the product of any three fits in 63 bits.
inline constexpr int64_t kLargestConfigSize = int64_t{1} << 20;

struct ConfigValue;  // a value of the parsed file; config_json.cc

// One object of the file. A view: the ConfigFile must outlive it.
class ConfigObject {
 public:
  // Fields that are there and not null.
  bool has(std::string_view name) const;

  ConfigObject object(std::string_view name) const;
  // The only member of the object `name`, which must have exactly one.
  ConfigObject only_object_of(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t least, int64_t most) const;
  int64_t size(std::string_view name) const { return integer(name, 1, kLargestConfigSize); }
  double number(std::string_view name) const;           // finite
  double positive_number(std::string_view name) const;  // finite, above zero
  bool boolean(std::string_view name) const;
  std::string_view text(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;

  // For fields of which one value alone is implemented: any other throws.
  void require_integer(std::string_view name, int64_t wanted) const;
  void require_boolean(std::string_view name, bool wanted) const;
  void require_text(std::string_view name, std::string_view wanted) const;
  // For features of another family: must be absent, null or false.
  void require_off(std::string_view name) const;

  // Throws Error about the field `name`: "PATH: where.name: what".
  [[noreturn]] void fail(std::string_view name, const std::string& what) const;

 private:
  friend class ConfigFile;
  ConfigObject(const std::string& path, std::string where, const ConfigValue& value)
      : path_(&path), where_(std::move(where)), value_(&value) {}
  const ConfigValue& field(std::string_view name, std::string_view expected) const;
  // The field's value if it has the type T; `expected` is T in words.
  template <class T>
  const T& typed(std::string_view name, std::string_view expected) const;

  const std::string* path_;
  std::string where_;  // with its final dot; empty for the root
  const ConfigValue* value_;
};

inline constexpr int64_t kLargestConfigFile = int64_t{64} << 20;

class ConfigFile {
 public:
  // Reads and parses a file of at most kLargestConfigFile bytes. Throws Error when it is not one
  // JSON object, is nested deeper than 64 levels, or names a member of any object twice.
  explicit ConfigFile(const std::string& path);
  // The same from bytes that were read elsewhere; `path` is for messages.
  ConfigFile(const std::string& path, std::vector<std::byte> bytes);
  ~ConfigFile();
  ConfigFile(ConfigFile&&) noexcept;
  ConfigFile& operator=(ConfigFile&&) noexcept;

  const std::string& path() const { return *path_; }
  ConfigObject root() const { return {*path_, "", *root_}; }
  const std::vector<std::byte>& bytes() const { return bytes_; }  // as read

 private:
  std::unique_ptr<std::string> path_;  // views point at both, also after a move
  std::unique_ptr<const ConfigValue> root_;
  std::vector<std::byte> bytes_;
};

}  // namespace k3
