// The checkpoint must hold exactly the tensors of kimi_k3_tensors.cc, the vision part aside: one
// that is missing would be uninitialised, one that is surplus would be a feature we do not run.
// So each expected name claims its tensor and what nobody claimed is an error; "nothing found, all
// fine" cannot happen. Which format the experts have is decided by which tensors exist: the
// ignore list of the released quantization_config is not true of three kinds of matrices.
//
// A_log is stored wider than there are heads (128 for 96), filled up with zeros. The Model's tensor
// is the first `heads` entries; the zeros are read, checked and counted as dropped bytes, so that
// every byte of the checkpoint is still accounted for.
#include "compiler/kimi_k3.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "compiler/kimi_k3_config.h"
#include "compiler/kimi_k3_tensors.h"
#include "compiler/printable.h"
#include "schema/error.h"

namespace k3 {
namespace {

constexpr std::string_view kPrefix = "language_model.";
constexpr std::string_view kVisionPrefix = "vision_tower.";
constexpr std::string_view kProjectorPrefix = "mm_projector.";
constexpr int64_t kLargestSideFile = int64_t{64} << 20;
// In one layer, after which its experts are not looked for any more: a config that promises
// millions of experts which are not there must not cost memory.
constexpr int64_t kMostProblems = 1000;

// The first problem in full and the number of all.
struct Problems {
  std::string first;
  int64_t count = 0;

  template <class... Parts>
  void add(const Parts&... parts) {
    if (count++ == 0) first = Error(parts...).what();
  }
  void add_all(const Problems& other) {
    if (count == 0) first = other.first;
    count += other.count;
  }
  void throw_if_any() const {
    if (count == 0) return;
    if (count == 1) throw Error(first);
    throw Error(first, " (and ", count - 1, count == 2 ? " more problem)" : " more problems)");
  }
};

// What one layer, or the model itself, contributes. Layers are imported in parallel.
struct Part {
  std::vector<TrunkTensor> trunk;
  std::optional<Bank> bank;
  int64_t padding_parameters = 0;  // of A_log
  Problems problems;
};

class Importer {
 public:
  explicit Importer(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint),
        claimed_(static_cast<size_t>(checkpoint.tensors()), 0),
        config_(read_kimi_k3_config(checkpoint.config())) {}

  Model import() {
    find_prefix();
    find_expert_format();
    std::vector<Part> parts(config_.layers.size() + 1);
    tbb::parallel_for(size_t{0}, config_.layers.size(), [&](size_t layer) {
      import_layer(static_cast<int64_t>(layer), parts[layer]);
    });
    for (const TensorRow& row : kimi_k3_trunk_rows()) {
      if (row.place == Place::kInModel) import_tensor(prefix_, row, parts.back());
    }

    Model model;
    model.family = "kimi-k3";
    model.source_prefix = prefix_;
    model.shards = checkpoint_.shards();
    Problems problems;
    Dropped padding{.family = Family::kKda};
    for (Part& part : parts) {
      problems.add_all(part.problems);
      padding.parameters += part.padding_parameters;
      std::sort(part.trunk.begin(), part.trunk.end(),
                [](const TrunkTensor& a, const TrunkTensor& b) { return a.name < b.name; });
      std::move(part.trunk.begin(), part.trunk.end(), std::back_inserter(model.trunk));
      if (part.bank) model.banks.push_back(std::move(*part.bank));
    }
    padding.bytes = padding.parameters * dtype_bytes(Dtype::kF32);
    drop_the_rest(model, problems);
    problems.throw_if_any();
    if (padding.parameters > 0) model.dropped.push_back(padding);
    if (checkpoint_.has_data()) read_side_files(model);
    model.config = std::move(config_);
    return model;
  }

 private:
  void find_prefix() {
    for (int64_t i = 0; i < checkpoint_.tensors() && prefix_.empty(); ++i) {
      if (checkpoint_.tensor(i).name.starts_with(kPrefix)) prefix_ = kPrefix;
    }
  }

