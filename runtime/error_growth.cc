// Everything is measured in one walk over the layers, with the streams of all documents of both
// models in memory: at a layer the original's is known, the compressed model's is what it made of
// it so far, and what the original layer makes of any other input is one more call.
//
// The reference backend is meant for both: it keeps activations in float, where the exact backends
// round them to 16 bits, and small errors would drown in that.

#include "runtime/error_growth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "runtime/layer_jacobian.h"
#include "schema/error.h"

namespace k3 {
namespace {

constexpr double kSmallShare = 0.01;  // of the state, where there is no real error to take after

// Branch outputs and choices of experts of one step.
class BranchRecorder final : public ForwardObserver {
 public:
  explicit BranchRecorder(const ModelConfig& config)
      : hidden_(config.hidden_size), chosen_(config.experts_per_token) {}

  void on_layer(int64_t /*layer*/, int64_t /*tokens*/, const float* /*hidden*/) override {}
  void on_routing(int64_t /*layer*/, int64_t tokens, const int32_t* source_ids,
                  const float* /*weights*/) override {
    experts.assign(source_ids, source_ids + tokens * chosen_);
  }
  void on_branch(int64_t /*layer*/, Branch branch, int64_t tokens, const float* y) override {
    branches[branch].assign(y, y + tokens * hidden_);
  }

  std::map<Branch, std::vector<float>> branches;  // [tokens, hidden]
  std::vector<int32_t> experts;                   // [tokens, k]; of MoE layers

