// An opened pack. The file is hostile until every check has passed: lengths are compared with the
// file before anything is allocated, multiplied or indexed, and no byte is handed out whose hash
// was not computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schema/file.h"
#include "schema/pack_frame.h"
#include "schema/pack_index.h"

namespace k3 {

class PackReader {
 public:
  // Reads and checks frame and index: hashes, FlatBuffers structure, enumerators, shapes against
  // formats and layouts, every tensor that the config demands, extents aligned, disjoint and inside
  // the file. Throws Error with the first fault found. Weights are not read.
  // `tail` is for attach alone, see pack_frame.h.
  explicit PackReader(const std::string& path, Tail tail = Tail::kRefuse);

  const std::string& path() const { return file_.path(); }
  const File& file() const { return file_; }
  int64_t file_bytes() const { return frame_.file_bytes; }
  const PackFrame& frame() const { return frame_; }
  const PackIndex& index() const { return index_; }
  const ModelConfig& config() const { return index_.content.config; }
  uint64_t payload_xxh3() const {
    return payload_xxh3_;
  }  // the root hash of everything that decides the output

  // The content buffer exactly as stored, for writers that add a receipt without touching the
  // content.
  std::span<const std::byte> content_bytes() const { return content_bytes_; }

  const PackTensor* find(std::string_view name) const;  // null when absent
  const PackBank* bank(int64_t layer) const;            // null when the layer has none

  // Reads one extent into `dst` (its exact length) and checks its hash. `name` is for the message.
  // Thread-safe.
  void read(const Extent& extent, std::string_view name, std::span<std::byte> dst,
            bool check_hash = true) const;

  // The second half of read(), for who brings the bytes by other means. Throws Error when they are
  // not those that the pack was written with.
  void expect_hash(const Extent& extent, std::string_view name,
                   std::span<const std::byte> bytes) const;

  // The decompressed bytes of a side file or report. Throws Error when absent or damaged.
  std::vector<std::byte> side_file(std::string_view name) const;
  std::vector<std::byte> report(std::string_view name) const;

  // Reads the whole file: every extent's hash (retired indexes too), every gap's zeros, the least
  // exponents and scale bytes of every expert, codes and padding of every matrix in
  // blocks160, the content of every compressed item. Collects all faults, one line each; empty when
  // the pack is whole. `on_progress` gets the bytes done so far. kAroundWeights leaves out tensors
  // and experts, for a program that reads those through read() anyway.
  enum class Scope { kEverything, kAroundWeights };
  std::vector<std::string> verify(const std::function<void(int64_t)>& on_progress = {},
                                  Scope scope = Scope::kEverything) const;

 private:
  std::vector<std::byte> read_compressed(const Extent& extent, std::string_view name,
                                         int64_t raw_bytes) const;

  File file_;
  PackFrame frame_;
  PackIndex index_;
  std::vector<std::byte> index_bytes_;
  std::span<const std::byte> content_bytes_;  // inside index_bytes_
  uint64_t payload_xxh3_ = 0;
  std::unordered_map<std::string_view, const PackTensor*> tensors_by_name_;
  std::vector<const PackBank*> bank_by_layer_;
};

}  // namespace k3
