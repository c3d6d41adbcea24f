// The index and the headers say the same thing twice, and both are wrong often enough: a re-upload
// leaves shards of the old split behind, a merge writes a tensor into two shards, a broken download
// leaves one out. A reader that trusts either alone loads stale or uninitialised weights. So the
// folder decides which shards there are, the headers decide what is in them, and the index must
// agree with both in every entry: nothing missing, nothing surplus, nothing twice.
//
// Memory: K3 has 497,220 names (38 MB) and an index of 58 MB. The names are kept once, in the
// headers; the index is streamed and compared against them, never held.
#include "compiler/checkpoint.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kShardSuffix = ".safetensors";

std::string in_folder(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

// The file names in `folder` that end with .safetensors, sorted. Links count as what they point to,
// which is how download caches lay out a checkpoint.
std::vector<std::string> list_shards(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.ends_with(kShardSuffix)) continue;
    if (std::error_code missing; !fs::exists(entry->path(), missing)) {
      throw Error(entry->path().string(), ": a link to a file that is not there");
    }
    names.push_back(std::move(name));
  }
  if (error) throw Error(folder, ": cannot list the folder: ", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// "model-00002-of-000096.safetensors" -> "000096"; empty if the name has no such part.
std::string_view split_of(std::string_view name) {
  name.remove_suffix(kShardSuffix.size());
  const size_t at = name.rfind("-of-");
  if (at == std::string_view::npos) return {};
  const std::string_view digits = name.substr(at + 4);
  return digits.find_first_not_of("0123456789") == std::string_view::npos ? digits : "";
}

void check_one_split(const std::string& folder, const std::vector<std::string>& names) {
  std::map<std::string_view, int64_t> shards_of_split;
  for (const std::string& name : names) {
    if (!split_of(name).empty()) ++shards_of_split[split_of(name)];
  }
  if (shards_of_split.size() < 2) return;
  const auto& [first, first_count] = *shards_of_split.begin();
  const auto& [last, last_count] = *shards_of_split.rbegin();
  throw Error(folder, ": holds two sets of shards, ", first_count, " named -of-", first, " and ",
              last_count, " named -of-", last, ": remove one");
}

}  // namespace

Checkpoint::Checkpoint(const std::string& folder)
    : folder_(folder), config_(in_folder(folder, "config.json")) {
  const std::vector<std::string> names = list_shards(folder);
  const std::string index_path = in_folder(folder, kIndexName);
  std::error_code ignored;
  const bool indexed = fs::exists(fs::symlink_status(index_path, ignored));
  if (names.empty()) throw Error(folder, ": holds no .safetensors file");
  check_one_split(folder, names);
  if (!indexed && names != std::vector<std::string>{std::string(kSingleName)}) {
    throw Error(folder, ": holds ", names.size(), " .safetensors files but no ", kIndexName,
                ", expected that index or one model.safetensors alone");
  }
  open_shards(names);
  std::vector<int64_t> file_bytes;
  for (const auto& shard : shards_) file_bytes.push_back(shard->size_bytes());
  build_table(file_bytes);
  if (!indexed) return;
  const File index(index_path);
  check_index(index_path, [&index](const auto& entry) { return read_shard_index(index, entry); });
}

Checkpoint::Checkpoint(CheckpointHeaders headers)
    : folder_(std::move(headers.folder)), config_(std::move(headers.config)) {
  std::vector<int64_t> file_bytes;
  for (CheckpointHeaders::Shard& shard : headers.shards) {
    shard_names_.push_back(std::move(shard.name));
    shard_paths_.push_back(std::move(shard.path));
    headers_.push_back(std::move(shard.header));
    file_bytes.push_back(shard.file_bytes);
  }
  K3_CHECK(!shard_names_.empty() && std::is_sorted(shard_names_.begin(), shard_names_.end()));
  build_table(file_bytes);
  if (!headers.index) return;
  check_index(headers.index_path, [&headers](const auto& entry) {
    return read_shard_index(headers.index_path, *headers.index, entry);
  });
}

