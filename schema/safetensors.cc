// A header is text that somebody else wrote about bytes that somebody else wrote, and every public
// reader skips some of its rules: tensors that overlap, holes between them, bytes behind the last
// one, a name given twice, a product of dimensions that wraps around to a small number. Each of
// those once loaded wrong weights in silence, so here the whole set is checked, in two steps. The
// grammar is checked token by token while reading. Then the tensors are put in the order of their
// offsets, where one comparison a tensor (each begins where its predecessor ended, the first at
// zero, the last at the file's end) excludes holes, overlaps, shared ranges and surplus bytes.
#include "schema/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/json_scanner.h"
#include "schema/name_table.h"
#include "schema/printable.h"

namespace k3 {
namespace {

struct HashShape {
  size_t operator()(const Shape& shape) const {
    return xxh3(std::as_bytes(shape.dims())) + static_cast<size_t>(shape.rank());
  }
};

}  // namespace

class SafetensorsParser {
 public:
  SafetensorsParser(const std::string& path, std::string_view json, int64_t file_bytes)
      : path_(path),
        text_(json),
        data_bytes_(file_bytes - kSafetensorsPrefixBytes - static_cast<int64_t>(json.size())),
        json_(path, json) {
    header_.data_offset_bytes_ = file_bytes - data_bytes_;
  }

  SafetensorsHeader parse() {
    if (!text_.starts_with('{')) throw Error(path_, ": the header does not start with '{'");
    json_.expect('{');
    if (!json_.accept('}')) {
      do {
        read_member();
      } while (json_.accept(','));
      json_.expect('}');
    }
    const auto padding = text_.substr(static_cast<size_t>(json_.position_bytes()));
    if (const size_t i = padding.find_first_not_of(' '); i != std::string_view::npos) {
      throw Error(path_, ": the header goes on with '", printable(padding.substr(i, 1)),
                  "' behind its object, only spaces may stand there");
    }
    check_names();
    check_offsets();
    return std::move(header_);
  }

 private:
  using Entry = SafetensorsHeader::Entry;

  void read_member() {
    const std::string_view name = json_.string();
    if (name == "__metadata__") {
      json_.set_subject("metadata", name);
      read_metadata();
    } else {
      Entry entry;
      entry.name_begin = static_cast<uint32_t>(header_.names_.size());
      entry.name_bytes = static_cast<uint32_t>(name.size());
      header_.names_ += name;
      read_tensor(entry, std::string_view(header_.names_).substr(entry.name_begin));
    }
    json_.set_subject({}, {});
  }

