#include "compiler/pack_encode.h"

#include "schema/error.h"
#include "schema/pack_generated.h"

namespace k3 {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

// The longest content that leaves room for provenance and receipts below 2^31.
constexpr size_t kLargestContent = size_t{1} << 30;

pack::Extent to_struct(const Extent& extent) {
  return {static_cast<uint64_t>(extent.offset_bytes), static_cast<uint64_t>(extent.length_bytes),
          extent.xxh3};
}

Offset<pack::Rotation> add_rotation(FlatBufferBuilder& builder, const RotatedBasis& basis) {
  return pack::CreateRotation(builder, basis.seed, basis.stream_block, basis.query_block,
                              basis.kda_block, basis.mla_block, basis.dense_block,
                              basis.shared_block, basis.latent_block);
}

// Empty optionals stay absent: that is their meaning on disk too.
Offset<pack::Config> add_config(FlatBufferBuilder& builder, const ModelConfig& config) {
  std::vector<pack::LayerKinds> kinds;
  kinds.reserve(config.layers.size());
  for (const LayerConfig& layer : config.layers) {
    kinds.emplace_back(static_cast<uint8_t>(layer.attention), static_cast<uint8_t>(layer.ffn));
  }
  const auto layers = builder.CreateVectorOfStructs(kinds);
  Offset<pack::Rotation> rotation;
  if (config.rotation) rotation = add_rotation(builder, *config.rotation);

  pack::ConfigBuilder to(builder);
  to.add_hidden_size(config.hidden_size);
  to.add_vocab_size(config.vocab_size);
  to.add_layers(layers);
  to.add_rms_norm_epsilon(config.rms_norm_epsilon);
  to.add_low_rank_norm_epsilon(config.low_rank_norm_epsilon);
  to.add_qk_norm_epsilon(config.qk_norm_epsilon);
  to.add_kda_heads(config.kda_heads);
  to.add_kda_head_dim(config.kda_head_dim);
  to.add_conv_kernel(config.conv_kernel);
  if (config.decay_lower_bound) to.add_decay_lower_bound(*config.decay_lower_bound);
  if (config.kda_gate_rank) to.add_kda_gate_rank(*config.kda_gate_rank);
  to.add_mla_heads(config.mla_heads);
  if (config.q_lora_rank) to.add_q_lora_rank(*config.q_lora_rank);
  to.add_kv_lora_rank(config.kv_lora_rank);
  to.add_qk_content_dim(config.qk_content_dim);
  to.add_qk_extra_dim(config.qk_extra_dim);
  to.add_v_head_dim(config.v_head_dim);
  to.add_mla_output_gate(config.mla_output_gate);
  to.add_dense_intermediate_size(config.dense_intermediate_size);
  to.add_activation(static_cast<uint8_t>(config.activation));
  to.add_situ_beta(config.situ_beta);
  to.add_situ_linear_beta(config.situ_linear_beta);
  to.add_experts(config.experts);
  to.add_experts_per_token(config.experts_per_token);
  to.add_expert_intermediate_size(config.expert_intermediate_size);
  to.add_shared_experts(config.shared_experts);
  if (config.latent_size) to.add_latent_size(*config.latent_size);
  to.add_latent_norm(config.latent_norm);
  to.add_renormalize(config.renormalize);
  to.add_routed_scaling_factor(config.routed_scaling_factor);
  if (config.attention_residual_block) {
    to.add_attention_residual_block(*config.attention_residual_block);
  }
  to.add_bos_token_id(config.bos_token_id);
  to.add_eos_token_id(config.eos_token_id);
  to.add_pad_token_id(config.pad_token_id);
  if (config.rotation) to.add_rotation(rotation);
  return to.Finish();
}

Offset<pack::Tensor> add_tensor(FlatBufferBuilder& builder, const PackTensor& tensor) {
  const auto name = builder.CreateString(tensor.name);
  const auto dims = tensor.shape.dims();
  const auto shape = builder.CreateVector(dims.data(), dims.size());
  const pack::Extent extent = to_struct(tensor.extent);
  return pack::CreateTensor(builder, name, static_cast<uint8_t>(tensor.family),
                            static_cast<uint8_t>(tensor.format),
                            static_cast<uint8_t>(tensor.layout), shape, &extent);
}

Offset<pack::Bank> add_bank(FlatBufferBuilder& builder, const PackBank& bank) {
  std::vector<pack::Expert> kept;
  kept.reserve(bank.experts.size());
  for (const PackExpert& expert : bank.experts) {
    kept.emplace_back(to_struct(expert.extent), expert.source_id, expert.least_exponent[0],
                      expert.least_exponent[1], expert.least_exponent[2],
                      static_cast<uint8_t>(expert.cold ? 1 : 0));
  }
  const auto experts = builder.CreateVectorOfStructs(kept);
  return pack::CreateBank(builder, bank.layer, static_cast<uint8_t>(bank.format),
                          static_cast<uint8_t>(bank.layout), bank.source_experts, bank.fixed_point,
                          experts);
}

Offset<pack::Provenance> add_provenance(FlatBufferBuilder& builder,
                                        const PackProvenance& provenance) {
  const auto compiler = builder.CreateString(provenance.compiler);
  std::vector<Offset<pack::Option>> options;
  for (const auto& [name, value] : provenance.options) {
    const auto name_at = builder.CreateString(name);
    options.push_back(pack::CreateOption(builder, name_at, builder.CreateString(value)));
  }
  std::vector<Offset<pack::PassRecord>> passes;
  for (const PassRecord& pass : provenance.passes) {
    const auto pass_name = builder.CreateString(pass.name);
    std::vector<Offset<pack::Number>> numbers;
    for (const auto& [name, value] : pass.numbers) {
      numbers.push_back(pack::CreateNumber(builder, builder.CreateString(name), value));
    }
    passes.push_back(pack::CreatePassRecord(builder, pass_name, builder.CreateVector(numbers)));
  }
  std::vector<Offset<pack::Report>> reports;
  for (const PackReport& report : provenance.reports) {
    const pack::Extent extent = to_struct(report.extent);
    reports.push_back(pack::CreateReport(builder, builder.CreateString(report.name),
                                         static_cast<uint64_t>(report.raw_bytes), &extent));
  }
  const auto options_at = builder.CreateVector(options);
  const auto passes_at = builder.CreateVector(passes);
  return pack::CreateProvenance(builder, compiler, options_at, passes_at,
                                builder.CreateVector(reports));
}

std::vector<std::byte> finished_bytes(const FlatBufferBuilder& builder) {
  const auto bytes = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<std::byte> encode_content(const PackContent& content) {
  FlatBufferBuilder builder;
  builder.ForceDefaults(true);
  const auto config = add_config(builder, content.config);
  std::vector<Offset<pack::Tensor>> tensors;
  tensors.reserve(content.tensors.size());
  for (const PackTensor& tensor : content.tensors) tensors.push_back(add_tensor(builder, tensor));
  std::vector<Offset<pack::Bank>> banks;
  banks.reserve(content.banks.size());
  for (const PackBank& bank : content.banks) banks.push_back(add_bank(builder, bank));
  std::vector<Offset<pack::SideFile>> side_files;
  for (const PackSideFile& file : content.side_files) {
    const pack::Extent extent = to_struct(file.extent);
    side_files.push_back(pack::CreateSideFile(builder, builder.CreateString(file.name),
                                              static_cast<uint64_t>(file.raw_bytes), &extent));
  }
  const auto tensors_at = builder.CreateVector(tensors);
  const auto banks_at = builder.CreateVector(banks);
  builder.Finish(
      pack::CreateContent(builder, config, tensors_at, banks_at, builder.CreateVector(side_files)));
  return finished_bytes(builder);
}

std::vector<std::byte> encode_index(std::span<const std::byte> content,
                                    const PackProvenance& provenance,
                                    const std::vector<PackReceipt>& receipts,
                                    const std::vector<Extent>& retired) {
  if (content.size() > kLargestContent) {
    throw Error("the index has ", content.size(), " bytes of content, at most ", kLargestContent,
                " fit a pack");
  }
  FlatBufferBuilder builder;
  builder.ForceDefaults(true);
  // The content is a FlatBuffer itself and holds 8-byte numbers: it must start on 8 bytes.
  builder.ForceVectorAlignment(content.size(), 1, 8);
  const auto content_at =
      builder.CreateVector(reinterpret_cast<const uint8_t*>(content.data()), content.size());
  const auto provenance_at = add_provenance(builder, provenance);
  std::vector<Offset<pack::Receipt>> receipts_at;
  for (const PackReceipt& receipt : receipts) {
    const auto kind = builder.CreateString(receipt.kind);
    receipts_at.push_back(pack::CreateReceipt(builder, kind, receipt.payload_xxh3,
                                              builder.CreateString(receipt.text)));
  }
  std::vector<pack::Extent> retired_structs;
  for (const Extent& extent : retired) retired_structs.push_back(to_struct(extent));
  const auto receipts_vector = builder.CreateVector(receipts_at);
  const auto retired_at = builder.CreateVectorOfStructs(retired_structs);
  builder.Finish(
      pack::CreateIndex(builder, content_at, provenance_at, receipts_vector, retired_at));
  return finished_bytes(builder);
}

}  // namespace k3