 private:
  int64_t hidden_;
  int64_t chosen_;
};

// The parts of a state: the stream and its snapshots, [tokens, hidden] each.
int64_t parts_of(const ResidualStream& stream) {
  return 1 + stream.live_snapshots;
}
const std::vector<float>& part(const ResidualStream& stream, int64_t i) {
  return i == 0 ? stream.prefix : stream.snapshots[static_cast<size_t>(i - 1)];
}
std::vector<float>& part(ResidualStream& stream, int64_t i) {
  return i == 0 ? stream.prefix : stream.snapshots[static_cast<size_t>(i - 1)];
}

double squared_norm(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}
double squared_distance(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return sum;
}

// Of the state at each token.
std::vector<double> squared_norms(const ResidualStream& s, int64_t tokens, int64_t hidden) {
  std::vector<double> norms(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < parts_of(s); ++i) {
    for (int64_t t = 0; t < tokens; ++t) {
      norms[static_cast<size_t>(t)] += squared_norm(part(s, i).data() + t * hidden, hidden);
    }
  }
  return norms;
}
std::vector<double> squared_distances(const ResidualStream& a, const ResidualStream& b,
                                      int64_t tokens, int64_t hidden) {
  K3_CHECK(parts_of(a) == parts_of(b));
  std::vector<double> norms(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < parts_of(a); ++i) {
    for (int64_t t = 0; t < tokens; ++t) {
      norms[static_cast<size_t>(t)] +=
          squared_distance(part(a, i).data() + t * hidden, part(b, i).data() + t * hidden, hidden);
    }
  }
  return norms;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

// s + scale (towards - s)
ResidualStream moved(const ResidualStream& s, const ResidualStream& towards, double scale) {
  ResidualStream to = s;
  for (int64_t i = 0; i < parts_of(s); ++i) {
    const std::vector<float>& from = part(s, i);
    const std::vector<float>& end = part(towards, i);
    std::vector<float>& out = part(to, i);
    for (size_t j = 0; j < out.size(); ++j) {
      out[j] = static_cast<float>(from[j] + scale * (static_cast<double>(end[j]) - from[j]));
    }
  }
  return to;
}

// s plus, at every token and in every part, a random direction of the length that the real error
// has there; where it has none, of a small share of the part.
ResidualStream moved_randomly(const ResidualStream& s, const ResidualStream& real, int64_t tokens,
                              int64_t hidden, std::mt19937_64& random) {
  ResidualStream to = s;
  std::normal_distribution<double> normal;
  std::vector<double> direction(static_cast<size_t>(hidden));
  for (int64_t i = 0; i < parts_of(s); ++i) {
    for (int64_t t = 0; t < tokens; ++t) {
      const float* const from = part(s, i).data() + t * hidden;
      double length = std::sqrt(squared_distance(part(real, i).data() + t * hidden, from, hidden));
      if (length == 0) length = kSmallShare * std::sqrt(squared_norm(from, hidden));
      double squares = 0;
      for (double& value : direction) {
        value = normal(random);
        squares += value * value;
      }
      float* const out = part(to, i).data() + t * hidden;
      for (int64_t j = 0; j < hidden; ++j) {
        out[j] = static_cast<float>(from[j] + direction[static_cast<size_t>(j)] * length /
                                                  std::sqrt(squares));
      }
    }
  }
  return to;
}

struct Document {
  std::vector<int32_t> ids;
  ResidualStream original;
  ResidualStream compressed;
  std::vector<ResidualStream> injected;  // by injection; set from its layer on

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

// One layer, all documents: gathers what LayerGrowth says.
class LayerWalk {
 public:
  LayerWalk(LayerwiseModel& original, LayerwiseModel& compressed, int64_t layer,
            const ErrorGrowthOptions& options)
      : original_(original),
        compressed_(compressed),
        layer_(layer),
        hidden_(original.config().hidden_size),
        options_(options),
        random_(options.seed * 1000003 + static_cast<uint64_t>(layer)) {
    growth_.layer = layer;
  }

  // Advances the document's two streams.
  void visit(Document& document, bool first) {
    const int64_t tokens = document.tokens();
    const ResidualStream s = document.original;
    const ResidualStream sq = document.compressed;
    BranchRecorder base(original_.config());
    ResidualStream f = run(original_, s, tokens, &base);
    ResidualStream fq = run(compressed_, sq, tokens, nullptr);
    const ResidualStream clean = run(compressed_, s, tokens, nullptr);

    const std::vector<double> s_norms = squared_norms(s, tokens, hidden_);
    const std::vector<double> f_norms = squared_norms(f, tokens, hidden_);
    const std::vector<double> entering = squared_distances(sq, s, tokens, hidden_);
    s_sum_ += sum_of(s_norms);
    f_sum_ += sum_of(f_norms);
    entering_ += sum_of(entering);
    injected_ += sum_of(squared_distances(clean, f, tokens, hidden_));
    leaving_ += sum_of(squared_distances(fq, f, tokens, hidden_));

    const Ratio ratio{s_norms, f_norms};
    if (sum_of(entering) > 0) {
      for (size_t i = 0; i < kErrorScales.size(); ++i) {
        BranchRecorder recorder(original_.config());
        const ResidualStream in = moved(s, sq, kErrorScales[i]);
        const ResidualStream out = run(original_, in, tokens, &recorder);
        const std::vector<double> d = squared_distances(in, s, tokens, hidden_);
        const std::vector<double> g = ratio.growths(squared_distances(out, f, tokens, hidden_), d);
        real_[i].insert(real_[i].end(), g.begin(), g.end());
        if (kErrorScales[i] != 1) continue;
        inherited_ += sum_of(squared_distances(out, f, tokens, hidden_));
        note_turn(out, f, tokens);
        note_quarters(g);
        note_branches(base, recorder, f, ratio, d);
        note_flips(base, recorder);
      }
    }
    for (int64_t i = 0; i < directions(s); ++i) {
      BranchRecorder recorder(original_.config());
      const ResidualStream in = moved_randomly(s, sq, tokens, hidden_, random_);
      const ResidualStream out = run(original_, in, tokens, &recorder);
      const std::vector<double> d = squared_distances(in, s, tokens, hidden_);
      const std::vector<double> g = ratio.growths(squared_distances(out, f, tokens, hidden_), d);
      random_growths_.insert(random_growths_.end(), g.begin(), g.end());
      if (i == 0 && sum_of(entering) == 0) note_branches(base, recorder, f, ratio, d);
    }
    if (first && has_jacobian(s)) {
      for (int64_t i = 1; i <= options_.jacobian_tokens; ++i) {
        const int64_t token = tokens * i / (options_.jacobian_tokens + 1);
        exact_worst_ = std::max(exact_worst_, worst_growth(original_, layer_, s, token));
      }
    }
    document.original = std::move(f);
    document.compressed = std::move(fq);
  }

  LayerGrowth growth() {
    LayerGrowth g = std::move(growth_);
    if (!real_[1].empty()) {
      g.real.emplace();
      for (size_t i = 0; i < real_.size(); ++i) (*g.real)[i] = spread_of(real_[i]);
      g.turned = turned_ / static_cast<double>(turns_);
      const double early = median_of(first_quarter_);
      if (early > 0) g.late = median_of(last_quarter_) / early;
    }
    g.random = spread_of(random_growths_);
    g.worst_is_exact = exact_worst_ > 0;
    g.worst = exact_worst_;
    if (!g.worst_is_exact) {
      g.worst = g.random.max;
      if (g.real) g.worst = std::max(g.worst, (*g.real)[1].max);
    }
    for (const auto& [branch, responses] : responses_) {
      g.branches.push_back({branch, spread_of(responses), median_of(shares_[branch])});
    }
    g.entering = std::sqrt(entering_ / s_sum_);
    g.inherited = std::sqrt(inherited_ / f_sum_);
    g.injected = std::sqrt(injected_ / f_sum_);
    g.leaving = std::sqrt(leaving_ / f_sum_);
    if (g.inherited > 0 && g.injected > 0) {
      g.correlation =
          (leaving_ - inherited_ - injected_) / (2 * std::sqrt(inherited_) * std::sqrt(injected_));
    }
    if (choices_ > 0) g.flipped = static_cast<double>(flips_) / static_cast<double>(choices_);
    return g;
  }

  ResidualStream run(LayerwiseModel& model, ResidualStream stream, int64_t tokens,
                     ForwardObserver* observer) {
    LayerState state = fresh_layer_state(model.config(), layer_);
    model.forward().run_layer(layer_, tokens, stream, 0, state, observer);
    return stream;
  }

 private:
  // From squared norms to A at each token.
  struct Ratio {
    const std::vector<double>& s;
    const std::vector<double>& f;
    std::vector<double> growths(const std::vector<double>& out,
                                const std::vector<double>& in) const {
      std::vector<double> growth;
      for (size_t t = 0; t < s.size(); ++t) {
        if (in[t] > 0 && f[t] > 0) growth.push_back(std::sqrt(out[t] / f[t] / (in[t] / s[t])));
      }
      return growth;
    }
  };

  static double median_of(std::vector<double> values) {
    return values.empty() ? 0 : spread_of(std::move(values)).median;
  }

  bool has_jacobian(const ResidualStream& s) const {
    return parts_of(s) * hidden_ <= options_.widest_jacobian;
  }
  int64_t directions(const ResidualStream& s) const {
    constexpr int64_t kForWorst = 64;
    return has_jacobian(s) ? options_.random_directions
                           : std::max(options_.random_directions, kForWorst);
  }

  void note_turn(const ResidualStream& out, const ResidualStream& f, int64_t tokens) {
    for (int64_t t = 0; t < tokens; ++t) {
      const float* const a = out.prefix.data() + t * hidden_;
      const float* const b = f.prefix.data() + t * hidden_;
      double product = 0;
      for (int64_t j = 0; j < hidden_; ++j) product += static_cast<double>(a[j]) * b[j];
      turned_ += 1 - product / std::sqrt(squared_norm(a, hidden_) * squared_norm(b, hidden_));
      ++turns_;
    }
  }
  void note_quarters(const std::vector<double>& growths) {
    const auto quarter = static_cast<std::ptrdiff_t>(growths.size() / 4);
    first_quarter_.insert(first_quarter_.end(), growths.begin(), growths.begin() + quarter);
    last_quarter_.insert(last_quarter_.end(), growths.end() - quarter, growths.end());
  }
  void note_branches(const BranchRecorder& base, const BranchRecorder& changed,
                     const ResidualStream& f, const Ratio& ratio, const std::vector<double>& d) {
    for (const auto& [branch, y] : base.branches) {
      const std::vector<float>& other = changed.branches.at(branch);
      for (size_t t = 0; t < ratio.s.size(); ++t) {
        const int64_t at = static_cast<int64_t>(t) * hidden_;
        const double size = squared_norm(y.data() + at, hidden_);
        if (size == 0 || d[t] == 0) continue;
        const double change = squared_distance(other.data() + at, y.data() + at, hidden_);
        responses_[branch].push_back(std::sqrt(change / size / (d[t] / ratio.s[t])));
        shares_[branch].push_back(std::sqrt(size / squared_norm(f.prefix.data() + at, hidden_)));
      }
    }
  }
  void note_flips(const BranchRecorder& base, const BranchRecorder& changed) {
    const auto k = static_cast<size_t>(original_.config().experts_per_token);
    for (size_t at = 0; at + k <= base.experts.size(); at += k) {
      const std::set<int32_t> before(base.experts.begin() + static_cast<std::ptrdiff_t>(at),
                                     base.experts.begin() + static_cast<std::ptrdiff_t>(at + k));
      for (size_t j = 0; j < k; ++j) flips_ += before.contains(changed.experts[at + j]) ? 0 : 1;
      choices_ += static_cast<int64_t>(k);
    }
  }

  LayerwiseModel& original_;
  LayerwiseModel& compressed_;
  int64_t layer_;
  int64_t hidden_;
  const ErrorGrowthOptions& options_;
  std::mt19937_64 random_;
  LayerGrowth growth_;
  std::array<std::vector<double>, kErrorScales.size()> real_;
  std::vector<double> random_growths_, first_quarter_, last_quarter_;
  std::map<Branch, std::vector<double>> responses_, shares_;
  double s_sum_ = 0, f_sum_ = 0, entering_ = 0, inherited_ = 0, injected_ = 0, leaving_ = 0;
  double turned_ = 0, exact_worst_ = 0;
  int64_t turns_ = 0, flips_ = 0, choices_ = 0;
};

// Layers spread evenly, the first and the last but one among them.
std::vector<int64_t> injection_layers(int64_t layers, int64_t count) {
  std::set<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) {
    chosen.insert(count == 1 ? 0 : i * std::max<int64_t>(layers - 2, 0) / (count - 1));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  K3_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  return {at(0.5), at(0.95), values.back()};
}

ErrorGrowth measure_error_growth(LayerwiseModel& original, LayerwiseModel& compressed,
                                 std::span<const std::vector<int32_t>> documents,
                                 const ErrorGrowthOptions& options,
                                 const std::function<void(int64_t)>& on_layer) {
  ErrorGrowth result;
  std::vector<Document> streams;
  original.hold_embedding();
  compressed.hold_embedding();
  for (const std::vector<int32_t>& ids : documents) {
    Document& document = streams.emplace_back();
    document.ids = ids;
    document.original = original.forward().make_stream();
    original.forward().embed(ids, document.original);
    document.compressed = compressed.forward().make_stream();
    compressed.forward().embed(ids, document.compressed);
    result.tokens += document.tokens();
  }
  result.documents = static_cast<int64_t>(documents.size());

  const int64_t hidden = original.config().hidden_size;
  const std::vector<int64_t> chosen = injection_layers(original.layers(), options.injections);
  const auto error_of = [&](auto&& stream) {  // relative, over all documents
    double distance = 0;
    double size = 0;
    for (Document& document : streams) {
      distance +=
          sum_of(squared_distances(stream(document), document.original, document.tokens(), hidden));
      size += sum_of(squared_norms(document.original, document.tokens(), hidden));
    }
    return std::sqrt(distance / size);
  };
  for (int64_t layer = 0; layer < original.layers(); ++layer) {
    original.hold_layer(layer);
    compressed.hold_layer(layer);
    LayerWalk walk(original, compressed, layer, options);
    const bool starts = std::find(chosen.begin(), chosen.end(), layer) != chosen.end();
    for (Document& document : streams) {
      for (ResidualStream& stream : document.injected) {
        stream = walk.run(original, std::move(stream), document.tokens(), nullptr);
      }
      if (starts) {
        document.injected.push_back(
            walk.run(compressed, document.original, document.tokens(), nullptr));
      }
      walk.visit(document, &document == &streams.front());
    }
    result.layers.push_back(walk.growth());
    const LayerGrowth& grown = result.layers.back();
    for (Injection& injection : result.injections) {
      injection.predicted *= grown.real ? (*grown.real)[1].median : grown.random.median;
    }
    if (starts) {
      const size_t i = result.injections.size();
      const double error = error_of([i](Document& d) -> ResidualStream& { return d.injected[i]; });
      result.injections.push_back({layer, error, error, 0});
    }
    on_layer(layer);
  }
  for (size_t i = 0; i < result.injections.size(); ++i) {
    result.injections[i].measured =
        error_of([i](Document& d) -> ResidualStream& { return d.injected[i]; });
  }
  result.end = error_of([](Document& d) -> ResidualStream& { return d.compressed; });
  return result;
}

}  // namespace k3