  void read_metadata() {
    if (metadata_seen_) throw Error(path_, ": __metadata__ is there twice");
    metadata_seen_ = true;
    json_.expect(':');
    json_.expect('{');
    if (json_.accept('}')) return;
    do {
      std::string key(json_.string());
      json_.expect(':');
      header_.metadata_.emplace_back(std::move(key), json_.string());
    } while (json_.accept(','));
    json_.expect('}');
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : header_.metadata_) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
      throw Error(path_, ": __metadata__: the key ", printable(*twice), " is there twice");
    }
  }

  void read_tensor(Entry entry, std::string_view name) {
    json_.set_subject("tensor", name);
    if (name.find('\0') != std::string_view::npos) fail(name, "a NUL byte in the name");
    std::optional<Dtype> dtype;
    std::optional<Shape> shape;
    std::optional<std::array<int64_t, 2>> span;
    json_.expect(':');
    json_.expect('{');
    do {
      const std::string_view field = json_.string();
      if (field == "dtype") {
        if (dtype) fail(name, "dtype is there twice");
        dtype = read_dtype(name);
      } else if (field == "shape") {
        if (shape) fail(name, "shape is there twice");
        shape = read_shape(name);
      } else if (field == "data_offsets") {
        if (span) fail(name, "data_offsets is there twice");
        span = read_span();
      } else {
        fail(name, "the field ", printable(field),
             " is unknown, expected dtype, shape and data_offsets alone");
      }
    } while (json_.accept(','));
    json_.expect('}');
    if (!dtype) fail(name, "dtype is missing");
    if (!shape) fail(name, "shape is missing");
    if (!span) fail(name, "data_offsets is missing");
    check_size(name, *dtype, *shape, *span);

    entry.dtype = *dtype;
    entry.offset_bytes = (*span)[0];
    const auto number = static_cast<uint32_t>(header_.shapes_.size());
    const auto [known, added] = shape_numbers_.try_emplace(*shape, number);
    if (added) header_.shapes_.push_back(*shape);
    entry.shape_number = known->second;
    header_.entries_.push_back(entry);
  }

  Dtype read_dtype(std::string_view name) {
    json_.expect(':');
    const std::string_view text = json_.string();
    const std::optional<Dtype> dtype = parse_dtype(text);
    if (!dtype) fail(name, "the dtype ", printable(text), " is unknown");
    return *dtype;
  }

  Shape read_shape(std::string_view name) {
    json_.expect(':');
    json_.expect('[');
    std::array<int64_t, Shape::kMaxRank> dims{};
    size_t rank = 0;
    if (!json_.accept(']')) {
      do {
        if (rank == dims.size()) fail(name, "the shape has more than 4 dimensions");
        dims[rank++] = json_.natural();
      } while (json_.accept(','));
      json_.expect(']');
    }
    return Shape(std::span<const int64_t>(dims.data(), rank));
  }

  std::array<int64_t, 2> read_span() {
    json_.expect(':');
    json_.expect('[');
    const int64_t begin = json_.natural();
    json_.expect(',');
    const int64_t end = json_.natural();
    json_.expect(']');
    return {begin, end};
  }

  // Everything about one tensor alone. From here on its length follows from its shape.
  void check_size(std::string_view name, Dtype dtype, const Shape& shape,
                  const std::array<int64_t, 2>& span) const {
    const auto [begin, end] = span;
    if (begin > end) fail(name, "data_offsets begin at ", begin, " and end at ", end);
    if (end > data_bytes_) {
      fail(name, "data_offsets end at ", end, ", the file has ", data_bytes_,
           " bytes behind its header");
    }
    const std::optional<int64_t> elements = shape.elements();
    int64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, dtype_bytes(dtype), &bytes)) {
      fail(name, "the shape ", shape, " has more elements than can be counted");
    }
    if (end - begin != bytes) {
      fail(name, "data_offsets span ", end - begin, " bytes, expected ", bytes, " for ",
           dtype_name(dtype), ' ', shape);
    }
  }

  void check_names() const {
    const auto name_of = [this](uint32_t i) { return header_.name(i); };
    NameTable table(header_.tensors());
    for (int64_t i = 0; i < header_.tensors(); ++i) {
      const auto number = static_cast<uint32_t>(i);
      if (table.insert(header_.name(i), number, name_of) != number) {
        fail(header_.name(i), "the name is there twice");
      }
    }
  }

  // Sorts the tensors by their place. From here on offsets count from the start of the file.
  void check_offsets() {
    const auto length = [this](const Entry& entry) {
      return *header_.shapes_[entry.shape_number].elements() * dtype_bytes(entry.dtype);
    };
    // An empty tensor shares its offset with the next one and stands before it.
    std::stable_sort(header_.entries_.begin(), header_.entries_.end(),
                     [&length](const Entry& a, const Entry& b) {
                       if (a.offset_bytes != b.offset_bytes) return a.offset_bytes < b.offset_bytes;
                       return length(a) < length(b);
                     });
    int64_t end = 0;
    for (int64_t i = 0; i < header_.tensors(); ++i) {
      Entry& entry = header_.entries_[static_cast<size_t>(i)];
      if (entry.offset_bytes > end) {
        fail(header_.name(i), "begins at byte ", entry.offset_bytes, " of the data, expected ", end,
             ": the bytes between belong to no tensor");
      }
      if (entry.offset_bytes < end) {
        fail(header_.name(i), "begins at byte ", entry.offset_bytes, " of the data, expected ", end,
             ": it overlaps tensor ", printable(header_.name(i - 1)));
      }
      end += length(entry);
      entry.offset_bytes += header_.data_offset_bytes_;
    }
    if (end != data_bytes_) {
      throw Error(path_, ": the tensors end at byte ", end, " of the data, the file has ",
                  data_bytes_, ": the bytes behind belong to no tensor");
    }
  }

  template <class... Parts>
  [[noreturn]] void fail(std::string_view name, const Parts&... parts) const {
    throw Error(path_, ": tensor ", printable(name), ": ", parts...);
  }

  const std::string& path_;
  std::string_view text_;
  int64_t data_bytes_;
  JsonScanner json_;
  bool metadata_seen_ = false;
  std::unordered_map<Shape, uint32_t, HashShape> shape_numbers_;
  SafetensorsHeader header_;
};

int64_t safetensors_header_bytes(const std::string& path,
                                 std::span<const std::byte, kSafetensorsPrefixBytes> prefix,
                                 int64_t file_bytes) {
  if (file_bytes < kSafetensorsPrefixBytes) {
    throw Error(path, ": has ", file_bytes, " bytes, a safetensors file has at least 10");
  }
  uint64_t length = 0;
  for (size_t i = prefix.size(); i-- > 0;)
    length = length << 8 | std::to_integer<uint64_t>(prefix[i]);
  const auto room = static_cast<uint64_t>(file_bytes - kSafetensorsPrefixBytes);
  if (length > room) {
    throw Error(path, ": the header should have ", length, " bytes, the file has ", room,
                " behind the length: cut short, or not safetensors");
  }
  if (length > static_cast<uint64_t>(kLargestSafetensorsHeader)) {
    throw Error(path, ": the header has ", length, " bytes, at most ", kLargestSafetensorsHeader,
                " are read");
  }
  if (length < 2) throw Error(path, ": the header has ", length, " bytes, expected at least {}");
  return static_cast<int64_t>(length);
}

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view json,
                                           int64_t file_bytes) {
  K3_CHECK(file_bytes >= kSafetensorsPrefixBytes + static_cast<int64_t>(json.size()));
  return SafetensorsParser(path, json, file_bytes).parse();
}

SafetensorsHeader read_safetensors_header(const File& file) {
  std::array<std::byte, kSafetensorsPrefixBytes> prefix{};
  const auto present = std::min(file.size_bytes(), kSafetensorsPrefixBytes);
  file.read_at(0, std::span(prefix).first(static_cast<size_t>(present)));
  const int64_t bytes = safetensors_header_bytes(file.path(), prefix, file.size_bytes());
  std::string json(static_cast<size_t>(bytes), '\0');
  file.read_at(kSafetensorsPrefixBytes, std::as_writable_bytes(std::span(json)));
  return parse_safetensors_header(file.path(), json, file.size_bytes());
}

}  // namespace k3
