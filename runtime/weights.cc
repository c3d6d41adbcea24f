#include "runtime/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "schema/error.h"
#include "schema/formats/bf16.h"

namespace k3 {
namespace {

bool is_kept(const PlanLayer& plan, int32_t source_id) {
  return std::find(plan.kept.begin(), plan.kept.end(), source_id) != plan.kept.end();
}

}  // namespace

std::set<int32_t> MoeWeights::choosable() const {
  std::set<int32_t> ids;
  for (size_t slot = 0; slot < source_ids.size(); ++slot) {
    const bool is_dropped = !drops.empty() && drops[slot] != 0;
    if (masked[slot] == 0 && !is_dropped) ids.insert(source_ids[slot]);
  }
  return ids;
}

Weights::Weights(const PackReader& pack, const ModelConfig& config, bool check_hashes,
                 Residence residence, const PrunePlan* plan, MissingRule missing, Backend* backend)
    : pack_(pack),
      config_(config),
      check_hashes_(check_hashes),
      residence_(residence),
      plan_(plan),
      missing_(missing),
      device_(backend != nullptr && !backend->works_on_host() ? backend : nullptr) {
  layers.resize(config.layers.size());
  if (residence == Residence::kOnePart) return;
  read_embedding();
  read_output();
  for (size_t layer = 0; layer < layers.size(); ++layer) read_layer(layer);
}

void Weights::hold_nothing() {
  K3_CHECK(residence_ == Residence::kOnePart);
  embedding = head = {};
  final_norm = output_res_norm = output_res_proj = nullptr;
  layers.assign(layers.size(), {});
  storage_.clear();
  small_.clear();
  device_storage_.clear();
}

void Weights::hold_embedding() {
  hold_nothing();
  read_embedding();
}

void Weights::hold_layer(int64_t layer) {
  hold_nothing();
  read_layer(static_cast<size_t>(layer));
}

void Weights::hold_output() {
  hold_nothing();
  read_output();
}

void Weights::read_embedding() {
  embedding = matrix("model.embed_tokens.weight");
}

void Weights::read_output() {
  head = matrix("lm_head.weight");
  final_norm = vector("model.norm.weight");
  if (config().attention_residual_block) {
    output_res_norm = vector("model.output_attn_res_norm.weight");
    output_res_proj = vector("model.output_attn_res_proj.weight");
  }
}

void Weights::read_layer(size_t i) {
  const std::string prefix = "model.layers." + std::to_string(i) + ".";
  LayerWeights& layer = layers[i];
  layer.input_norm = vector(prefix + "input_layernorm.weight");
  layer.post_attention_norm = vector(prefix + "post_attention_layernorm.weight");
  if (config().attention_residual_block) {
    layer.attention_res_norm = vector(prefix + "self_attention_res_norm.weight");
    layer.attention_res_proj = vector(prefix + "self_attention_res_proj.weight");
    layer.mlp_res_norm = vector(prefix + "mlp_res_norm.weight");
    layer.mlp_res_proj = vector(prefix + "mlp_res_proj.weight");
  }
  if (config().layers[i].attention == AttentionKind::kKda) {
    layer.kda = load_kda(prefix + "self_attn.");
  } else {
    layer.mla = load_mla(prefix + "self_attn.");
  }
  if (config().layers[i].ffn == FfnKind::kDense) {
    layer.dense = load_mlp(prefix + "mlp.");
  } else {
    layer.moe = load_moe(prefix + "block_sparse_moe.", static_cast<int64_t>(i));
  }
}

int64_t Weights::resident_bytes() const {
  int64_t bytes = small_.size_bytes();
  for (const AlignedBytes& part : storage_) bytes += part.size_bytes();
  for (const auto& part : device_storage_) bytes += std::ssize(part);
  return bytes;
}

KdaWeights Weights::load_kda(const std::string& prefix) {
  KdaWeights kda;
  kda.q_proj = matrix(prefix + "q_proj.weight");
  kda.k_proj = matrix(prefix + "k_proj.weight");
  kda.v_proj = matrix(prefix + "v_proj.weight");
  kda.q_conv = vector(prefix + "q_conv1d.weight");
  kda.k_conv = vector(prefix + "k_conv1d.weight");
  kda.v_conv = vector(prefix + "v_conv1d.weight");
  kda.f_a_proj = matrix(prefix + "f_a_proj.weight");
  kda.f_b_proj = matrix(prefix + "f_b_proj.weight");
  kda.b_proj = matrix(prefix + "b_proj.weight");
  kda.a_log = vector(prefix + "A_log");
  kda.dt_bias = vector(prefix + "dt_bias");
  if (config().kda_gate_rank.has_value()) {
    kda.g_a_proj = matrix(prefix + "g_a_proj.weight");
    kda.g_b_proj = matrix(prefix + "g_b_proj.weight");
  } else {
    kda.g_proj = matrix(prefix + "g_proj.weight");
  }
  kda.o_norm = vector(prefix + "o_norm.weight");
  kda.o_proj = matrix(prefix + "o_proj.weight");
  return kda;
}

MlaWeights Weights::load_mla(const std::string& prefix) {
  MlaWeights mla;
  if (config().q_lora_rank.has_value()) {
    mla.q_a_proj = matrix(prefix + "q_a_proj.weight");
    mla.q_a_norm = vector(prefix + "q_a_layernorm.weight");
    mla.q_b_proj = matrix(prefix + "q_b_proj.weight");
  } else {
    mla.q_proj = matrix(prefix + "q_proj.weight");
  }
  mla.kv_a_proj = matrix(prefix + "kv_a_proj_with_mqa.weight");
  mla.kv_a_norm = vector(prefix + "kv_a_layernorm.weight");
  mla.kv_b_proj = matrix(prefix + "kv_b_proj.weight");
  if (config().mla_output_gate) mla.g_proj = matrix(prefix + "g_proj.weight");
  mla.o_proj = matrix(prefix + "o_proj.weight");
  return mla;
}

MlpWeights Weights::load_mlp(const std::string& prefix) {
  return {.gate_proj = matrix(prefix + "gate_proj.weight"),
          .up_proj = matrix(prefix + "up_proj.weight"),
          .down_proj = matrix(prefix + "down_proj.weight")};
}

MoeWeights Weights::load_moe(const std::string& prefix, int64_t layer) {
  MoeWeights moe;
  moe.bank = pack_.bank(layer);
  load_router(prefix + "gate.", plan_ == nullptr ? nullptr : plan_->find(layer), moe);
  if (config().latent_size.has_value()) {
    moe.down_proj = matrix(prefix + "routed_expert_down_proj.weight");
    moe.up_proj = matrix(prefix + "routed_expert_up_proj.weight");
  }
  if (config().latent_norm) moe.norm = vector(prefix + "routed_expert_norm.weight");
  if (config().shared_experts > 0) moe.shared = load_mlp(prefix + "shared_experts.");
  return moe;
}

// Which experts the router may choose, and which of those add nothing.
void Weights::list_experts(const PlanLayer* plan, MoeWeights& moe) const {
  const PackBank& bank = *moe.bank;
  const auto hot = std::ssize(hot_experts(bank));
  const auto in_pack = std::ssize(bank.experts);
  if (missing_ == MissingRule::kFetch && in_pack < bank.source_experts) {
    throw Error(pack_.path(), ": layer ", bank.layer, " has ", in_pack, " of ", bank.source_experts,
                " experts, --missing fetch needs all: compile with --cold keep");
  }
  const auto listed = missing_ == MissingRule::kNextBest ? hot : in_pack;
  std::vector<uint8_t> is_listed(static_cast<size_t>(bank.source_experts));
  for (int64_t position = 0; position < listed; ++position) {
    const uint32_t id = bank.experts[static_cast<size_t>(position)].source_id;
    moe.source_ids.push_back(static_cast<int32_t>(id));
    is_listed[id] = 1;
  }
  if (missing_ != MissingRule::kDrop) return;
  for (int32_t id = 0; id < bank.source_experts; ++id) {
    if (is_listed[static_cast<size_t>(id)] == 0) moe.source_ids.push_back(id);
  }
  moe.drops.resize(moe.source_ids.size());
  std::fill(moe.drops.begin() + hot, moe.drops.end(), uint8_t{1});
  for (size_t slot = 0; plan != nullptr && slot < moe.drops.size(); ++slot) {
    if (!is_kept(*plan, moe.source_ids[slot])) moe.drops[slot] = 1;
  }
}

// The pack's router has a row and a bias for every expert of the checkpoint, by source id. A row's
// product does not depend on where the row lies, so bringing rows into the bank's order, and
// leaving out those of experts that are not there, changes no logit.
void Weights::load_router(const std::string& prefix, const PlanLayer* plan, MoeWeights& moe) {
  list_experts(plan, moe);
  const PackTensor* gate = pack_.find(prefix + "weight");
  K3_CHECK(gate != nullptr && gate->shape.rank() == 2);
  const AlignedBytes all_rows = read(*gate);
  const MatrixView all = view_matrix(gate->format, gate->shape[0], gate->shape[1], all_rows.data());
  const AlignedBytes biases_of_all = read_floats(prefix + "e_score_correction_bias");
  const auto* all_biases = reinterpret_cast<const float*>(biases_of_all.data());

  const auto experts = std::ssize(moe.source_ids);
  AlignedBytes rows(experts * all.row_stride_bytes);
  AlignedBytes biases(experts * int64_t{sizeof(float)});
  AlignedBytes ids(experts * int64_t{sizeof(int32_t)});
  for (int64_t slot = 0; slot < experts; ++slot) {
    const int32_t id = moe.source_ids[static_cast<size_t>(slot)];
    std::memcpy(rows.data() + slot * all.row_stride_bytes, all.codes + id * all.row_stride_bytes,
                static_cast<size_t>(all.row_stride_bytes));
    const bool masked =
        missing_ == MissingRule::kNextBest && plan != nullptr && !is_kept(*plan, id);
    const float bias = masked ? -INFINITY : all_biases[id];
    moe.masked.push_back(bias == -INFINITY ? 1 : 0);
    std::memcpy(biases.data() + slot * int64_t{sizeof(float)}, &bias, sizeof(float));
    std::memcpy(ids.data() + slot * int64_t{sizeof(int32_t)}, &id, sizeof(int32_t));
  }
  moe.gate = view_matrix(all.format, experts, all.cols, keep(std::move(rows)));
  moe.score_bias = reinterpret_cast<const float*>(keep(std::move(biases)));
  moe.router_ids = device_ == nullptr ? moe.source_ids.data()
                                      : reinterpret_cast<const int32_t*>(keep(std::move(ids)));
}

// The reader has checked that the tensor exists and that its extent has the length of its format,
// layout and shape.
MatrixView Weights::matrix(const std::string& name) {
  const PackTensor* tensor = pack_.find(name);
  K3_CHECK(tensor != nullptr && tensor->shape.rank() == 2);
  return view_matrix(tensor->format, tensor->shape[0], tensor->shape[1], keep(read(*tensor)));
}

const float* Weights::vector(const std::string& name) {
  return reinterpret_cast<const float*>(keep(read_floats(name)));
}

AlignedBytes Weights::read(const PackTensor& tensor) {
  AlignedBytes extent(tensor.extent.length_bytes);
  pack_.read(tensor.extent, tensor.name, extent.span(), check_hashes_);
  bytes_read_ += tensor.extent.length_bytes;
  return extent;
}

AlignedBytes Weights::read_floats(const std::string& name) {
  const PackTensor* tensor = pack_.find(name);
  K3_CHECK(tensor != nullptr);
  AlignedBytes extent = read(*tensor);
  if (tensor->format != Format::kBf16) return extent;
  const int64_t count = tensor->extent.length_bytes / 2;
  AlignedBytes wide(count * 4);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t code = 0;
    std::memcpy(&code, extent.data() + 2 * i, 2);
    const float value = decode_bf16(code);
    std::memcpy(wide.data() + 4 * i, &value, 4);
  }
  return wide;
}

const std::byte* Weights::keep(AlignedBytes extent) {
  if (device_ == nullptr) {
    if (extent.size_bytes() < AlignedBytes::kHugePage) return small_.keep(extent.span());
    return storage_.emplace_back(std::move(extent)).data();
  }
  auto& there = device_storage_.emplace_back(make_vector<std::byte>(*device_, extent.size_bytes()));
  device_->upload(extent.data(), extent.size_bytes(), there.data());
  return there.data();
}

}  // namespace k3
