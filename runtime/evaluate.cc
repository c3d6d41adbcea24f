#include "runtime/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "runtime/divergence.h"
#include "runtime/observers.h"
#include "runtime/sampler.h"
#include "schema/error.h"

namespace k3 {
namespace {

// What one position contributed.
struct Position {
  size_t document = 0;
  double nll = 0;
  double other_nll = 0;
  double kl = 0;
  bool same_top1 = false;
};

// The chosen experts of one window and their weights, [layer][token * k].
class RoutingRecorder final : public RunObserver {
 public:
  explicit RoutingRecorder(int64_t k) : k_(k) {}
  bool wants_logits() const override { return false; }
  void on_layer(int64_t, int64_t, const float*) override {}
  void on_logits(int64_t, const float*) override {}
  void on_routing(int64_t layer, int64_t tokens, const int32_t* source_ids,
                  const float* weights) override {
    const auto layers = std::max(chosen_.size(), static_cast<size_t>(layer) + 1);
    chosen_.resize(layers);
    weights_.resize(layers);
    std::vector<int32_t>& layer_ids = chosen_[static_cast<size_t>(layer)];
    std::vector<float>& layer_weights = weights_[static_cast<size_t>(layer)];
    layer_ids.insert(layer_ids.end(), source_ids, source_ids + tokens * k_);
    layer_weights.insert(layer_weights.end(), weights, weights + tokens * k_);
  }
  void clear() {
    chosen_.clear();
    weights_.clear();
  }
  const std::vector<std::vector<int32_t>>& chosen() const { return chosen_; }
  const std::vector<std::vector<float>>& weights() const { return weights_; }

 private:
  int64_t k_;
  std::vector<std::vector<int32_t>> chosen_;
  std::vector<std::vector<float>> weights_;
};

// What of the other pack's choices this pack cannot follow.
class MissingExperts {
 public:
  explicit MissingExperts(const Weights& weights) {
    for (const LayerWeights& layer : weights.layers) {
      choosable_.push_back(layer.moe.choosable());
    }
  }

  void add(const RoutingRecorder& other, int64_t k) {
    for (size_t layer = 0; layer < other.chosen().size(); ++layer) {
      const std::vector<int32_t>& ids = other.chosen()[layer];
      bool all_present = true;
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto weight = static_cast<double>(other.weights()[layer][i]);
        const bool present = ids[i] < 0 || choosable_[layer].contains(ids[i]);
        mass_ += weight;
        missing_mass_ += present ? 0 : weight;
        all_present = all_present && present;
        if ((i + 1) % static_cast<size_t>(k) != 0) continue;
        token_layers_ += 1;
        present_token_layers_ += all_present ? 1 : 0;
        all_present = true;
      }
    }
  }

  double missing_mass() const { return mass_ == 0 ? 0 : missing_mass_ / mass_; }
  double all_present() const {
    return token_layers_ == 0
               ? 1
               : static_cast<double>(present_token_layers_) / static_cast<double>(token_layers_);
  }

 private:
  std::vector<std::set<int32_t>> choosable_;  // by layer
  double mass_ = 0;
  double missing_mass_ = 0;
  int64_t token_layers_ = 0;
  int64_t present_token_layers_ = 0;
};

struct RoutingFlips {
  int64_t experts = 0;
  int64_t flipped_experts = 0;
  int64_t token_layers = 0;
  int64_t flipped_token_layers = 0;

  // Adds one window. Both recorders saw the same tokens of models with the same layers.
  void add(const RoutingRecorder& pack, const RoutingRecorder& other, int64_t k) {
    for (size_t layer = 0; layer < pack.chosen().size(); ++layer) {
      const std::vector<int32_t>& ours = pack.chosen()[layer];
      const std::vector<int32_t>& theirs = other.chosen()[layer];
      for (size_t begin = 0; begin < ours.size(); begin += static_cast<size_t>(k)) {
        const auto their_begin = theirs.begin() + static_cast<int64_t>(begin);
        const int64_t flipped =
            std::count_if(ours.begin() + static_cast<int64_t>(begin),
                          ours.begin() + static_cast<int64_t>(begin) + k, [&](int32_t id) {
                            return std::find(their_begin, their_begin + k, id) == their_begin + k;
                          });
        experts += k;
        flipped_experts += flipped;
        token_layers += 1;
        flipped_token_layers += flipped > 0 ? 1 : 0;
      }
    }
  }
};

// Runs a window from a fresh state, in chunks; logits [window, vocab].
void run_window(Forward& forward, std::span<const int32_t> ids, std::vector<float>& logits,
                ForwardObserver& observer) {
  SequenceState state(forward.config());
  const int64_t vocab = forward.config().vocab_size;
  logits.resize(ids.size() * static_cast<size_t>(vocab));
  float* out = logits.data();
  while (!ids.empty()) {
    const size_t count = std::min(ids.size(), static_cast<size_t>(forward.max_tokens()));
    forward.run(ids.first(count), state, out, &observer);
    out += static_cast<int64_t>(count) * vocab;
    ids = ids.subspan(count);
  }
}

// Means over documents drawn with replacement: every resample draws as many documents as there are.
class Bootstrap {
 public:
  Bootstrap(const std::vector<Position>& positions, size_t documents, const EvalOptions& options)
      : positions_(positions), counts_(documents), options_(options) {
    for (const Position& position : positions) counts_[position.document] += 1;
  }