  void find_expert_format() {
    expert_format_ = Format::kBf16;
    for (int64_t i = 0; i < checkpoint_.tensors(); ++i) {
      if (!checkpoint_.tensor(i).name.ends_with(".weight_packed")) continue;
      expert_format_ = Format::kMxfp4;
      check_kimi_k3_quantization(checkpoint_.config(), config_);
      return;
    }
  }

  // Claims the tensor `name`. Nothing, and a problem, when it is missing or not as expected; with
  // `padded`, its one dimension may be larger than expected.
  std::optional<CheckpointTensor> claim(std::string_view name, Dtype dtype, const Shape& shape,
                                        bool padded, Problems& problems) {
    std::optional<CheckpointTensor> found = checkpoint_.find(name);
    if (!found) {
      problems.add(checkpoint_.folder(), ": tensor ", name, ": missing, expected ",
                   dtype_name(dtype), ' ', shape);
      return std::nullopt;
    }
    claimed_[static_cast<size_t>(found->number)] = 1;
    const bool wide = padded && found->shape.rank() == 1 && found->shape[0] >= shape[0];
    if (found->dtype != dtype || (found->shape != shape && !wide)) {
      problems.add(shard_path(*found), ": tensor ", name, ": is ", dtype_name(found->dtype), ' ',
                   found->shape, ", expected ", dtype_name(dtype), ' ', shape,
                   padded ? " or longer" : "");
      return std::nullopt;
    }
    return found;
  }

  const std::string& shard_path(const CheckpointTensor& tensor) const {
    return checkpoint_.shard_path(tensor.source.shard);
  }

  void import_tensor(const std::string& stem, const TensorRow& row, Part& part) {
    const bool padded = row.shape[0] == Width::kKdaHeadsPadded;
    const std::string name = std::string(stem).append(stem_of(row.place)).append(row.name);
    const Shape shape = shape_of(row.shape, config_);
    const auto found = claim(name, row.dtype(), shape, padded, part.problems);
    if (!found) return;
    TrunkTensor tensor;
    tensor.name = name.substr(prefix_.size());
    tensor.family = row.family;
    tensor.dtype = row.dtype();
    tensor.shape = shape;
    tensor.source = found->source;
    tensor.may_quantize = row.kind == TensorKind::kMatrix;
    tensor.format = row.kind == TensorKind::kF32 ? Format::kF32 : Format::kBf16;
    if (padded) {
      if (checkpoint_.has_data()) check_padding(*found, shape[0], part.problems);
      tensor.source.length_bytes = shape[0] * dtype_bytes(row.dtype());
      part.padding_parameters += found->shape[0] - shape[0];
    }
    part.trunk.push_back(std::move(tensor));
  }

  // The entries of an f32 vector from `used` on must be zero: were they not, the vector would mean
  // something else than we think.
  void check_padding(const CheckpointTensor& tensor, int64_t used, Problems& problems) const {
    const File& shard = *checkpoint_.shards()[static_cast<size_t>(tensor.source.shard)];
    std::array<std::byte, 4096> piece{};
    int64_t at = used * dtype_bytes(tensor.dtype);
    while (at < tensor.source.length_bytes) {
      const auto bytes = std::min<int64_t>(std::ssize(piece), tensor.source.length_bytes - at);
      const std::span<std::byte> part = std::span(piece).first(static_cast<size_t>(bytes));
      shard.read_at(tensor.source.offset_bytes + at, part);
      for (size_t i = 0; i < part.size(); ++i) {
        if (part[i] == std::byte{0}) continue;
        const int64_t entry = (at + static_cast<int64_t>(i)) / dtype_bytes(tensor.dtype);
        problems.add(shard.path(), ": tensor ", tensor.name, ": entry ", entry,
                     " is not 0, expected zeros behind the ", used, " heads");
        return;
      }
      at += bytes;
    }
  }

  void import_layer(int64_t number, Part& part) {
    const LayerConfig& layer = config_.layers[static_cast<size_t>(number)];
    const std::string stem = prefix_ + "model.layers." + std::to_string(number) + '.';
    for (const TensorRow& row : kimi_k3_trunk_rows()) {
      if (has_place(config_, layer, row.place)) import_tensor(stem, row, part);
    }
    if (layer.ffn == FfnKind::kMoe) part.bank = import_bank(number, stem, part.problems);
  }

