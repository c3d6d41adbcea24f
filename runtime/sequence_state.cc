#include "runtime/sequence_state.h"

#include <map>
#include <span>
#include <type_traits>
#include <utility>

#include "runtime/resident_layer.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/printable.h"
#include "schema/safetensors.h"
#include "schema/safetensors_writer.h"

namespace k3 {
namespace {

constexpr const char* kKind = "k3state";
constexpr const char* kVersion = "1";

// One named array of a state. Every array of the file is one of these, so saving and loading cannot
// disagree.
template <class Values>  // std::vector<float>, const when saving
struct StateArray {
  std::string name;
  Values* values;
  Shape shape;  // by the model and the number of positions
};

template <class State>
auto arrays_of(State& state, const ModelConfig& config, int64_t positions) {
  using Values = std::remove_reference_t<decltype((state.last_logits))>;
  std::vector<StateArray<Values>> arrays;
  if (positions > 0) arrays.push_back({"last_logits", &state.last_logits, {config.vocab_size}});
  for (size_t i = 0; i < state.layers.size(); ++i) {
    auto& layer = state.layers[i];
    const std::string prefix = "layers." + std::to_string(i) + ".";
    if (config.layers[i].attention == AttentionKind::kKda) {
      const Shape window{config.conv_kernel - 1, config.kda_width()};
      arrays.push_back({prefix + "q_window", &layer.q_window, window});
      arrays.push_back({prefix + "k_window", &layer.k_window, window});
      arrays.push_back({prefix + "v_window", &layer.v_window, window});
      arrays.push_back({prefix + "kda",
                        &layer.kda,
                        {config.kda_heads, config.kda_head_dim, config.kda_head_dim}});
    } else {
      arrays.push_back(
          {prefix + "cache", &layer.cache, {positions, config.kv_lora_rank + config.qk_extra_dim}});
    }
  }
  return arrays;
}

// The bytes of all arrays, ids first, in the file's order: what the stored hash is of.
template <class Values>
uint64_t hash_of(const SequenceState& state, const std::vector<StateArray<Values>>& arrays) {
  Xxh3Stream hash;
  hash.update(std::as_bytes(std::span(state.ids)));
  for (const auto& array : arrays) hash.update(std::as_bytes(std::span(*array.values)));
  return hash.digest();
}

class StateFile {
 public:
  explicit StateFile(const std::string& path)
      : file_(path), header_(read_safetensors_header(file_)) {
    for (const auto& [key, value] : header_.metadata()) metadata_[key] = value;
    for (int64_t i = 0; i < header_.tensors(); ++i) tensors_[std::string(header_.name(i))] = i;
  }

  void expect_metadata(const std::string& key, const std::string& expected,
                       const char* what) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end() || found->second != expected) {
      throw Error(file_.path(), ": ", what, " is ",
                  found == metadata_.end() ? "missing" : printable(found->second), ", expected ",
                  expected);
    }
  }
  const std::string& metadata(const std::string& key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) throw Error(file_.path(), ": metadata ", key, " is missing");
    return found->second;
  }

  int64_t tensors() const { return header_.tensors(); }

  const Shape& shape(const std::string& name, Dtype dtype) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw Error(file_.path(), ": tensor ", name, " is missing");
    if (header_.dtype(found->second) != dtype) {
      throw Error(file_.path(), ": tensor ", name, ": dtype is ",
                  dtype_name(header_.dtype(found->second)), ", expected ", dtype_name(dtype));
    }
    return header_.shape(found->second);
  }

  // The header's rules tie shape and length to the file's true size, so this allocates no more than
  // the file holds.
  template <class T>
  void read(const std::string& name, std::vector<T>& values) const {
    const int64_t i = tensors_.at(name);
    values.resize(static_cast<size_t>(header_.length_bytes(i)) / sizeof(T));
    file_.read_at(header_.offset_bytes(i), std::as_writable_bytes(std::span(values)));
  }

 private:
  File file_;
  SafetensorsHeader header_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, int64_t> tensors_;
};

}  // namespace

