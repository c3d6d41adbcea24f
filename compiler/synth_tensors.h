// Which tensors a made checkpoint has and in which shard each lies, from the tables that the
// importers check against.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/synth_presets.h"
#include "schema/dtype.h"
#include "schema/shape.h"

namespace k3 {

struct SynthTensor {
  std::string name;  // as in the shard
  // What the tensor is, without the model's prefix and the numbers of layer and expert; decides
  // what its weights are like. Lives as long as the program.
  std::string_view kind;
  Dtype dtype = Dtype::kBf16;
  Shape shape;
  int64_t used_entries = 0;  // the rest of it is zero: A_log's padding

  int64_t entries() const { return shape.elements().value_or(0); }
  int64_t bytes() const { return entries() * dtype_bytes(dtype); }
};

// The shards of a preset. Their tensors are made when asked for: K3's half a million would take a
// hundred megabytes.
class SynthShards {
 public:
  explicit SynthShards(const SynthPreset& preset);

  int64_t count() const { return static_cast<int64_t>(shard_begins_.size()) - 1; }
  std::string file_name(int64_t shard) const;
  // In file order.
  std::vector<SynthTensor> tensors(int64_t shard) const;

  int64_t total_tensors() const { return shard_begins_.back(); }
  int64_t total_bytes() const { return total_bytes_; }

  // Calls visit(name, shard) for every tensor in the order of the names as text.
  template <class Visit>
  void visit_by_name(const Visit& visit) const {
    std::vector<SynthTensor> part;
    int64_t made = -1;
    for (const Run& run : runs_) {
      if (made != run.part) {
        made = run.part;
        part = make_part(made);
      }
      for (int64_t i = run.begin; i < run.end; ++i) {
        visit(part[static_cast<size_t>(i)].name, shard_of(part_begin(run.part) + i));
      }
    }
  }

 private:
  // Tensors of one part that follow each other in the order of all names.
  struct Run {
    std::string first_name;
    int64_t part = 0;
    int64_t begin = 0;  // in the part
    int64_t end = 0;
  };

  // The parts are the layers, then the rest of the text model, then projector and vision tower.
  int64_t parts() const { return static_cast<int64_t>(part_begins_.size()) - 1; }
  int64_t part_begin(int64_t part) const { return part_begins_[static_cast<size_t>(part)]; }
  std::vector<SynthTensor> make_part(int64_t part) const;  // by name
  int64_t shard_of(int64_t tensor) const;
  void cut_by_part();
  void cut_by_size();

  SynthPreset preset_;
  // Tensors are numbered part by part. Both end with their number.
  std::vector<int64_t> part_begins_ = {0};
  std::vector<int64_t> shard_begins_ = {0};
  std::vector<Run> runs_;
  int64_t total_bytes_ = 0;
};

}  // namespace k3
