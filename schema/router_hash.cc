#include "schema/router_hash.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/little_endian.h"

namespace k3 {

uint64_t router_hash(const ModelConfig& config, std::span<const RouterTensors> routers) {
  std::vector<std::byte> bytes;
  const auto add = [&](uint64_t value) {
    bytes.resize(bytes.size() + 8);
    store_little_endian(value, bytes.data() + bytes.size() - 8);
  };
  add(static_cast<uint64_t>(config.experts));
  add(static_cast<uint64_t>(config.experts_per_token));
  for (const RouterTensors& router : routers) {
    add(static_cast<uint64_t>(router.layer));
    add(router.gate_xxh3);
    add(router.bias_xxh3);
  }
  return xxh3(bytes);
}

uint64_t router_hash(const PackContent& content) {
  std::unordered_map<std::string_view, uint64_t> hash_of;
  for (const PackTensor& tensor : content.tensors) {
    if (tensor.family == Family::kRouter) hash_of.emplace(tensor.name, tensor.extent.xxh3);
  }
  const auto find = [&](const std::string& name) {
    const auto found = hash_of.find(name);
    K3_CHECK(found != hash_of.end());
    return found->second;
  };
  std::vector<RouterTensors> routers;
  for (const PackBank& bank : content.banks) {
    const std::string gate =
        "model.layers." + std::to_string(bank.layer) + ".block_sparse_moe.gate.";
    routers.push_back({bank.layer, find(gate + "weight"), find(gate + "e_score_correction_bias")});
  }
  return router_hash(content.config, routers);
}

}  // namespace k3
