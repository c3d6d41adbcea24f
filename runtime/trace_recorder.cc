#include "runtime/trace_recorder.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "kernels/router.h"
#include "schema/error.h"
#include "schema/router_hash.h"

namespace k3 {
namespace {

// Large enough to compress well, small enough that little is lost with a killed run: some thousand
// tokens of a small model, 35 of K3.
constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr size_t kLongestDomain = 255;

TraceHeader header_of(const PackReader& pack, const ModelConfig& config, bool masked) {
  TraceHeader header;
  header.router_xxh3 = router_hash(pack.index().content);
  header.payload_xxh3 = pack.payload_xxh3();
  header.experts = config.experts;
  header.experts_per_token = config.experts_per_token;
  header.next_experts =
      std::min(config.experts_per_token, config.experts - config.experts_per_token);
  header.has_weights = true;
  header.has_norms = true;
  header.masked = masked;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const PackBank* bank = pack.bank(static_cast<int64_t>(layer));
    if (bank == nullptr) continue;
    header.layers.push_back(static_cast<uint32_t>(layer));
    header.expert_bytes = bank->experts.front().extent.length_bytes;
    header.masked = header.masked || std::ssize(hot_experts(*bank)) < bank->source_experts;
  }
  if (header.layers.empty()) {
    throw Error(pack.path(), ": no layer that runs has experts: there is nothing to trace");
  }
  return header;
}

// What one token of one layer takes in a block.
int64_t row_bytes(const TraceHeader& header) {
  constexpr int64_t kChoiceBytes = 2 + 3 * 4;
  constexpr int64_t kNextBytes = 2 + 4;
  return header.experts_per_token * kChoiceBytes + header.next_experts * kNextBytes;
}

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
  from.clear();
}

}  // namespace

TraceRecorder::TraceRecorder(const std::string& path, const PackReader& pack,
                             const ModelConfig& config, bool masked, TraceOrder order)
    : writer_(path, header_of(pack, config, masked)),
      order_(order),
      columns_(order == TraceOrder::kTokenMajor ? writer_.header().layers.size() : 1) {
  const auto ranked =
      static_cast<size_t>(writer_.header().experts_per_token + writer_.header().next_experts);
  ranked_slots_.resize(ranked);
  ranked_weights_.resize(ranked);
}

uint32_t TraceRecorder::add_document(TraceDocument document) {
  document.domain.resize(std::min(document.domain.size(), kLongestDomain));
  documents_.push_back(std::move(document));
  return static_cast<uint32_t>(documents_.size() - 1);
}

void TraceRecorder::announce(std::span<const TraceToken> tokens, TraceToken then) {
  then_ = then;
  places_.insert(places_.end(), tokens.begin(), tokens.end());
}

void TraceRecorder::on_experts(const RoutedTokens& routed) {
  const std::vector<uint32_t>& layers = writer_.header().layers;
  const auto found =
      std::lower_bound(layers.begin(), layers.end(), static_cast<uint32_t>(routed.layer));
  K3_CHECK(found != layers.end() && *found == routed.layer);
  const int64_t layer = found - layers.begin();
  const bool by_layer = order_ == TraceOrder::kLayerMajor;
  if (by_layer && layer != layer_) {
    flush();
    first_token_ = 0;
  }
  layer_ = layer;

  LayerColumns& columns = columns_[by_layer ? 0 : static_cast<size_t>(layer)];
  for (int64_t token = 0; token < routed.tokens; ++token) record(routed, token, columns);

  const bool ends_chunk = by_layer || layer + 1 == std::ssize(layers);
  if (!ends_chunk) return;
  // Now, because a later announcement is of later tokens.
  for (int64_t i = 0; i < routed.tokens; ++i) place_of(first_token_ + block_tokens_ + i);
  block_tokens_ += routed.tokens;
  tokens_ = std::max(tokens_, first_token_ + block_tokens_);
  if (block_tokens_ * std::ssize(columns_) * row_bytes(writer_.header()) >= kBlockBytes) flush();
}

// The next experts come out of the router's own order, run for more choices.
void TraceRecorder::record(const RoutedTokens& routed, int64_t token, LayerColumns& columns) {
  const int64_t k = writer_.header().experts_per_token;
  const auto experts = static_cast<int64_t>(routed.source_ids.size());
  const float* scores = routed.scores + token * experts;
  const auto add = [&](int32_t slot, std::vector<uint16_t>& ids, std::vector<float>& of_ids) {
    const bool chosen = slot >= 0;
    ids.push_back(chosen ? static_cast<uint16_t>(routed.source_ids[static_cast<size_t>(slot)])
                         : kNoExpert);
    of_ids.push_back(chosen ? scores[slot] : 0.0F);
  };
  for (int64_t i = token * k; i < (token + 1) * k; ++i) {
    if (!std::isfinite(routed.norms[i])) {
      throw Error("layer ", routed.layer, ": the norm of an expert's output is ", routed.norms[i],
                  ", expected a finite number to record");
    }
    add(routed.slots[i], columns.ids, columns.scores);
    columns.weights.push_back(routed.weights[i]);
    columns.norms.push_back(routed.norms[i]);
  }
  const RouterRule rule{.experts_per_token = std::ssize(ranked_slots_)};
  exact_route(rule, scores, routed.score_bias, routed.source_ids.data(), experts,
              ranked_slots_.data(), ranked_weights_.data());
  for (size_t i = static_cast<size_t>(k); i < ranked_slots_.size(); ++i) {
    add(ranked_slots_[i], columns.next_ids, columns.next_scores);
  }
}

const TraceToken& TraceRecorder::place_of(int64_t token) {
  const auto index = static_cast<size_t>(token - first_place_);
  K3_CHECK(index <= places_.size());
  if (index == places_.size()) {
    places_.push_back(then_);
    then_.position += 1;
  }
  return places_[index];
}

void TraceRecorder::flush() {
  if (block_tokens_ == 0) return;
  const bool by_layer = order_ == TraceOrder::kLayerMajor;
  TraceBlock block;
  block.first_token = first_token_;
  block.first_layer = by_layer ? layer_ : 0;
  block.layers = std::ssize(columns_);
  std::unordered_map<uint32_t, uint32_t> local_document;
  for (int64_t i = 0; i < block_tokens_; ++i) {
    TraceToken place = place_of(first_token_ + i);
    const auto next = static_cast<uint32_t>(block.documents.size());
    const auto [entry, is_new] = local_document.try_emplace(place.document, next);
    if (is_new) block.documents.push_back(documents_.at(place.document));
    place.document = entry->second;
    block.tokens.push_back(place);
  }
  for (LayerColumns& columns : columns_) {
    append(block.ids, columns.ids);
    append(block.scores, columns.scores);
    append(block.weights, columns.weights);
    append(block.norms, columns.norms);
    append(block.next_ids, columns.next_ids);
    append(block.next_scores, columns.next_scores);
  }
  writer_.write(block);
  first_token_ += block_tokens_;
  block_tokens_ = 0;
  if (by_layer) return;
  places_.erase(places_.begin(), places_.begin() + (first_token_ - first_place_));
  first_place_ = first_token_;
}

void TraceRecorder::finish() {
  flush();
  writer_.finish(tokens_);
}

}  // namespace k3
