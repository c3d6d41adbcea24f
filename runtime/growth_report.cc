#include "runtime/growth_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "schema/json_writer.h"
#include "schema/line_chart.h"

namespace k3 {
namespace {

constexpr double kLinearTolerance = 0.1;

const char* attention_of(const ModelConfig& config, int64_t layer) {
  return config.layers[static_cast<size_t>(layer)].attention == AttentionKind::kKda ? "KDA" : "MLA";
}

// Whether a tenth of the real error grows as the whole does.
bool is_linear(const LayerGrowth& layer) {
  if (!layer.real) return true;
  const double small = (*layer.real)[0].median;
  return std::abs((*layer.real)[1].median - small) <= kLinearTolerance * small;
}

// Over the layers that have the branch.
struct BranchSummary {
  int64_t layers = 0;
  double median = 0;  // the mean of the layers' medians
  double p95 = 0;     // the largest of the layers'
  double max = 0;
  double share = 0;  // the mean
};

std::map<Branch, BranchSummary> by_branch(const ErrorGrowth& growth) {
  std::map<Branch, BranchSummary> summaries;
  for (const LayerGrowth& layer : growth.layers) {
    for (const BranchGrowth& branch : layer.branches) {
      BranchSummary& to = summaries[branch.branch];
      ++to.layers;
      to.median += branch.response.median;
      to.share += branch.share;
      to.p95 = std::max(to.p95, branch.response.p95);
      to.max = std::max(to.max, branch.response.max);
    }
  }
  for (auto& [branch, summary] : summaries) {
    summary.median /= static_cast<double>(summary.layers);
    summary.share /= static_cast<double>(summary.layers);
  }
  return summaries;
}

void print_line(std::ostream& out, const char* form, auto... values) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), form, values...);
  out << line.data() << '\n';
}

void write_spread(JsonWriter& json, std::string_view name, const Spread& spread) {
  json.key(name);
  json.begin_object();
  json.member("median", spread.median);
  json.member("p95", spread.p95);
  json.member("max", spread.max);
  json.end_object();
}

