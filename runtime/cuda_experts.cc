#include "runtime/cuda_experts.h"

#include <string>

#include "schema/aligned_bytes.h"
#include "schema/compact_scales.h"

namespace k3 {
namespace {

constexpr int64_t kSlotAlignment = 256;

// The banks of the layers that run.
std::vector<const PackBank*> banks_of(const PackReader& pack, const ModelConfig& config) {
  std::vector<const PackBank*> banks;
  for (const PackBank& bank : pack.index().content.banks) {
    if (bank.layer < std::ssize(config.layers)) banks.push_back(&bank);
  }
  return banks;
}

int64_t slot_bytes_of(const ModelConfig& config, const PackBank& bank) {
  return align_up(resident_bands(config, bank).extent_bytes(), kSlotAlignment);
}

std::span<const PackExpert> experts_of(const PackBank& bank, bool with_cold) {
  return with_cold ? std::span<const PackExpert>(bank.experts) : hot_experts(bank);
}

// Reads experts as they lie in memory, one after the other.
class ExpertExtents {
 public:
  ExpertExtents(const PackReader& pack, bool check_hashes)
      : pack_(pack), check_hashes_(check_hashes) {}

  // Good until the next call.
  std::span<const std::byte> read(const ModelConfig& config, const PackBank& bank,
                                  const PackExpert& expert) {
    const ExpertBands place = resident_bands(config, bank);
    const std::string name =
        "layer " + std::to_string(bank.layer) + " expert " + std::to_string(expert.source_id);
    const std::span<std::byte> stored = stored_.room_for(expert.extent.length_bytes);
    pack_.read(expert.extent, name, stored, check_hashes_);
    if (bank.layout != Layout::kExpertBandsCompact) return stored;
    const std::span<std::byte> expanded = expanded_.room_for(place.extent_bytes());
    expand_scales(place, expert.least_exponent, stored, expanded);
    return expanded;
  }

 private:
  const PackReader& pack_;
  bool check_hashes_;
  AlignedBytes stored_;
  AlignedBytes expanded_;
};

}  // namespace

int64_t AllCudaExperts::needed_bytes(const PackReader& pack, const ModelConfig& config,
                                     bool with_cold) {
  int64_t bytes = 0;
  for (const PackBank* bank : banks_of(pack, config)) {
    bytes += std::ssize(experts_of(*bank, with_cold)) *
             (slot_bytes_of(config, *bank) + int64_t{sizeof(ExpertWeights)});
  }
  return bytes;
}

AllCudaExperts::AllCudaExperts(const PackReader& pack, const ModelConfig& config, bool with_cold,
                               bool check_hashes, cudaStream_t stream) {
  const std::vector<const PackBank*> banks = banks_of(pack, config);
  int64_t extent_bytes = 0;
  for (const PackBank* bank : banks) {
    extent_bytes += std::ssize(experts_of(*bank, with_cold)) * slot_bytes_of(config, *bank);
  }
  extents_ = DeviceBytes(extent_bytes);
  ExpertExtents extents(pack, check_hashes);
  std::vector<ExpertWeights> table;
  std::byte* at = extents_.data();
  for (const PackBank* bank : banks) {
    for (const PackExpert& expert : experts_of(*bank, with_cold)) {
      const std::span<const std::byte> extent = extents.read(config, *bank, expert);
      check_cuda(cudaMemcpyAsync(at, extent.data(), extent.size(), cudaMemcpyHostToDevice, stream),
                 "to upload experts");
      check_cuda(cudaStreamSynchronize(stream), "to upload experts");
      table.push_back({.extent = at, .least_exponent = expert.least_exponent});
      at += slot_bytes_of(config, *bank);
    }
  }
  const auto table_bytes = static_cast<int64_t>(table.size() * sizeof(ExpertWeights));
  tables_ = DeviceBytes(table_bytes);
  if (!table.empty()) {
    check_cuda(cudaMemcpyAsync(tables_.data(), table.data(), static_cast<size_t>(table_bytes),
                               cudaMemcpyHostToDevice, stream),
               "to upload experts");
    check_cuda(cudaStreamSynchronize(stream), "to upload experts");
  }
  const auto* first = reinterpret_cast<const ExpertWeights*>(tables_.data());
  for (const PackBank* bank : banks) {
    table_of_layer_[bank->layer] = first;
    first += experts_of(*bank, with_cold).size();
  }
}

const ExpertWeights* AllCudaExperts::table(const PackBank& bank) const {
  return table_of_layer_.at(bank.layer);
}

CudaExpertSlots::CudaExpertSlots(int64_t slots, int64_t extent_bytes)
    : slot_bytes_(align_up(extent_bytes, kSlotAlignment)),
      memory_(slots * slot_bytes_),
      slots_(static_cast<size_t>(slots)),
      passage_(extent_bytes) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].order = order_.insert(order_.end(), i);
  }
}

void CudaExpertSlots::bring(std::span<const ExpertWeights* const> experts, int64_t extent_bytes,
                            cudaStream_t stream, std::vector<ExpertWeights>& table,
                            std::vector<int32_t>& numbers) {
  K3_CHECK(extent_bytes <= slot_bytes_);
  table.assign(experts.size(), {});
  numbers.assign(experts.size(), -1);
  std::unordered_map<const ExpertWeights*, size_t> slot_of_expert;  // of this call
  // First protect what is here, then make room for what is not.
  for (const ExpertWeights* expert : experts) {
    if (expert == nullptr || expert->name < 0) continue;
    const auto found = slot_of_name_.find(expert->name);
    if (found == slot_of_name_.end()) continue;
    order_.splice(order_.end(), order_, slots_[found->second].order);
    if (slot_of_expert.emplace(expert, found->second).second) ++statistics_.hits;
  }
  for (const ExpertWeights* expert : experts) {
    if (expert == nullptr || slot_of_expert.contains(expert)) continue;
    K3_CHECK(slot_of_expert.size() < slots_.size());
    const size_t slot = order_.front();
    order_.splice(order_.end(), order_, slots_[slot].order);
    slot_of_name_.erase(slots_[slot].name);
    slots_[slot].name = expert->name;
    if (expert->name >= 0) slot_of_name_[expert->name] = slot;
    // On one stream with the kernels: a slot is overwritten when nobody reads it any more.
    passage_.copy(expert->extent, extent_bytes,
                  memory_.data() + static_cast<int64_t>(slot) * slot_bytes_, stream);
    ++statistics_.copies;
    slot_of_expert[expert] = slot;
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] == nullptr) continue;
    const auto slot = static_cast<int64_t>(slot_of_expert.at(experts[i]));
    table[i] = {.extent = memory_.data() + slot * slot_bytes_,
                .least_exponent = experts[i]->least_exponent};
    numbers[i] = static_cast<int32_t>(i);
  }
}

}  // namespace k3
