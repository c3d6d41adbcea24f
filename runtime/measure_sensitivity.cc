// A model with one matrix changed in layer L computes the same as the unchanged one up to L. So a
// window goes through the base once, the streams that enter each layer are kept, and every swap
// starts at its layer: half the work on average. Windows are the outer loop, because then one
// window's streams and base logits are all there is to keep, whatever the length of the text: KL is
// over the full vocabulary, with nothing cut off or rounded.
//
// A swap exchanges views in the loaded weights. The pack is read once, and a candidate's matrices
// once.
#include "runtime/measure_sensitivity.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/comparable_packs.h"
#include "runtime/divergence.h"
#include "runtime/named_matrix.h"
#include "schema/error.h"
#include "schema/source_hashes.h"

namespace k3 {
namespace {

// Matrices to exchange together, and what that cost so far.
struct Swap {
  int64_t first_layer = 0;  // the first one that computes anything else
  std::vector<std::pair<MatrixView*, MatrixView>> views;
  double kl_sum = 0;

  void add(MatrixPlace place, const MatrixView& view) {
    first_layer = views.empty() ? place.layer : std::min(first_layer, place.layer);
    views.emplace_back(place.view, view);
  }
  void exchange() {
    for (auto& [place, view] : views) std::swap(*place, view);
  }
};

// The swaps of one file, and where their results belong.
class SwapPlan {
 public:
  SwapPlan(LoadedModel& base, const std::vector<CandidatePack>& candidates) : base_(base) {
    result_.base_payload_xxh3 = base.pack().payload_xxh3();
    list_matrices();
    for (const CandidatePack& candidate : candidates) add_candidate(candidate);
  }

  std::vector<Swap>& swaps() { return swaps_; }

  // With the sums of all windows.
  Sensitivity take(int64_t positions) {
    const auto mean = [&](size_t swap) {
      return std::max(0.0, swaps_[swap].kl_sum / static_cast<double>(positions));
    };
    std::map<std::pair<Family, int64_t>, double> family_sums;
    std::vector<double> whole_sums(result_.whole.size());
    for (const auto& [matrix, index, swap] : singles_) {
      MatrixSensitivity& to = result_.matrices[matrix];
      to.swaps[index].kl = mean(swap);
      family_sums[{to.family, to.swaps[index].candidate}] += mean(swap);
      whole_sums[static_cast<size_t>(to.swaps[index].candidate)] += mean(swap);
    }
    for (size_t i = 0; i < result_.families.size(); ++i) {
      JointSwap& to = result_.families[i].swap;
      to.kl = mean(family_swaps_[i]);
      to.single_kl = family_sums[{result_.families[i].family, to.candidate}];
    }
    for (size_t i = 0; i < result_.whole.size(); ++i) {
      result_.whole[i].kl = mean(whole_swaps_[i]);
      result_.whole[i].single_kl = whole_sums[i];
    }
    std::erase_if(result_.matrices, [](const auto& matrix) { return matrix.swaps.empty(); });
    result_.positions = positions;
    return std::move(result_);
  }

 private:
  struct Single {
    size_t matrix;
    size_t index;  // into its swaps
    size_t swap;
  };

  void list_matrices() {
    const std::vector<PackTensor>& tensors = base_.pack().index().content.tensors;
    const SourceHashes sources(base_.pack());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const MatrixPlace place = find_matrix(base_.weights(), tensors[i].name);
      if (place.view == nullptr) continue;
      places_.push_back(place);
      result_.matrices.push_back({.name = tensors[i].name,
                                  .family = tensors[i].family,
                                  .source_xxh3 = sources.of_tensor(i),
                                  .format = tensors[i].format,
                                  .swaps = {}});
    }
  }

  void add_candidate(const CandidatePack& candidate) {
    const PackReader& pack = *candidate.pack;
    check_same_basis(base_.pack(), pack);
    if (pack.config() != base_.pack().config()) {
      throw Error(pack.path(), ": is of another model than ", base_.pack().path());
    }
    const std::vector<PackTensor>& tensors = pack.index().content.tensors;
    const SourceHashes sources(pack);
    const auto number = std::ssize(result_.candidates);
    result_.candidates.push_back({candidate.name, pack.payload_xxh3()});
    Swap whole;
    std::map<Family, Swap> families;
    for (size_t i = 0; i < result_.matrices.size(); ++i) {
      MatrixSensitivity& matrix = result_.matrices[i];
      const PackTensor* tensor = pack.find(matrix.name);
      K3_CHECK(tensor != nullptr);
      if (sources.of_tensor(static_cast<size_t>(tensor - tensors.data())) != matrix.source_xxh3) {
        throw Error(pack.path(), ": tensor ", matrix.name,
                    ": was compiled from other weights than ", base_.pack().path(),
                    ", expected packs of one checkpoint");
      }
      if (tensor->format == matrix.format) continue;
      for (const MatrixSwap& earlier : matrix.swaps) {
        if (earlier.format != tensor->format) continue;
        throw Error(pack.path(), ": tensor ", matrix.name, ": is ", format_name(tensor->format),
                    ", as candidate ",
                    result_.candidates[static_cast<size_t>(earlier.candidate)].name,
                    " has it; expected candidates in different formats");
      }
      const MatrixView view = read(pack, *tensor);
      Swap single;
      single.add(places_[i], view);
      whole.add(places_[i], view);
      families[matrix.family].add(places_[i], view);
      singles_.push_back({i, matrix.swaps.size(), add(std::move(single))});
      matrix.swaps.push_back({number, tensor->format, tensor->extent.xxh3, 0});
    }
    if (whole.views.empty()) {
      throw Error(pack.path(), ": has every trunk matrix in the format of ", base_.pack().path(),
                  ", expected another one to try");
    }
    for (auto& [family, swap] : families) {
      const auto matrices = std::ssize(swap.views);
      family_swaps_.push_back(add(std::move(swap)));
      result_.families.push_back({family, {number, matrices, 0, 0}});
    }
    const auto matrices = std::ssize(whole.views);
    whole_swaps_.push_back(add(std::move(whole)));
    result_.whole.push_back({number, matrices, 0, 0});
  }

