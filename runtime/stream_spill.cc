#include "runtime/stream_spill.h"

#include <cstdio>
#include <utility>

namespace k3 {

StreamSpill::StreamSpill(std::string folder, std::string name, const ModelConfig& config,
                         int64_t rows)
    : folder_(std::move(folder)), name_(std::move(name)), config_(config), rows_(rows) {}

std::string StreamSpill::prefix_path(int64_t layer) const {
  return folder_ + "/" + name_ + ".prefix." + std::to_string(layer);
}
std::string StreamSpill::snapshot_path(int64_t snapshot) const {
  return folder_ + "/" + name_ + ".snapshot." + std::to_string(snapshot);
}

void StreamSpill::begin_embedding() {
  layer_ = -1;
  output_.emplace(prefix_path(0), rows_, config_.hidden_size, RowStore::Keeping::kCreate);
}

void StreamSpill::begin_layer(int64_t layer) {
  layer_ = layer;
  const int64_t hidden = config_.hidden_size;
  const auto layers = static_cast<int64_t>(config_.layers.size());
  input_.emplace(prefix_path(layer), rows_, hidden, RowStore::Keeping::kOpen);
  output_.reset();
  new_snapshot_.reset();
  snapshots_.clear();
  if (layer < layers) {
    output_.emplace(prefix_path(layer + 1), rows_, hidden, RowStore::Keeping::kCreate);
  }
  if (!config_.attention_residual_block) return;
  const int64_t block = *config_.attention_residual_block;
  const int64_t live = divide_up(layer, block);
  for (int64_t i = 0; i < live; ++i) {
    snapshots_.emplace_back(snapshot_path(i), rows_, hidden, RowStore::Keeping::kOpen);
  }
  if (layer < layers && layer % block == 0) {
    new_snapshot_.emplace(snapshot_path(live), rows_, hidden, RowStore::Keeping::kCreate);
  }
}

void StreamSpill::read(int64_t first_row, int64_t rows, ResidualStream& stream) {
  input_->read(first_row, rows, stream.prefix.data());
  stream.live_snapshots = std::ssize(snapshots_);
  for (size_t i = 0; i < snapshots_.size(); ++i) {
    snapshots_[i].read(first_row, rows, stream.snapshots[i].data());
  }
  bytes_moved_ += (1 + stream.live_snapshots) * rows * row_bytes();
}

void StreamSpill::write(int64_t first_row, int64_t rows, const ResidualStream& stream) {
  output_->write(first_row, rows, stream.prefix.data());
  bytes_moved_ += rows * row_bytes();
  if (!new_snapshot_) return;
  new_snapshot_->write(first_row, rows,
                       stream.snapshots[static_cast<size_t>(stream.live_snapshots - 1)].data());
  bytes_moved_ += rows * row_bytes();
}

void StreamSpill::sync() const {
  if (output_) output_->sync();
  if (new_snapshot_) new_snapshot_->sync();
}

void StreamSpill::drop_input() const {
  if (layer_ >= 0) std::remove(prefix_path(layer_).c_str());
}

}  // namespace k3
