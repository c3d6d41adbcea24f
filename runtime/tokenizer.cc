#include "runtime/tokenizer.h"

#include <charconv>
#include <limits>

#include <simdjson.h>

#include "runtime/utf8_sequence.h"
#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {
namespace {

namespace json = simdjson::dom;

constexpr int64_t kMostSpecials = 65'536;  // K3 has 256; a vocab_size from a damaged file, anything

std::string reserved_name(int64_t id) {
  return "<|reserved_token_" + std::to_string(id) + "|>";
}

// The value of `key`, or nothing. Throws Error when `object` has the key twice: simdjson finds the
// first, other readers the last.
std::optional<json::element> find_member(const std::string& where, json::object object,
                                         std::string_view key) {
  std::optional<json::element> found;
  for (const json::key_value_pair member : object) {
    if (member.key != key) continue;
    if (found) throw Error(where, ": \"", key, "\" appears twice, expected once");
    found = member.value;
  }
  return found;
}

template <class T>
T expect_member(const std::string& where, json::object object, std::string_view key,
                std::string_view type_name) {
  const std::optional<json::element> element = find_member(where, object, key);
  if (!element) throw Error(where, ": \"", key, "\" is missing, expected ", type_name);
  T value;
  if (element->get(value) != simdjson::SUCCESS) {
    throw Error(where, ": \"", key, "\" is ", printable(simdjson::minify(*element)), ", expected ",
                type_name);
  }
  return value;
}

struct AddedToken {
  int64_t id = 0;
  std::string name;
};

// What of tokenizer_config.json concerns us.
struct Config {
  std::vector<AddedToken> added;
  std::string bos_token;
  bool adds_bos = false;
};

// A key of added_tokens_decoder: an id between `low` and `high`, as JSON would write the number.
int64_t parse_id(const std::string& where, std::string_view key, int64_t low, int64_t high) {
  int64_t id = -1;
  const char* end = key.data() + key.size();
  const auto [stop, fault] = std::from_chars(key.data(), end, id);
  if (fault != std::errc() || stop != end || id < low || id >= high || std::to_string(id) != key) {
    throw Error(where, ": added token has id \"", printable(key), "\", expected ", low, " to ",
                high - 1);
  }
  return id;
}

Config parse_config(const std::string& where, std::span<const std::byte> text, int64_t ranks,
                    int64_t vocab_size) {
  if (text.empty()) throw Error(where, ": is empty, expected a JSON object");
  json::parser parser;
  json::object root;
  const auto fault =
      parser.parse(reinterpret_cast<const char*>(text.data()), text.size()).get(root);
  if (fault != simdjson::SUCCESS) {
    throw Error(where, ": ", simdjson::error_message(fault), ", expected a JSON object");
  }

  Config config;
  const auto decoder =
      expect_member<json::object>(where, root, "added_tokens_decoder", "an object");
  for (const json::key_value_pair member : decoder) {
    AddedToken& token = config.added.emplace_back();
    token.id = parse_id(where, member.key, ranks, vocab_size);
    const std::string token_where = where + ": added token " + std::string(member.key);
    json::object fields;
    if (member.value.get(fields) != simdjson::SUCCESS) {
      throw Error(token_where, " is ", printable(simdjson::minify(member.value)),
                  ", expected an object");
    }
    token.name = expect_member<std::string_view>(token_where, fields, "content", "a string");
  }
  config.bos_token = expect_member<std::string_view>(where, root, "bos_token", "a string");
  if (find_member(where, root, "add_bos_token")) {
    config.adds_bos = expect_member<bool>(where, root, "add_bos_token", "true or false");
  }
  return config;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& name, std::span<const std::byte> tiktoken_model,
                     std::span<const std::byte> tokenizer_config_json, int64_t vocab_size)
    : ranks_(name + ": tiktoken.model", tiktoken_model) {
  if (vocab_size < ranks_.size() || vocab_size - ranks_.size() > kMostSpecials ||
      vocab_size > std::numeric_limits<int32_t>::max()) {
    throw Error(name, ": tiktoken.model: ", ranks_.size(), " ranks, expected vocab_size ",
                vocab_size, " or up to ", kMostSpecials, " fewer");
  }
  const std::string where = name + ": tokenizer_config.json";
  const Config config = parse_config(where, tokenizer_config_json, ranks_.size(), vocab_size);

  specials_.resize(static_cast<size_t>(vocab_size - ranks_.size()));
  for (const AddedToken& token : config.added) {
    std::string& special = specials_[static_cast<size_t>(token.id - ranks_.size())];
    if (!special.empty()) {
      throw Error(where, ": added token ", token.id, " appears twice, expected once");
    }
    if (token.name.empty()) throw Error(where, ": added token ", token.id, " has an empty name");
    special = token.name;
  }
  for (int64_t id = ranks_.size(); id < vocab_size; ++id) {
    std::string& special = specials_[static_cast<size_t>(id - ranks_.size())];
    if (special.empty()) special = reserved_name(id);
    const auto [entry, is_new] = special_ids_.emplace(special, static_cast<int32_t>(id));
    if (!is_new) {
      throw Error(where, ": added tokens ", entry->second, " and ", id, " are both named \"",
                  printable(special), "\"");
    }
  }

  const std::optional<int32_t> bos = special_id(config.bos_token);
  if (!bos) {
    throw Error(where, ": \"bos_token\" is \"", printable(config.bos_token),
                "\", expected the name of an added token");
  }
  bos_id_ = *bos;
  adds_bos_ = config.adds_bos;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  if (const std::optional<int64_t> fault = find_utf8_fault(text)) {
    throw Error("text: byte ", *fault, " is not UTF-8");
  }
  std::vector<int32_t> ids;
  for (const std::string_view piece : pre_tokenizer_.split(text)) encode_piece(ranks_, piece, ids);
  return ids;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw Error("token id ", id, ": not in the vocabulary, expected 0 to ", vocab_size() - 1);
  }
  if (id < ranks_.size()) return ranks_.bytes(id);
  return specials_[static_cast<size_t>(id - ranks_.size())];
}

std::optional<int32_t> Tokenizer::special_id(std::string_view name) const {
  const auto entry = special_ids_.find(std::string(name));
  if (entry == special_ids_.end()) return std::nullopt;
  return entry->second;
}

}  // namespace k3
