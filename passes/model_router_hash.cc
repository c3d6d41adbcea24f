#include "passes/model_router_hash.h"

#include <algorithm>
#include <string>
#include <vector>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/router_hash.h"

namespace k3 {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

uint64_t hash_of(const Model& model, const std::string& name) {
  const auto tensor = std::find_if(model.trunk.begin(), model.trunk.end(),
                                   [&](const TrunkTensor& each) { return each.name == name; });
  K3_CHECK(tensor != model.trunk.end());
  const Source& source = tensor->source;
  const File& shard = *model.shards[static_cast<size_t>(source.shard)];
  std::vector<std::byte> piece;
  Xxh3Stream hash;
  for (int64_t done = 0; done < source.length_bytes; done += std::ssize(piece)) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, source.length_bytes - done)));
    read_hashed(shard, source.offset_bytes + done, piece, hash);
  }
  return hash.digest();
}

}  // namespace

uint64_t model_router_hash(const Model& model) {
  std::vector<RouterTensors> routers;
  for (const Bank& bank : model.banks) {
    const std::string gate =
        "model.layers." + std::to_string(bank.layer) + ".block_sparse_moe.gate.";
    routers.push_back({bank.layer, hash_of(model, gate + "weight"),
                       hash_of(model, gate + "e_score_correction_bias")});
  }
  return router_hash(model.config, routers);
}

}  // namespace k3
