// The checkpoint must hold exactly the tensors of the family's table, left-out parts aside: one
// that is missing would be uninitialised, one that is surplus would be a feature we do not run. So
// each expected name claims its tensor and what nobody claimed is an error; "nothing found, all
// fine" cannot happen.
//
// K3 stores A_log wider than there are heads (128 for 96), filled up with zeros. The Model's tensor
// is the first `heads` entries; the zeros are read, checked and counted as dropped bytes, so that
// every byte of the checkpoint is still accounted for.
#include "compiler/import_tensors.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {
namespace {

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
  Importer(const Checkpoint& checkpoint, const TensorRules& rules, const ModelConfig& config)
      : checkpoint_(checkpoint),
        rules_(rules),
        config_(config),
        claimed_(static_cast<size_t>(checkpoint.tensors()), 0) {}

  Model import() {
    std::vector<Part> parts(config_.layers.size() + 1);
    tbb::parallel_for(size_t{0}, config_.layers.size(), [&](size_t layer) {
      import_layer(static_cast<int64_t>(layer), parts[layer]);
    });
    for (const TensorRow& row : rules_.trunk_rows) {
      if (row.place == Place::kModel) import_tensor(rules_.prefix, row, parts.back());
    }

    Model model;
    model.config = config_;
    model.family = rules_.family;
    model.source_prefix = rules_.prefix;
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
    return model;
  }

 private:
  // In what else than the expected shape a tensor may come.
  enum class Leeway : uint8_t {
    kNone,
    kLonger,  // a vector may have more entries
    kOnes,    // dimensions of one may be there or not
  };

  Leeway leeway_of(const TensorRow& row) const {
    const auto has = [&row](Width width) {
      return std::find(row.shape.begin(), row.shape.end(), width) != row.shape.end();
    };
    if (has(Width::kKdaHeadsPadded)) return Leeway::kLonger;
    const bool ones = has(Width::kOne) || has(Width::kStoredOne);
    return rules_.ones_are_free && ones ? Leeway::kOnes : Leeway::kNone;
  }

  static bool fits(const Shape& found, const Shape& expected, Leeway leeway) {
    if (found == expected) return true;
    if (leeway == Leeway::kLonger) return found.rank() == 1 && found[0] >= expected[0];
    if (leeway == Leeway::kOnes) return without_ones(found) == without_ones(expected);
    return false;
  }

  static Shape without_ones(const Shape& shape) {
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims.erase(std::remove(dims.begin(), dims.end(), 1), dims.end());
    return Shape(dims);
  }

  // Claims the tensor `name`. Nothing, and a problem, when it is missing or not as expected.
  std::optional<CheckpointTensor> claim(std::string_view name, Dtype dtype, const Shape& shape,
                                        Leeway leeway, Problems& problems) {
    std::optional<CheckpointTensor> found = checkpoint_.find(name);
    if (!found) {
      problems.add(checkpoint_.folder(), ": tensor ", name, ": missing, expected ",
                   dtype_name(dtype), ' ', shape);
      return std::nullopt;
    }
    claimed_[static_cast<size_t>(found->number)] = 1;
    if (found->dtype != dtype || !fits(found->shape, shape, leeway)) {
      problems.add(shard_path(*found), ": tensor ", name, ": is ", dtype_name(found->dtype), ' ',
                   found->shape, ", expected ", dtype_name(dtype), ' ', shape,
                   leeway == Leeway::kLonger ? " or longer" : "");
      return std::nullopt;
    }
    return found;
  }

  const std::string& shard_path(const CheckpointTensor& tensor) const {
    return checkpoint_.shard_path(tensor.source.shard);
  }

  void import_tensor(const std::string& stem, const TensorRow& row, Part& part) {
    const Leeway leeway = leeway_of(row);
    const std::string name = stem + std::string(row.name);
    const auto found =
        claim(name, row.dtype, stored_shape(row.shape, config_), leeway, part.problems);
    if (!found) return;
    const Shape shape = model_shape(row.shape, config_);
    TrunkTensor tensor;
    tensor.name = name.substr(rules_.prefix.size());
    tensor.family = row.family;
    tensor.dtype = row.dtype;
    tensor.shape = shape;
    tensor.source = found->source;
    tensor.may_quantize = row.plan == Plan::kMayQuantize;
    tensor.format = row.dtype == Dtype::kF32 ? Format::kF32 : Format::kBf16;
    if (leeway == Leeway::kLonger) {
      if (checkpoint_.has_data()) check_padding(*found, shape[0], part.problems);
      tensor.source.length_bytes = shape[0] * dtype_bytes(row.dtype);
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
    const std::string stem = rules_.prefix + "model.layers." + std::to_string(number) + '.';
    for (const TensorRow& row : rules_.trunk_rows) {
      if (has_place(config_, layer, row.place)) import_tensor(stem, row, part);
    }
    if (layer.ffn == FfnKind::kMoe) part.bank = import_bank(number, stem, part.problems);
  }

  Bank import_bank(int64_t layer, const std::string& stem, Problems& problems) {
    const std::span<const ExpertRow> rows = expert_rows(rules_.expert_format);
    std::vector<Shape> shapes;
    for (const ExpertRow& row : rows) shapes.push_back(stored_shape(row.shape, config_));

    Bank bank;
    bank.layer = layer;
    bank.source_format = rules_.expert_format;
    bank.source_experts = config_.experts;
    bank.format = rules_.expert_format;
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
        const auto found = claim(name, rows[r].dtype, shapes[r], Leeway::kNone, problems);
        if (found) expert.sources[r] = found->source;
      }
      bank.experts.push_back(expert);
    }
    return bank;
  }

  // Counts the tensors of left-out parts; any other that nobody claimed is a problem.
  void drop_the_rest(Model& model, Problems& problems) const {
    std::vector<Dropped> dropped;
    for (const LeftOutPart& part : rules_.left_out) dropped.push_back({.family = part.family});
    for (int64_t i = 0; i < checkpoint_.tensors(); ++i) {
      if (claimed_[static_cast<size_t>(i)] != 0) continue;
      const CheckpointTensor tensor = checkpoint_.tensor(i);
      const auto part =
          std::find_if(rules_.left_out.begin(), rules_.left_out.end(),
                       [&](const LeftOutPart& row) { return tensor.name.starts_with(row.prefix); });
      if (part == rules_.left_out.end()) {
        problems.add(shard_path(tensor), ": tensor ", printable(tensor.name), ": is ",
                     dtype_name(tensor.dtype), ' ', tensor.shape,
                     ", this model has no tensor of that name");
        continue;
      }
      Dropped& counts = dropped[static_cast<size_t>(part - rules_.left_out.begin())];
      ++counts.tensors;
      counts.parameters += *tensor.shape.elements();
      counts.bytes += tensor.source.length_bytes;
    }
    for (const Dropped& counts : dropped) {
      if (counts.tensors > 0) model.dropped.push_back(counts);
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
  const TensorRules& rules_;
  const ModelConfig& config_;
  std::vector<uint8_t> claimed_;  // bytes, not bits: layers write them in parallel
};

}  // namespace

Model import_tensors(const Checkpoint& checkpoint, const TensorRules& rules,
                     const ModelConfig& config) {
  return Importer(checkpoint, rules, config).import();
}

}  // namespace k3
