// The smallest sound pack with one of everything, built by hand, for tests that break it.
#pragma once

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

#include "compiler/pack_encode.h"
#include "schema/formats/int8.h"
#include "schema/formats/ternary.h"
#include "schema/hash.h"
#include "schema/layout.h"
#include "schema/little_endian.h"
#include "schema/model_tensors.h"
#include "schema/mxfp4_scales.h"
#include "schema/pack_check.h"
#include "schema/pack_frame.h"
#include "schema/pack_index.h"
#include "schema/zstd.h"

namespace k3 {

inline ModelConfig tiny_config() {
  ModelConfig config;
  config.hidden_size = 32;
  config.vocab_size = 40;
  config.layers = {{AttentionKind::kKda, FfnKind::kDense}, {AttentionKind::kMla, FfnKind::kMoe}};
  config.rms_norm_epsilon = 1e-5;
  config.low_rank_norm_epsilon = 1e-6;
  config.qk_norm_epsilon = 1e-6;
  config.kda_heads = 2;
  config.kda_head_dim = 8;
  config.conv_kernel = 4;
  config.decay_lower_bound = -5;
  config.mla_heads = 2;
  config.q_lora_rank = 8;
  config.kv_lora_rank = 16;
  config.qk_content_dim = 8;
  config.qk_extra_dim = 4;
  config.v_head_dim = 8;
  config.mla_output_gate = true;
  config.dense_intermediate_size = 48;
  config.activation = Activation::kSitu;
  config.situ_beta = 4;
  config.situ_linear_beta = 25;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_intermediate_size = 288;  // a full band and a narrow one
  config.shared_experts = 1;
  config.latent_size = 64;
  config.latent_norm = true;
  config.renormalize = true;
  config.routed_scaling_factor = 1;
  config.attention_residual_block = 2;
  config.bos_token_id = 1;
  config.eos_token_id = 2;
  config.pad_token_id = 39;
  return config;
}

struct TinyPack {
  PackIndex index;
  std::vector<std::byte> data;  // the file up to the index: room for the frame, then extents

  // `head` is int8, ternary or ternary2; A_log is f32, all else bf16.
  explicit TinyPack(Format head = Format::kInt8) : data(static_cast<size_t>(kExtentAlignment)) {
    index.content.config = tiny_config();
    for (const ExpectedTensor& tensor : expected_tensors(index.content.config)) {
      add_tensor(tensor, head);
    }
    add_bank();
    const std::string text = "a side file, a side file, a side file";
    index.content.side_files.push_back({"tiktoken.model", static_cast<int64_t>(text.size()),
                                        place(compress_zstd(std::as_bytes(std::span(text))))});
    index.provenance.compiler = "a test";
    index.provenance.options = {{"trunk", "bf16"}};
    index.provenance.passes = {{"census", {{"tensors", 3.0}}}};
    const auto hash_bytes = static_cast<int64_t>(
        8 * (index.content.tensors.size() + index.content.banks[0].experts.size()));
    index.provenance.reports.push_back(
        {"source_hashes", hash_bytes, place(random_bytes(hash_bytes))});
    const std::string lines(1000, 'd');
    index.provenance.reports.push_back({"decisions", static_cast<int64_t>(lines.size()),
                                        place(compress_zstd(std::as_bytes(std::span(lines))))});
  }

  PackTensor& tensor(const std::string& name) {
    return *std::find_if(index.content.tensors.begin(), index.content.tensors.end(),
                         [&](const PackTensor& tensor) { return tensor.name == name; });
  }
  // The bytes of an extent, to damage them; rehash() makes the damage look intended.
  std::span<std::byte> bytes_of(const Extent& extent) {
    return std::span(data).subspan(static_cast<size_t>(extent.offset_bytes),
                                   static_cast<size_t>(extent.length_bytes));
  }
  void rehash(Extent& extent) { extent.xxh3 = xxh3(bytes_of(extent)); }

  // The whole file, with frame and hashes of whatever `index` now says.
  std::vector<std::byte> image() const {
    const std::vector<std::byte> encoded = encode_index(
        encode_content(index.content), index.provenance, index.receipts, index.retired);
    std::vector<std::byte> file = data;
    file.resize(static_cast<size_t>(align_up(static_cast<int64_t>(file.size()), kExtentAlignment)));
    PackFrame frame;
    frame.index = {static_cast<int64_t>(file.size()), static_cast<int64_t>(encoded.size()),
                   xxh3(encoded)};
    frame.file_bytes = frame.index.end_bytes();
    frame.features = demanded_features(index.content.config);
    file.insert(file.end(), encoded.begin(), encoded.end());
    const auto frame_bytes = encode_frame(frame);
    std::copy(frame_bytes.begin(), frame_bytes.end(), file.begin());
    return file;
  }