  size_t add(Swap&& swap) {
    swaps_.push_back(std::move(swap));
    return swaps_.size() - 1;
  }

  MatrixView read(const PackReader& pack, const PackTensor& tensor) {
    AlignedBytes& extent = storage_.emplace_back(tensor.extent.length_bytes);
    pack.read(tensor.extent, tensor.name, extent.span());
    return view_matrix(tensor.format, tensor.shape[0], tensor.shape[1], extent.data());
  }

  LoadedModel& base_;
  Sensitivity result_;
  std::vector<MatrixPlace> places_;  // of result_.matrices
  std::vector<Single> singles_;
  std::vector<size_t> family_swaps_;  // by place in result_.families
  std::vector<size_t> whole_swaps_;
  std::vector<Swap> swaps_;
  std::vector<AlignedBytes> storage_;
};

// One window in the base, kept so that a run can start at any layer.
class WindowRun {
 public:
  explicit WindowRun(Forward& forward)
      : forward_(forward),
        stream_(forward.make_stream()),
        entries_(forward.config().layers.size(), stream_) {}

  void run_base(const std::vector<int32_t>& ids) {
    tokens_ = std::ssize(ids);
    forward_.embed(ids, stream_);
    run_from(0, true);
    base_logits_ = logits_;
    base_lse_.resize(static_cast<size_t>(tokens_));
    for (size_t t = 0; t < base_lse_.size(); ++t) {
      base_lse_[t] = log_sum_exp(row(base_logits_, t));
    }
  }

  // The sum over the window's positions of KL(base || what the weights are now), which differ from
  // layer `first_layer` on.
  double run_changed(int64_t first_layer) {
    stream_ = entries_[static_cast<size_t>(first_layer)];
    run_from(first_layer, false);
    std::vector<double> kl(static_cast<size_t>(tokens_));
    tbb::parallel_for(size_t{0}, kl.size(), [&](size_t t) {
      const auto changed = row(logits_, t);
      kl[t] = divergence(row(base_logits_, t), base_lse_[t], changed, log_sum_exp(changed));
    });
    return std::accumulate(kl.begin(), kl.end(), 0.0);
  }

 private:
  void run_from(int64_t first_layer, bool keeps_entries) {
    SequenceState state(forward_.config());
    for (auto layer = static_cast<size_t>(first_layer); layer < entries_.size(); ++layer) {
      if (keeps_entries) entries_[layer] = stream_;
      forward_.run_layer(static_cast<int64_t>(layer), tokens_, stream_, 0, state.layers[layer],
                         nullptr);
    }
    logits_.resize(static_cast<size_t>(tokens_ * forward_.config().vocab_size));
    forward_.multiply_head(forward_.finish(tokens_, stream_, nullptr), tokens_, logits_.data());
  }

  std::span<const float> row(const std::vector<float>& logits, size_t token) const {
    const auto vocab = static_cast<size_t>(forward_.config().vocab_size);
    return std::span(logits).subspan(token * vocab, vocab);
  }

  Forward& forward_;
  int64_t tokens_ = 0;
  ResidualStream stream_;
  std::vector<ResidualStream> entries_;  // what enters each layer
  std::vector<float> logits_, base_logits_;
  std::vector<double> base_lse_;
};

}  // namespace

Sensitivity measure_sensitivity(LoadedModel& base, const std::vector<CandidatePack>& candidates,
                                const TokenWindows& windows,
                                const std::function<void(double)>& on_progress) {
  SwapPlan plan(base, candidates);
  size_t longest = 0;
  for (const auto& window : windows.windows) longest = std::max(longest, window.size());
  Forward forward(base.weights(), base.experts(), base.backend(), static_cast<int64_t>(longest));
  WindowRun run(forward);
  const auto steps = static_cast<double>(windows.windows.size() * plan.swaps().size());
  double done = 0;
  for (const std::vector<int32_t>& window : windows.windows) {
    run.run_base(window);
    for (Swap& swap : plan.swaps()) {
      swap.exchange();
      swap.kl_sum += run.run_changed(swap.first_layer);
      swap.exchange();
      on_progress(++done / steps);
    }
  }
  Sensitivity result = plan.take(windows.tokens());
  for (const CalibrationText& text : windows.texts) result.texts.push_back({text.name, text.xxh3});
  result.window_tokens = static_cast<int64_t>(longest);
  return result;
}

}  // namespace k3
