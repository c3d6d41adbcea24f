// The residual streams of all tokens between two layers of a layer-major pass, on disk.
//
// A layer reads one prefix file and writes the next, so a pass that is killed in the middle of a
// layer can run that layer again. Snapshots are written once, by the layer that starts their block.
// K3's take 258 KB a token, and 29 KB more while a layer runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/forward.h"
#include "runtime/row_store.h"
#include "schema/model_config.h"

namespace k3 {

class StreamSpill {
 public:
  // Files NAME.* in `folder`. `config` must outlive it.
  StreamSpill(std::string folder, std::string name, const ModelConfig& config, int64_t rows);

  // Before the first tokens pass: what the embedding writes, read by layer 0.
  void begin_embedding();
  // Before tokens pass `layer`, which the earlier ones have passed all; the number of layers stands
  // for the output, which writes nothing. Throws Error when a file is not there.
  void begin_layer(int64_t layer);

  void read(int64_t first_row, int64_t rows, ResidualStream& stream);
  void write(int64_t first_row, int64_t rows, const ResidualStream& stream);

  int64_t bytes_moved() const { return bytes_moved_; }  // written and read so far

  // All tokens have passed: brings what was written to disk.
  void sync() const;
  // And it is known that they have: removes what the layer read.
  void drop_input() const;

 private:
  int64_t row_bytes() const { return config_.hidden_size * static_cast<int64_t>(sizeof(float)); }
  std::string prefix_path(int64_t layer) const;
  std::string snapshot_path(int64_t snapshot) const;

  std::string folder_;
  std::string name_;
  const ModelConfig& config_;
  int64_t rows_;
  int64_t layer_ = -1;
  int64_t bytes_moved_ = 0;
  std::optional<RowStore> input_, output_, new_snapshot_;
  std::vector<RowStore> snapshots_;
};

}  // namespace k3