void write_layer(JsonWriter& json, const LayerGrowth& layer, const ModelConfig& config) {
  json.begin_object();
  json.member("layer", layer.layer);
  json.member("attention", attention_of(config, layer.layer));
  json.key("real");
  if (layer.real) {
    json.begin_object();
    json.key("scales");
    json.begin_array();
    for (const double scale : kErrorScales) json.value(scale);
    json.end_array();
    json.key("growth");
    json.begin_array();
    for (const Spread& spread : *layer.real) {
      json.begin_object();
      json.member("median", spread.median);
      json.member("p95", spread.p95);
      json.member("max", spread.max);
      json.end_object();
    }
    json.end_array();
    json.member("linear", is_linear(layer));
    json.member("one_minus_cosine", layer.turned);
    json.member("late_over_early", layer.late);
    json.end_object();
  } else {
    json.null();
  }
  write_spread(json, "random", layer.random);
  json.member("worst", layer.worst);
  json.member("worst_is", layer.worst_is_exact ? "jacobian" : "lower bound");
  json.member("entering", layer.entering);
  json.member("inherited", layer.inherited);
  json.member("injected", layer.injected);
  json.member("leaving", layer.leaving);
  json.member("correlation", layer.correlation);
  json.member("flipped_experts", layer.flipped);
  json.key("branches");
  json.begin_array();
  for (const BranchGrowth& branch : layer.branches) {
    json.begin_object();
    json.member("branch", branch_name(branch.branch));
    write_spread(json, "response", branch.response);
    json.member("share", branch.share);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

std::string_view branch_name(Branch branch) {
  constexpr std::array<std::string_view, 5> kNames = {"kda", "mla", "dense", "shared", "routed"};
  return kNames[static_cast<size_t>(branch)];
}

void print_growth(const ErrorGrowth& growth, const ModelConfig& config, std::ostream& out) {
  out << growth.tokens << " tokens of " << growth.documents
      << " documents. Errors are relative to the state, in %; growth A is their ratio over a "
         "layer\n";
  print_line(out, "%5s %4s | %7s %7s %7s %7s %6s | %7s %7s %7s %7s | %7s %7s | %7s | %7s %6s",
             "layer", "", "enters", "inherit", "inject", "leaves", "corr", "A 0.1x", "A real",
             "A 3x", "p95", "A rand", "max", "worst", "1-cos", "flips");
  for (const LayerGrowth& layer : growth.layers) {
    std::array<double, 3> medians = {};
    if (layer.real) {
      for (size_t i = 0; i < medians.size(); ++i) medians[i] = (*layer.real)[i].median;
    }
    print_line(
        out,
        "%5lld %4s | %7.2f %7.2f %7.2f %7.2f %6.2f | %7.3f %7.3f%c%7.3f %7.3f | %7.3f %7.3f | "
        "%7.3f%c| %7.4f %5.1f%%",
        static_cast<long long>(layer.layer), attention_of(config, layer.layer),
        100 * layer.entering, 100 * layer.inherited, 100 * layer.injected, 100 * layer.leaving,
        layer.correlation, medians[0], medians[1], is_linear(layer) ? ' ' : '!', medians[2],
        layer.real ? (*layer.real)[1].p95 : 0.0, layer.random.median, layer.random.max, layer.worst,
        layer.worst_is_exact ? ' ' : '+', layer.turned, 100 * layer.flipped);
  }
  out << "!: 0.1x and 1x differ by more than 10 %, no linear picture holds there. worst: the "
         "Jacobian's at sampled tokens; with +, a lower bound: the maximum tried\n";
  print_line(out, "%-8s %7s %10s %7s %7s %7s", "branch", "layers", "response", "p95", "max",
             "share");
  for (const auto& [branch, summary] : by_branch(growth)) {
    print_line(out, "%-8s %7lld %10.3f %7.3f %7.3f %7.3f", std::string(branch_name(branch)).c_str(),
               static_cast<long long>(summary.layers), summary.median, summary.p95, summary.max,
               summary.share);
  }
  print_line(out, "%-22s %9s %10s %9s", "one layer compressed", "injected", "predicted",
             "measured");
  for (const Injection& injection : growth.injections) {
    print_line(out, "layer %-16lld %8.2f%% %9.2f%% %8.2f%%",
               static_cast<long long>(injection.layer), 100 * injection.injected,
               100 * injection.predicted, 100 * injection.measured);
  }
  print_line(out, "all layers compressed: %.2f %% at the end", 100 * growth.end);
}

void write_growth(const ErrorGrowth& growth, const ModelConfig& config, std::ostream& out) {
  JsonWriter json(out, 2);
  json.begin_object();
  json.member("documents", growth.documents);
  json.member("tokens", growth.tokens);
  json.key("layers");
  json.begin_array();
  for (const LayerGrowth& layer : growth.layers) write_layer(json, layer, config);
  json.end_array();
  json.key("branches");
  json.begin_array();
  for (const auto& [branch, summary] : by_branch(growth)) {
    json.begin_object();
    json.member("branch", branch_name(branch));
    json.member("layers", summary.layers);
    json.member("response", summary.median);
    json.member("p95", summary.p95);
    json.member("max", summary.max);
    json.member("share", summary.share);
    json.end_object();
  }
  json.end_array();
  json.key("injections");
  json.begin_array();
  for (const Injection& injection : growth.injections) {
    json.begin_object();
    json.member("layer", injection.layer);
    json.member("injected", injection.injected);
    json.member("predicted", injection.predicted);
    json.member("measured", injection.measured);
    json.end_object();
  }
  json.end_array();
  json.member("end", growth.end);
  json.end_object();
  out << '\n';
}

std::string growth_chart(const ErrorGrowth& growth) {
  std::array<ChartSeries, 4> series;
  series[0].name = "A, real error";
  series[1].name = "A, random";
  series[2].name = "A, worst";
  series[3].name = "error entering";
  for (const LayerGrowth& layer : growth.layers) {
    const auto x = static_cast<double>(layer.layer);
    if (layer.real) series[0].points.emplace_back(x, (*layer.real)[1].median);
    series[1].points.emplace_back(x, layer.random.median);
    series[2].points.emplace_back(x, layer.worst);
    series[3].points.emplace_back(x, layer.entering);
  }
  return line_chart("Growth of errors by layer", {"layer"},
                    {"A, and relative error", Scale::kLogarithmic}, series);
}

}  // namespace k3
