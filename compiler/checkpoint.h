// A checkpoint, opened: config.json, the index and every shard's header, cross-checked both ways.
//
// After construction each tensor lies in exactly one shard, the index (if there is one) names
// exactly these tensors in exactly these shards, and every byte of every shard belongs to a tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/config_json.h"
#include "compiler/shard_index.h"
#include "passes/model.h"
#include "schema/dtype.h"
#include "schema/file.h"
#include "schema/name_table.h"
#include "schema/safetensors.h"
#include "schema/shape.h"

namespace k3 {

struct CheckpointTensor {
  int64_t number = 0;     // 0 .. Checkpoint::tensors() - 1
  std::string_view name;  // the checkpoint's own
  Dtype dtype = Dtype::kU8;
  Shape shape;
  Source source;
};

// What was read of a checkpoint whose data lie elsewhere, behind a URL.
struct CheckpointHeaders {
  struct Shard {
    std::string name;        // its file name
    std::string path;        // for messages
    int64_t file_bytes = 0;  // header and data
    SafetensorsHeader header;
  };
  std::string folder;  // the URL
  ConfigFile config;
  std::string index_path;            // for messages
  std::optional<std::string> index;  // the text of model.safetensors.index.json; none for a single
                                     // shard without one
  std::vector<Shard> shards;         // in name order
};

class Checkpoint {
 public:
  // Opens `folder`: config.json, and either model.safetensors.index.json with all its shards or a
  // single model.safetensors. One descriptor a shard stays open. Headers are parsed in parallel;
  // if several are bad, the first in name order is reported. Throws Error.
  explicit Checkpoint(const std::string& folder);
  // The same from headers alone, by the same checks. Throws Error.
  explicit Checkpoint(CheckpointHeaders headers);

  const std::string& folder() const { return folder_; }  // or the URL
  const ConfigFile& config() const { return config_; }
  int64_t shard_count() const { return std::ssize(shard_names_); }
  const std::string& shard_path(int32_t shard) const {
    return shard_paths_[static_cast<size_t>(shard)];
  }
  // Whether tensors can be read; if not, shards() is empty.
  bool has_data() const { return !shards_.empty(); }
  const std::vector<std::shared_ptr<const File>>& shards() const { return shards_; }

  // All tensors, shard by shard in name order, each shard in file order.
  int64_t tensors() const { return first_.back(); }
  CheckpointTensor tensor(int64_t number) const;
  int64_t bytes() const { return bytes_; }  // of all tensors

  std::optional<CheckpointTensor> find(std::string_view name) const;
  // Where the tensor `name` lies. Throws Error when it is missing or is not of this type and shape.
  Source expect(std::string_view name, Dtype dtype, const Shape& shape) const;

 private:
  void open_shards(const std::vector<std::string>& names);
  // `file_bytes` of each shard, in the order of headers_.
  void build_table(const std::vector<int64_t>& file_bytes);
  // `read` calls back with every entry of the index and returns metadata.total_size, if given.
  using ReadIndex = std::function<std::optional<int64_t>(const ShardIndexEntry&)>;
  void check_index(const std::string& index_path, const ReadIndex& read) const;
  std::string_view name_of(uint32_t number) const;
  size_t shard_of(uint32_t number) const;

  std::string folder_;
  ConfigFile config_;
  std::vector<std::string> shard_names_;  // file names, sorted
  std::vector<std::string> shard_paths_;
  std::vector<std::shared_ptr<const File>> shards_;
  std::vector<SafetensorsHeader> headers_;
  std::vector<uint32_t> first_;  // number of each shard's first tensor; ends with the count
  NameTable table_;
  int64_t bytes_ = 0;
};

}  // namespace k3