 private:
  std::vector<std::byte> random_bytes(int64_t size) {
    std::vector<std::byte> bytes(static_cast<size_t>(size));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_() & 255u);
    return bytes;
  }

  Extent place(const std::vector<std::byte>& bytes) {
    data.resize(static_cast<size_t>(align_up(static_cast<int64_t>(data.size()), kExtentAlignment)));
    const Extent extent{static_cast<int64_t>(data.size()), static_cast<int64_t>(bytes.size()),
                        xxh3(bytes)};
    data.insert(data.end(), bytes.begin(), bytes.end());
    return extent;
  }

  void add_tensor(const ExpectedTensor& expected, Format head) {
    PackTensor tensor{expected.name,     expected.family, Format::kBf16,
                      Layout::kRowMajor, expected.shape,  {}};
    if (expected.family == Family::kHead) {
      tensor.format = head;
      tensor.layout = Layout::kBlocks160;
      const Blocks160 blocks{head, expected.shape[0], expected.shape[1]};
      tensor.extent = place(head == Format::kInt8 ? int8_bytes(blocks) : ternary_bytes(blocks));
    } else {
      if (expected.name.ends_with("A_log")) tensor.format = Format::kF32;
      tensor.extent =
          place(random_bytes(packed_row_bytes(tensor.format, *expected.shape.elements())));
    }
    index.content.tensors.push_back(tensor);
  }

  std::vector<std::byte> int8_bytes(const Blocks160& place160) {
    std::vector<std::byte> bytes(static_cast<size_t>(place160.extent_bytes()));
    std::vector<float> weights(static_cast<size_t>(place160.cols));
    for (int64_t row = 0; row < place160.rows; ++row) {
      for (float& weight : weights) weight = static_cast<float>(random_() % 2001) - 1000.0f;
      const float scale = encode_int8_row(
          weights,
          {reinterpret_cast<int8_t*>(bytes.data() + place160.code_offset(row, 0)),
           static_cast<size_t>(place160.row_stride_bytes())},
          {reinterpret_cast<uint8_t*>(bytes.data() + place160.multiplier_offset(row, 0)),
           static_cast<size_t>(place160.blocks_per_row())});
      store_little_endian(std::bit_cast<uint32_t>(scale),
                          bytes.data() + place160.row_scale_offset(row));
    }
    return bytes;
  }

  std::vector<std::byte> ternary_bytes(const Blocks160& place160) {
    std::vector<std::byte> bytes(static_cast<size_t>(place160.extent_bytes()));
    std::vector<int8_t> trits(static_cast<size_t>(place160.blocks_per_row() * kBlockInputs));
    const auto stride = static_cast<size_t>(place160.row_stride_bytes());
    for (int64_t row = 0; row < place160.rows; ++row) {
      for (int64_t plane = 0; plane < place160.planes(); ++plane) {
        for (size_t i = 0; i < static_cast<size_t>(place160.cols); ++i) {
          trits[i] = static_cast<int8_t>(static_cast<int>(random_() % 3) - 1);
        }
        pack_trits(trits,
                   {reinterpret_cast<uint8_t*>(bytes.data() + place160.code_offset(row, 0, plane)),
                    stride});
      }
      bytes[static_cast<size_t>(place160.multiplier_offset(row, 0))] = std::byte{200};
      store_little_endian(std::bit_cast<uint32_t>(0.01F),
                          bytes.data() + place160.row_scale_offset(row));
    }
    return bytes;
  }

  void add_bank() {
    const ModelConfig& config = index.content.config;
    const ExpertBands bands{Format::kMxfp4, config.expert_width(), config.expert_intermediate_size};
    PackBank bank;
    bank.layer = 1;
    bank.source_experts = config.experts;
    bank.fixed_point = 40;
    for (const uint32_t source_id : {2u, 0u, 3u}) {
      std::vector<std::byte> bytes = random_bytes(bands.extent_bytes());
      auto* const start = reinterpret_cast<uint8_t*>(bytes.data());
      PackExpert expert;
      expert.source_id = source_id;
      for (size_t matrix = 0; matrix < 3; ++matrix) {
        ScaleRange range;
        for (int64_t band = 0; band < bands.bands(); ++band) {
          const auto part = bands.part(band, static_cast<ExpertMatrix>(matrix));
          const int64_t groups = bands.scales_per_row(part.cols);
          for (int64_t i = 0; i < part.rows * groups; ++i) {
            start[part.scales_offset + i] = static_cast<uint8_t>(118 + random_() % 5);
          }
          scan_scales(start + part.codes_offset, start + part.scales_offset, part.rows, groups,
                      range);
        }
        expert.least_exponent[matrix] = range.least;
      }
      expert.extent = place(bytes);
      bank.experts.push_back(expert);
    }
    index.content.banks.push_back(bank);
  }

  std::mt19937 random_{7};
};

}  // namespace k3