ResidentHandle::ResidentHandle() = default;
ResidentHandle::ResidentHandle(const ResidentHandle& other) {
  K3_CHECK(other.layer_ == nullptr);
}
ResidentHandle::ResidentHandle(ResidentHandle&& other) noexcept = default;
ResidentHandle& ResidentHandle::operator=(ResidentHandle other) noexcept {
  layer_ = std::move(other.layer_);
  return *this;
}
ResidentHandle::~ResidentHandle() = default;
void ResidentHandle::reset(ResidentLayer* layer) {
  layer_.reset(layer);
}

void ResidentHandle::bring_home(int64_t positions, int64_t width, LayerState& state) {
  layer_->write_back(positions, width, state);
  layer_.reset();
}

void SequenceState::bring_home(const ModelConfig& config) {
  for (LayerState& layer : layers) {
    if (layer.resident != nullptr) {
      layer.resident.bring_home(positions(), config.cache_width(), layer);
    }
  }
}

LayerState fresh_layer_state(const ModelConfig& config, int64_t layer) {
  LayerState state;
  if (config.layers[static_cast<size_t>(layer)].attention != AttentionKind::kKda) return state;
  const auto window = static_cast<size_t>((config.conv_kernel - 1) * config.kda_width());
  for (auto* taps : {&state.q_window, &state.k_window, &state.v_window}) taps->resize(window);
  state.kda.resize(static_cast<size_t>(config.kda_width() * config.kda_head_dim));
  return state;
}

SequenceState::SequenceState(const ModelConfig& config) {
  for (int64_t layer = 0; layer < std::ssize(config.layers); ++layer) {
    layers.push_back(fresh_layer_state(config, layer));
  }
}

void save_state(const SequenceState& state, const ModelConfig& config, uint64_t payload_xxh3,
                const std::string& path) {
  for (const LayerState& layer : state.layers) K3_CHECK(layer.resident == nullptr);
  const auto arrays = arrays_of(state, config, state.positions());
  std::vector<TensorToWrite> tensors;
  tensors.push_back({"ids", Dtype::kI32, {state.positions()}, std::as_bytes(std::span(state.ids))});
  for (const auto& array : arrays) {
    tensors.push_back(
        {array.name, Dtype::kF32, array.shape, std::as_bytes(std::span(*array.values))});
  }
  const std::pair<std::string, std::string> metadata[] = {
      {"kind", kKind},
      {"version", kVersion},
      {"pack_payload_xxh3", hex_digits(payload_xxh3)},
      {"data_xxh3", hex_digits(hash_of(state, arrays))},
  };
  write_safetensors(path, tensors, metadata);
}

SequenceState load_state(const ModelConfig& config, uint64_t payload_xxh3,
                         const std::string& path) {
  const StateFile file(path);
  file.expect_metadata("kind", kKind, "kind");
  file.expect_metadata("version", kVersion, "version");
  file.expect_metadata("pack_payload_xxh3", hex_digits(payload_xxh3), "the pack it belongs to");

  SequenceState state(config);
  const Shape& ids = file.shape("ids", Dtype::kI32);
  if (ids.rank() != 1) throw Error(path, ": tensor ids: shape is ", ids, ", expected [positions]");
  file.read("ids", state.ids);
  const auto arrays = arrays_of(state, config, ids[0]);
  if (file.tensors() != static_cast<int64_t>(arrays.size()) + 1) {
    throw Error(path, ": has ", file.tensors(), " tensors, expected ", arrays.size() + 1);
  }
  for (const auto& array : arrays) {
    const Shape& shape = file.shape(array.name, Dtype::kF32);
    if (shape != array.shape) {
      throw Error(path, ": tensor ", array.name, ": shape is ", shape, ", expected ", array.shape);
    }
    file.read(array.name, *array.values);
  }
  if (file.metadata("data_xxh3") != hex_digits(hash_of(state, arrays))) {
    throw Error(path, ": its data do not have the hash it was saved with: it is damaged");
  }
  return state;
}

}  // namespace k3
