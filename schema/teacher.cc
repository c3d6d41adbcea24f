#include "schema/teacher.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/printable.h"
#include "schema/safetensors.h"
#include "schema/safetensors_writer.h"

namespace k3 {
namespace {

constexpr const char* kKind = "k3teach";
constexpr const char* kVersion = "1";

// The arrays in the file's order; `teacher` is const when writing.
template <class TeacherType, class Visit>
void for_each_array(TeacherType& teacher, int64_t tokens, int64_t top_k, const Visit& visit) {
  visit("log_sum_exp", Dtype::kF64, Shape{tokens}, teacher.log_sum_exp);  // first: aligned
  visit("token_ids", Dtype::kI32, Shape{tokens}, teacher.token_ids);
  visit("document_ids", Dtype::kI32, Shape{tokens}, teacher.document_ids);
  visit("top_ids", Dtype::kI32, Shape{tokens, top_k}, teacher.top_ids);
  visit("top_logits", Dtype::kF32, Shape{tokens, top_k}, teacher.top_logits);
}

uint64_t data_xxh3(const Teacher& teacher) {
  Xxh3Stream hash;
  for_each_array(teacher, 0, 0, [&hash](const char*, Dtype, const Shape&, const auto& values) {
    hash.update(std::as_bytes(std::span(values)));
  });
  return hash.digest();
}

double log_sum_exp(std::span<const float> logits) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

class TeacherFile {
 public:
  explicit TeacherFile(const std::string& path)
      : file_(path), header_(read_safetensors_header(file_)) {}

  std::string_view metadata(std::string_view key) const {
    for (const auto& [name, value] : header_.metadata()) {
      if (name == key) return value;
    }
    throw Error(file_.path(), ": metadata ", key, " is missing, expected a .k3teach file");
  }
  void expect_metadata(std::string_view key, std::string_view expected) const {
    if (metadata(key) != expected) {
      throw Error(file_.path(), ": ", key, " is ", printable(metadata(key)), ", expected ",
                  expected);
    }
  }
  template <class Integer>
  Integer number(std::string_view key, int base) const {
    const std::string_view text = metadata(key);
    Integer value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw Error(file_.path(), ": ", key, " is \"", printable(text), "\", expected a number");
    }
    return value;
  }

  int64_t position_of(std::string_view name) const {
    for (int64_t i = 0; i < header_.tensors(); ++i) {
      if (header_.name(i) == name) return i;
    }
    throw Error(file_.path(), ": tensor ", name, " is missing");
  }
  const Shape& shape_of(std::string_view name) const { return header_.shape(position_of(name)); }

  template <class Value>
  void read(std::string_view name, Dtype dtype, const Shape& shape,
            std::vector<Value>& values) const {
    const int64_t i = position_of(name);
    if (header_.dtype(i) != dtype || header_.shape(i) != shape) {
      throw Error(file_.path(), ": tensor ", name, " is ", dtype_name(header_.dtype(i)), " ",
                  header_.shape(i), ", expected ", dtype_name(dtype), " ", shape);
    }
    values.resize(static_cast<size_t>(header_.length_bytes(i)) / sizeof(Value));
    file_.read_at(header_.offset_bytes(i), std::as_writable_bytes(std::span(values)));
  }

 private:
  File file_;
  SafetensorsHeader header_;
};

void check_rows(const std::string& path, const Teacher& teacher) {
  const auto is_id = [&](int32_t id) { return id >= 0 && id < teacher.vocab_size; };
  const auto k = static_cast<size_t>(teacher.top_k);
  for (size_t t = 0; t < teacher.token_ids.size(); ++t) {
    const std::span ids(teacher.top_ids.data() + t * k, k);
    const std::span logits(teacher.top_logits.data() + t * k, k);
    const double sum = teacher.log_sum_exp[t];
    const bool sound = is_id(teacher.token_ids[t]) && teacher.document_ids[t] >= 0 &&
                       std::all_of(ids.begin(), ids.end(), is_id) &&
                       std::all_of(logits.begin(), logits.end(),
                                   [](float logit) { return std::isfinite(logit); }) &&
                       std::is_sorted(logits.rbegin(), logits.rend()) && std::isfinite(sum) &&
                       static_cast<double>(logits.front()) <= sum;
    if (!sound) {
      throw Error(path, ": row ", t, " is no prediction over ", teacher.vocab_size, " tokens");
    }
  }
}

}  // namespace

void add_prediction(Teacher& teacher, int32_t token_id, int32_t document_id, const float* logits) {
  const auto vocab = static_cast<size_t>(teacher.vocab_size);
  std::vector<int32_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + teacher.top_k;
  std::partial_sort(order.begin(), end, order.end(), [logits](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  teacher.token_ids.push_back(token_id);
  teacher.document_ids.push_back(document_id);
  teacher.top_ids.insert(teacher.top_ids.end(), order.begin(), end);
  for (auto id = order.begin(); id != end; ++id) teacher.top_logits.push_back(logits[*id]);
  teacher.log_sum_exp.push_back(log_sum_exp({logits, vocab}));
}

void write_teacher(const Teacher& teacher, const std::string& path) {
  std::vector<TensorToWrite> tensors;
  for_each_array(teacher, teacher.tokens(), teacher.top_k,
                 [&](const char* name, Dtype dtype, const Shape& shape, const auto& values) {
                   tensors.push_back({name, dtype, shape, std::as_bytes(std::span(values))});
                 });
  const std::pair<std::string, std::string> metadata[] = {
      {"kind", kKind},
      {"version", kVersion},
      {"model_payload_xxh3", hex_digits(teacher.model_payload_xxh3)},
      {"text_xxh3", hex_digits(teacher.text_xxh3)},
      {"vocab_size", std::to_string(teacher.vocab_size)},
      {"data_xxh3", hex_digits(data_xxh3(teacher))},
  };
  write_safetensors(path, tensors, metadata);
}

Teacher read_teacher(const std::string& path) {
  const TeacherFile file(path);
  file.expect_metadata("kind", kKind);
  file.expect_metadata("version", kVersion);
  Teacher teacher;
  teacher.model_payload_xxh3 = file.number<uint64_t>("model_payload_xxh3", 16);
  teacher.text_xxh3 = file.number<uint64_t>("text_xxh3", 16);
  teacher.vocab_size = file.number<int64_t>("vocab_size", 10);
  const Shape& top = file.shape_of("top_ids");
  if (top.rank() != 2 || top[1] < 1 || top[1] > teacher.vocab_size) {
    throw Error(path, ": tensor top_ids is ", top, ", expected [tokens, k] with k from 1 to ",
                teacher.vocab_size);
  }
  teacher.top_k = top[1];
  for_each_array(teacher, top[0], top[1],
                 [&file](const char* name, Dtype dtype, const Shape& shape, auto& values) {
                   file.read(name, dtype, shape, values);
                 });
  if (const uint64_t stated = file.number<uint64_t>("data_xxh3", 16);
      stated != data_xxh3(teacher)) {
    throw Error(path, ": is damaged: the hash of its data is not ", hex_digits(stated));
  }
  check_rows(path, teacher);
  return teacher;
}

}  // namespace k3