  Bank import_bank(int64_t layer, const std::string& stem, Problems& problems) {
    const std::span<const ExpertRow> rows = kimi_k3_expert_rows(expert_format_);
    std::vector<Shape> shapes;
    for (const ExpertRow& row : rows) shapes.push_back(shape_of(row.shape, config_));

    Bank bank;
    bank.layer = layer;
    bank.source_format = expert_format_;
    bank.source_experts = config_.experts;
    bank.format = expert_format_;
    std::string name = stem + "block_sparse_moe.experts.";
    const size_t stem_bytes = name.size();
    for (int64_t e = 0; e < config_.experts && problems.count < kMostProblems; ++e) {
      Expert expert;
      expert.source_id = static_cast<int32_t>(e);
      name.resize(stem_bytes);
      name.append(std::to_string(e)).append(1, '.');
      const size_t expert_bytes = name.size();
      for (size_t r = 0; r < rows.size(); ++r) {
        name.resize(expert_bytes);
        name += rows[r].name;
        const auto found = claim(name, rows[r].dtype, shapes[r], false, problems);
        if (found) expert.sources[r] = found->source;
      }
      bank.experts.push_back(expert);
    }
    return bank;
  }

  // Counts the tensors that a text model leaves out; any other that nobody claimed is a problem.
  void drop_the_rest(Model& model, Problems& problems) const {
    Dropped vision{.family = Family::kVision};
    Dropped projector{.family = Family::kProjector};
    for (int64_t i = 0; i < checkpoint_.tensors(); ++i) {
      if (claimed_[static_cast<size_t>(i)] != 0) continue;
      const CheckpointTensor tensor = checkpoint_.tensor(i);
      const bool is_vision = tensor.name.starts_with(kVisionPrefix);
      if (!is_vision && !tensor.name.starts_with(kProjectorPrefix)) {
        problems.add(shard_path(tensor), ": tensor ", printable(tensor.name), ": is ",
                     dtype_name(tensor.dtype), ' ', tensor.shape,
                     ", this model has no tensor of that name");
        continue;
      }
      Dropped& part = is_vision ? vision : projector;
      ++part.tensors;
      part.parameters += *tensor.shape.elements();
      part.bytes += tensor.source.length_bytes;
    }
    for (const Dropped& part : {vision, projector}) {
      if (part.tensors > 0) model.dropped.push_back(part);
    }
  }

  void read_side_files(Model& model) const {
    const auto add = [&model](std::string name, std::vector<std::byte> bytes) {
      SideFile file;
      file.name = std::move(name);
      file.bytes = std::move(bytes);
      model.side_files.push_back(std::move(file));
    };
    const auto read = [this, &add](const std::string& name) {
      add(name, read_whole_file(in_checkpoint(name), kLargestSideFile));
    };
    add("config.json", checkpoint_.config().bytes());
    read("tiktoken.model");
    read("tokenizer_config.json");
    if (std::filesystem::exists(in_checkpoint("generation_config.json"))) {
      read("generation_config.json");
    }
  }

  std::string in_checkpoint(const std::string& name) const {
    return (std::filesystem::path(checkpoint_.folder()) / name).string();
  }

  const Checkpoint& checkpoint_;
  std::vector<uint8_t> claimed_;  // bytes, not bits: layers write them in parallel
  ModelConfig config_;
  std::string prefix_;
  Format expert_format_ = Format::kMxfp4;
};

}  // namespace

bool looks_like_kimi_k3(const Checkpoint& checkpoint) {
  for (const char* feature : {"attn_res_block_size", "routed_expert_hidden_size"}) {
    if (text_config(checkpoint.config()).has(feature)) return true;
  }
  for (int64_t i = 0; i < checkpoint.tensors(); ++i) {
    if (checkpoint.tensor(i).name.ends_with("output_attn_res_proj.weight")) return true;
  }
  return false;
}

Model import_kimi_k3(const Checkpoint& checkpoint) {
  return Importer(checkpoint).import();
}

}  // namespace k3
