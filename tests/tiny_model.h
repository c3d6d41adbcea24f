// A Model over one made-up shard, with everything that a plan can hold.
#pragma once

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "passes/model.h"
#include "schema/formats/bf16.h"
#include "schema/layout.h"
#include "schema/little_endian.h"
#include "schema/model_tensors.h"
#include "tests/temp_folder.h"
#include "tests/tiny_pack.h"

namespace k3 {

// Sources in the order of Expert::sources for tiny_config()'s widths.
inline std::array<int64_t, 6> tiny_expert_bytes(const ModelConfig& config, Format format) {
  const int64_t weights = config.expert_width() * config.expert_intermediate_size;
  if (format == Format::kBf16) return {2 * weights, 2 * weights, 2 * weights, 0, 0, 0};
  return {weights / 2, weights / 32, weights / 2, weights / 32, weights / 2, weights / 32};
}

// The model and the bytes its sources point into, not yet in a file.
struct TinySource {
  Model model;
  std::vector<std::byte> shard;

  explicit TinySource(Format expert_format = Format::kMxfp4) {
    model.config = tiny_config();
    model.family = "kimi-k3";
    model.source_prefix = "p.";
    for (const ExpectedTensor& expected : expected_tensors(model.config)) {
      TrunkTensor tensor;
      tensor.name = expected.name;
      tensor.family = expected.family;
      tensor.dtype = expected.name.ends_with("A_log") ? Dtype::kF32 : Dtype::kBf16;
      tensor.format = tensor.dtype == Dtype::kF32 ? Format::kF32 : Format::kBf16;
      tensor.shape = expected.shape;
      // As the importer has it: the head has an option of its own.
      tensor.may_quantize = expected.may_quantize && expected.family != Family::kHead;
      tensor.source = add_floats(*expected.shape.elements(), tensor.dtype);
      model.trunk.push_back(tensor);
    }
    Bank bank;
    bank.layer = 1;
    bank.source_format = bank.format = expert_format;
    bank.source_experts = model.config.experts;
    for (int32_t id = 0; id < model.config.experts; ++id) {
      Expert expert;
      expert.source_id = id;
      const auto sizes = tiny_expert_bytes(model.config, expert_format);
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i] == 0) continue;
        expert.sources[i] = expert_format == Format::kBf16 ? add_floats(sizes[i] / 2, Dtype::kBf16)
                            : i % 2 == 0                   ? add_bytes(sizes[i], 0, 256)
                                                           : add_bytes(sizes[i], 118, 5);
      }
      bank.experts.push_back(expert);
    }
    model.banks.push_back(bank);
    const std::string text = "the tokenizer's file";
    const auto bytes = std::as_bytes(std::span(text));
    model.side_files.push_back({"tiktoken.model", {bytes.begin(), bytes.end()}, {}, {}});
  }

  std::span<std::byte> bytes_of(const Source& source) {
    return std::span(shard).subspan(static_cast<size_t>(source.offset_bytes),
                                    static_cast<size_t>(source.length_bytes));
  }
  TrunkTensor& tensor(const std::string& name) {
    for (TrunkTensor& tensor : model.trunk) {
      if (tensor.name == name) return tensor;
    }
    std::abort();
  }
  // Writes the shard and lets the model read it.
  void open(const TempFolder& folder) {
    model.shards = {std::make_shared<const File>(folder.write("shard", shard))};
  }

 private:
  Source add_bytes(int64_t count, unsigned first, unsigned values) {
    const Source source{0, static_cast<int64_t>(shard.size()), count};
    for (int64_t i = 0; i < count; ++i) {
      shard.push_back(static_cast<std::byte>(first + random_() % values));
    }
    return source;
  }
  Source add_floats(int64_t count, Dtype dtype) {
    const Source source{0, static_cast<int64_t>(shard.size()), count * dtype_bytes(dtype)};
    shard.resize(shard.size() + static_cast<size_t>(source.length_bytes));
    std::byte* at = shard.data() + source.offset_bytes;
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (int64_t i = 0; i < count; ++i, at += dtype_bytes(dtype)) {
      const float value = normal(random_);
      if (dtype == Dtype::kF32) {
        store_little_endian(std::bit_cast<uint32_t>(value), at);
      } else {
        store_little_endian(encode_bf16(value), at);
      }
    }
    return source;
  }

  std::mt19937 random_{11};
};

// A Model for passes that read no values: its shard is an empty file of the right name.
inline Model tiny_model() {
  const TempFolder folder;
  TinySource source;
  source.model.shards = {std::make_shared<const File>(folder.write("shard", std::string()))};
  return std::move(source.model);
}

}  // namespace k3