void Checkpoint::open_shards(const std::vector<std::string>& names) {
  shard_names_ = names;
  for (const std::string& name : names) shard_paths_.push_back(in_folder(folder_, name));
  shards_.resize(names.size());
  headers_.resize(names.size());
  std::vector<std::exception_ptr> errors(names.size());
  tbb::parallel_for(size_t{0}, names.size(), [&](size_t i) {
    try {
      shards_[i] = std::make_shared<const File>(shard_paths_[i]);
      headers_[i] = read_safetensors_header(*shards_[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void Checkpoint::build_table(const std::vector<int64_t>& file_bytes) {
  int64_t count = 0;
  first_.push_back(0);
  for (size_t s = 0; s < headers_.size(); ++s) {
    count += headers_[s].tensors();
    const int64_t data_bytes = file_bytes[s] - headers_[s].data_offset_bytes();
    if (count >= std::numeric_limits<uint32_t>::max() ||
        __builtin_add_overflow(bytes_, data_bytes, &bytes_)) {
      throw Error(folder_, ": has more tensors or bytes than can be counted");
    }
    first_.push_back(static_cast<uint32_t>(count));
  }
  table_ = NameTable(count);
  const auto names = [this](uint32_t number) { return name_of(number); };
  for (size_t s = 0; s < headers_.size(); ++s) {
    for (int64_t i = 0; i < headers_[s].tensors(); ++i) {
      const uint32_t number = first_[s] + static_cast<uint32_t>(i);
      const uint32_t holder = table_.insert(headers_[s].name(i), number, names);
      if (holder == number) continue;
      throw Error(folder_, ": tensor ", printable(headers_[s].name(i)), ": is in ",
                  shard_names_[shard_of(holder)], " and in ", shard_names_[s],
                  ", expected one shard");
    }
  }
}

size_t Checkpoint::shard_of(uint32_t number) const {
  return static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), number) -
                             first_.begin()) -
         1;
}

std::string_view Checkpoint::name_of(uint32_t number) const {
  const size_t shard = shard_of(number);
  return headers_[shard].name(number - first_[shard]);
}

CheckpointTensor Checkpoint::tensor(int64_t number) const {
  K3_CHECK(number >= 0 && number < tensors());
  const size_t shard = shard_of(static_cast<uint32_t>(number));
  const SafetensorsHeader& header = headers_[shard];
  const int64_t i = number - first_[shard];
  return {number, header.name(i), header.dtype(i), header.shape(i),
          Source{static_cast<int32_t>(shard), header.offset_bytes(i), header.length_bytes(i)}};
}

std::optional<CheckpointTensor> Checkpoint::find(std::string_view name) const {
  const auto number = table_.find(name, [this](uint32_t other) { return name_of(other); });
  if (!number) return std::nullopt;
  return tensor(*number);
}

Source Checkpoint::expect(std::string_view name, Dtype dtype, const Shape& shape) const {
  const std::optional<CheckpointTensor> found = find(name);
  if (!found) {
    throw Error(folder_, ": tensor ", name, ": missing, expected ", dtype_name(dtype), ' ', shape);
  }
  if (found->dtype != dtype || found->shape != shape) {
    throw Error(shard_path(found->source.shard), ": tensor ", name, ": is ",
                dtype_name(found->dtype), ' ', found->shape, ", expected ", dtype_name(dtype), ' ',
                shape);
  }
  return found->source;
}

void Checkpoint::check_index(const std::string& index_path, const ReadIndex& read) const {
  std::vector<bool> indexed(static_cast<size_t>(tensors()), false);
  std::vector<bool> named(shard_names_.size(), false);
  const auto names = [this](uint32_t number) { return name_of(number); };
  size_t shard = 0;  // neighbours in the index mostly lie in one shard

  const auto check_entry = [&](std::string_view tensor, std::string_view shard_name) {
    const auto fail = [&](const auto&... parts) {
      throw Error(index_path, ": tensor ", printable(tensor), ": ", parts...);
    };
    if (shard_names_[shard] != shard_name) {
      check_shard_name(index_path, tensor, shard_name);
      const auto at = std::lower_bound(shard_names_.begin(), shard_names_.end(), shard_name);
      if (at == shard_names_.end() || *at != shard_name) {
        fail("lies in ", printable(shard_name), ", which is missing from the folder");
      }
      shard = static_cast<size_t>(at - shard_names_.begin());
    }
    named[shard] = true;
    const std::optional<uint32_t> number = table_.find(tensor, names);
    if (!number) {
      fail("should lie in ", shard_name, ", neither that shard nor any other has it");
      return;
    }
    if (indexed[*number]) fail("is there twice");
    indexed[*number] = true;
    if (const size_t holder = shard_of(*number); holder != shard) {
      fail("should lie in ", shard_name, ", it is in ", shard_names_[holder]);
    }
  };
  const std::optional<int64_t> total_bytes = read(check_entry);

  for (size_t s = 0; s < named.size(); ++s) {
    if (named[s]) continue;
    throw Error(shard_paths_[s], ": a shard that ", kIndexName, " does not name");
  }
  const auto stale = std::find(indexed.begin(), indexed.end(), false);
  if (stale != indexed.end()) {
    const auto number = static_cast<uint32_t>(stale - indexed.begin());
    throw Error(shard_paths_[shard_of(number)], ": tensor ", printable(name_of(number)),
                ": is not in ", kIndexName);
  }
  if (total_bytes && *total_bytes != bytes_) {
    throw Error(index_path, ": metadata.total_size: is ", *total_bytes,
                ", the tensors of all shards have ", bytes_, " bytes");
  }
}

}  // namespace k3