  // The estimate of the mean of value(position).
  template <class Value>
  Estimate estimate(const Value& value) const {
    std::vector<double> sums(counts_.size());
    for (const Position& position : positions_) sums[position.document] += value(position);
    Estimate result;
    result.mean =
        std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(positions_.size());
    std::vector<double> means;
    uint64_t counter = 0;
    for (int64_t resample = 0; resample < options_.resamples; ++resample) {
      double sum = 0;
      int64_t count = 0;
      for (size_t draw = 0; draw < counts_.size(); ++draw) {
        const double uniform = uniform_at(options_.seed, counter++);
        const auto document = static_cast<size_t>(uniform * static_cast<double>(counts_.size()));
        sum += sums[document];
        count += counts_[document];
      }
      if (count > 0) means.push_back(sum / static_cast<double>(count));
    }
    std::sort(means.begin(), means.end());
    if (means.empty()) means.push_back(result.mean);
    result.low = means[static_cast<size_t>(0.025 * static_cast<double>(means.size() - 1))];
    result.high = means[static_cast<size_t>(0.975 * static_cast<double>(means.size() - 1))];
    return result;
  }

 private:
  const std::vector<Position>& positions_;
  std::vector<int64_t> counts_;  // positions of each document
  const EvalOptions& options_;
};

double quantile(const std::vector<double>& sorted, double share) {
  const auto rank =
      static_cast<size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)));
  return sorted[rank];
}

Comparison compare(const std::vector<Position>& positions, const Bootstrap& bootstrap,
                   const RoutingFlips& flips, const MissingExperts& missing) {
  Comparison comparison;
  comparison.missing_mass = missing.missing_mass();
  comparison.all_present = missing.all_present();
  comparison.kl = bootstrap.estimate([](const Position& p) { return p.kl; });
  comparison.top1_agreement =
      bootstrap.estimate([](const Position& p) { return p.same_top1 ? 1.0 : 0.0; });
  comparison.other_nll = bootstrap.estimate([](const Position& p) { return p.other_nll; });
  std::vector<double> kls;
  for (const Position& position : positions) kls.push_back(position.kl);
  std::sort(kls.begin(), kls.end());
  comparison.kl_median = quantile(kls, 0.5);
  comparison.kl_p99 = quantile(kls, 0.99);
  comparison.kl_max = kls.back();
  const auto share = [](int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  comparison.flipped_experts = share(flips.flipped_experts, flips.experts);
  comparison.flipped_token_layers = share(flips.flipped_token_layers, flips.token_layers);
  return comparison;
}

}  // namespace

EvalResult evaluate(Forward& forward, Forward* other, const EvalText& text,
                    const EvalOptions& options, const std::function<void(int64_t)>& on_progress,
                    TraceRecorder* trace) {
  std::vector<int32_t> ids;
  std::vector<size_t> document_of;
  std::vector<uint32_t> trace_document;  // by document
  for (size_t document = 0; document < text.documents.size(); ++document) {
    if (trace != nullptr) {
      trace_document.push_back(trace->add_document({text.document_xxh3[document], text.name}));
    }
    ids.insert(ids.end(), text.documents[document].begin(), text.documents[document].end());
    document_of.resize(ids.size(), document);
  }
  if (ids.size() < 2)
    throw Error(text.name, ": has ", ids.size(), " tokens, at least 2 are needed");
  const size_t window = std::min(static_cast<size_t>(options.window_tokens), ids.size() - 1);
  const size_t windows = (ids.size() - 1) / window;

  const auto vocab = static_cast<size_t>(forward.config().vocab_size);
  const int64_t k = forward.config().experts_per_token;
  RoutingRecorder routing(k);
  RoutingRecorder other_routing(k);
  RoutingFlips flips;
  MissingExperts missing(forward.weights());
  std::vector<RunObserver*> watching = {&routing};
  if (trace != nullptr) watching.push_back(trace);
  Observers observers(watching);
  std::vector<float> logits;
  std::vector<float> other_logits;
  std::vector<Position> positions;
  for (size_t w = 0; w < windows; ++w) {
    const std::span window_ids(ids.data() + w * window, window);
    routing.clear();
    if (trace != nullptr) {
      std::vector<TraceToken> tokens(window);
      for (size_t t = 0; t < window; ++t) {
        tokens[t] = {trace_document[document_of[w * window + t]], static_cast<uint32_t>(t),
                     TracePhase::kPrefill};
      }
      trace->announce(tokens, {});
    }
    run_window(forward, window_ids, logits, observers);
    if (other != nullptr) {
      other_routing.clear();
      run_window(*other, window_ids, other_logits, other_routing);
      flips.add(routing, other_routing, k);
      missing.add(other_routing, k);
    }
    for (size_t t = 0; t < window; ++t) {
      const size_t next = w * window + t + 1;
      const auto target = static_cast<size_t>(ids[next]);
      const std::span row(logits.data() + t * vocab, vocab);
      const double lse = log_sum_exp(row);
      Position position{.document = document_of[next]};
      position.nll = lse - static_cast<double>(row[target]);
      if (other != nullptr) {
        const std::span other_row(other_logits.data() + t * vocab, vocab);
        const double other_lse = log_sum_exp(other_row);
        position.other_nll = other_lse - static_cast<double>(other_row[target]);
        position.kl = divergence(other_row, other_lse, row, lse);
        position.same_top1 = most_likely(row) == most_likely(other_row);
      }
      positions.push_back(position);
    }
    on_progress(static_cast<int64_t>(positions.size()));
  }

  const Bootstrap bootstrap(positions, text.documents.size(), options);
  EvalResult result;
  result.name = text.name;
  result.text_xxh3 = text.xxh3;
  result.documents = static_cast<int64_t>(text.documents.size());
  result.windows = static_cast<int64_t>(windows);
  result.positions = static_cast<int64_t>(positions.size());
  result.nll = bootstrap.estimate([](const Position& p) { return p.nll; });
  if (other != nullptr) result.comparison = compare(positions, bootstrap, flips, missing);
  return result;
}

}  // namespace k3
