#include "compiler/trace_report.h"

#include <tbb/parallel_for.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <utility>

#include "compiler/cache_replay.h"
#include "compiler/quantities.h"
#include "compiler/trace_stats.h"
#include "schema/error.h"
#include "schema/json_writer.h"
#include "schema/line_chart.h"
#include "schema/printable.h"

namespace k3 {
namespace {

// Cache sizes as shares of all experts, where none are given: from one that holds little more than
// a token asks for to one that holds most.
constexpr std::array<double, 8> kShares = {0.03, 0.06, 0.12, 0.18, 0.24, 0.36, 0.48, 0.75};
constexpr size_t kPolicies = kCachePolicyNames.size();

struct ReplayRow {
  int64_t slots = 0;
  std::array<double, kPolicies> hit_rates = {};  // by CachePolicy
};

struct Replay {
  int64_t tokens = 0;
  int64_t look_ups = 0;
  double ceiling = 0;  // hit rate of a cache that never evicts
  std::vector<ReplayRow> rows;
};

std::vector<int64_t> list_slots(const TraceStatsRequest& request, const RoutingTable& table,
                                int64_t expert_bytes) {
  const int64_t all = table.layers() * table.header.experts;
  std::vector<int64_t> slots;
  if (request.cache_gb.empty()) {
    for (const double share : kShares) {
      slots.push_back(static_cast<int64_t>(share * static_cast<double>(all)));
    }
    return slots;
  }
  if (expert_bytes == 0) {
    throw Error(request.traces.front(),
                ": does not say how large an expert is, --cache-gb needs --expert-bytes");
  }
  for (const double gb : request.cache_gb) {
    slots.push_back(std::min(all, static_cast<int64_t>(gb * 1e9) / expert_bytes));
  }
  return slots;
}

Replay replay(const TraceStatsRequest& request, const RoutingTable& table, int64_t expert_bytes) {
  Replay result;
  if (request.replay_tokens == 0) return result;
  const ReplayRequests requests = list_requests(table, request.replay_tokens);
  result.tokens = requests.tokens;
  result.look_ups = std::ssize(requests.experts_asked);
  const auto rate = [&](int64_t hits) {
    return result.look_ups == 0 ? 0
                                : static_cast<double>(hits) / static_cast<double>(result.look_ups);
  };
  result.ceiling = rate(most_hits(requests));
  for (const int64_t slots : list_slots(request, table, expert_bytes)) {
    result.rows.push_back({slots, {}});
  }
  tbb::parallel_for(size_t{0}, result.rows.size() * kPolicies, [&](size_t i) {
    ReplayRow& row = result.rows[i / kPolicies];
    const auto policy = static_cast<CachePolicy>(i % kPolicies);
    row.hit_rates[i % kPolicies] = rate(replay_hits(requests, policy, row.slots));
  });
  return result;
}

double gigabytes(int64_t experts, int64_t expert_bytes) {
  return static_cast<double>(experts) * static_cast<double>(expert_bytes) * 1e-9;
}

// What all forms of the report are made from.
struct Findings {
  const RoutingTable& table;
  const TraceStats& stats;
  const Replay& replay;
  int64_t expert_bytes;  // 0: not known
};

void print_skew(const std::string& name, const LoadSkew& skew, std::ostream& out) {
  out << std::setw(8) << name << std::setw(8) << fixed(skew.used, 1) << std::setw(14)
      << fixed(skew.hottest_to_mean, 1) << std::setw(8) << fixed(skew.gini, 3) << std::setw(12)
      << fixed(skew.effective, 1) << std::setw(14) << percent(skew.reuse) << '\n';
}

void print_layers(const Findings& found, std::ostream& out) {
  out << "\n   layer    used  hottest/mean    gini   effective  next-token reuse\n";
  print_skew("mean", found.stats.overall, out);
  for (size_t i = 0; i < found.stats.layers.size(); ++i) {
    print_skew(std::to_string(found.table.header.layers[i]), found.stats.layers[i], out);
  }
}

void print_coverage(const Findings& found, std::ostream& out) {
  const auto experts = static_cast<double>(found.table.header.experts);
  out << "\nwhat the most used experts of each layer cover (" << found.stats.split << ")\n"
      << " experts   share   in sample    held out   all of a token's choice\n";
  for (const Coverage& each : found.stats.coverage) {
    out << std::setw(8) << each.top << std::setw(8)
        << percent(static_cast<double>(each.top) / experts) << std::setw(12)
        << percent(each.in_sample) << std::setw(12) << percent(each.held_out) << std::setw(12)
        << percent(each.all_kept) << '\n';
  }
  if (found.stats.domains.empty()) return;
  out << "\nwhat the " << found.stats.domain_top
      << " most used experts of one domain cover of another (chosen on it / tested on)\n";
  for (const DomainCoverage& each : found.stats.domains) {
    out << "  " << printable(each.chosen_on) << " / " << printable(each.tested_on) << ": "
        << percent(each.covered) << '\n';
  }
}

void print_replay(const Findings& found, std::ostream& out) {
  if (found.replay.rows.empty()) return;
  out << "\nhits of an expert cache, on demand and from empty, over "
      << grouped(found.replay.tokens) << " tokens and " << grouped(found.replay.look_ups)
      << " look-ups; no cache can pass " << percent(found.replay.ceiling) << "\n experts   share";
  if (found.expert_bytes > 0) out << "          GB";
  for (const std::string_view name : kCachePolicyNames) out << std::setw(15) << name;
  out << '\n';
  const auto all = static_cast<double>(found.table.layers() * found.table.header.experts);
  for (const ReplayRow& row : found.replay.rows) {
    out << std::setw(8) << row.slots << std::setw(8)
        << percent(static_cast<double>(row.slots) / all);
    if (found.expert_bytes > 0) {
      out << std::setw(12) << fixed(gigabytes(row.slots, found.expert_bytes), 4);
    }
    for (const double rate : row.hit_rates) out << std::setw(15) << percent(rate);
    out << '\n';
  }
}

void print_text(const Findings& found, std::ostream& out) {
  const RoutingTable& table = found.table;
  out << grouped(found.stats.tokens) << " tokens (" << grouped(found.stats.decoded_tokens)
      << " decoded) of " << grouped(found.stats.documents) << " documents; " << table.k() << " of "
      << table.header.experts << " experts in each of " << table.layers() << " layers";
  if (found.expert_bytes > 0) {
    const auto expert_bytes = static_cast<double>(found.expert_bytes);
    const auto of_token = static_cast<double>(table.k() * table.layers());
    out << ", an expert " << sized(expert_bytes) << ", a token's "
        << sized(expert_bytes * of_token);  // a trace may make this more than 2^63
  }
  out << '\n';
  for (const std::string& path : table.cut) out << path << " was cut; its whole blocks count\n";
  if (table.incomplete_tokens > 0) {
    out << grouped(table.incomplete_tokens) << " tokens that not every layer saw are left out\n";
  }
  print_layers(found, out);
  print_coverage(found, out);
  print_replay(found, out);
}

void write_skew(const LoadSkew& skew, JsonWriter& json) {
  json.member("used", skew.used);
  json.member("hottest_to_mean", skew.hottest_to_mean);
  json.member("gini", skew.gini);
  json.member("effective", skew.effective);
  json.member("next_token_reuse", skew.reuse);
}

void write_replay(const Findings& found, JsonWriter& json) {
  json.begin_object();
  json.member("tokens", found.replay.tokens);
  json.member("look_ups", found.replay.look_ups);
  json.member("ceiling", found.replay.ceiling);
  json.key("sizes");
  json.begin_array();
  for (const ReplayRow& row : found.replay.rows) {
    json.begin_object();
    json.member("experts", row.slots);
    if (found.expert_bytes > 0) json.member("gb", gigabytes(row.slots, found.expert_bytes));
    for (size_t i = 0; i < kPolicies; ++i) json.member(kCachePolicyNames[i], row.hit_rates[i]);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write_json(const Findings& found, std::ostream& out) {
  const RoutingTable& table = found.table;
  JsonWriter json(out, 2);
  json.begin_object();
  json.member("tokens", found.stats.tokens);
  json.member("decoded_tokens", found.stats.decoded_tokens);
  json.member("incomplete_tokens", table.incomplete_tokens);
  json.member("documents", found.stats.documents);
  json.member("experts", table.header.experts);
  json.member("experts_per_token", table.k());
  json.member("expert_bytes", found.expert_bytes);
  json.key("overall");
  json.begin_object();
  write_skew(found.stats.overall, json);
  json.end_object();
  json.key("layers");
  json.begin_array();
  for (size_t i = 0; i < found.stats.layers.size(); ++i) {
    json.begin_object();
    json.member("layer", table.header.layers[i]);
    write_skew(found.stats.layers[i], json);
    json.end_object();
  }
  json.end_array();
  json.member("coverage_split", found.stats.split);
  json.key("coverage");
  json.begin_array();
  for (const Coverage& each : found.stats.coverage) {
    json.begin_object();
    json.member("experts", each.top);
    json.member("in_sample", each.in_sample);
    json.member("held_out", each.held_out);
    json.member("all_kept", each.all_kept);
    json.end_object();
  }
  json.end_array();
  json.member("domain_experts", found.stats.domain_top);
  json.key("domains");
  json.begin_array();
  for (const DomainCoverage& each : found.stats.domains) {
    json.begin_object();
    json.member("chosen_on", each.chosen_on);
    json.member("tested_on", each.tested_on);
    json.member("covered", each.covered);
    json.end_object();
  }
  json.end_array();
  json.key("replay");
  write_replay(found, json);
  json.end_object();
  out << '\n';
}

std::string load_chart(const Findings& found) {
  ChartSeries measured{"measured, mean of layers", {}};
  ChartSeries even{"all alike", {}};
  const auto experts = static_cast<double>(found.stats.load_curve.size());
  for (size_t rank = 0; rank < found.stats.load_curve.size(); ++rank) {
    measured.points.emplace_back(static_cast<double>(rank + 1), found.stats.load_curve[rank]);
    even.points.emplace_back(static_cast<double>(rank + 1), 1 / experts);
  }
  return line_chart("Load of a layer's experts", {"rank of the expert", Scale::kLogarithmic},
                    {"share of choices", Scale::kLogarithmic}, std::array{measured, even});
}

std::string coverage_chart(const Findings& found) {
  ChartSeries in_sample{"in sample", {}};
  ChartSeries held_out{"held out", {}};
  ChartSeries all_kept{"all of a token's choice, held out", {}};
  for (const Coverage& each : found.stats.coverage) {
    const double share =
        static_cast<double>(each.top) / static_cast<double>(found.table.header.experts);
    in_sample.points.emplace_back(share, each.in_sample);
    held_out.points.emplace_back(share, each.held_out);
    all_kept.points.emplace_back(share, each.all_kept);
  }
  return line_chart("Choices covered by the most used experts", {"share of experts"},
                    {"share of choices"}, std::array{in_sample, held_out, all_kept});
}

std::string replay_chart(const Findings& found) {
  std::vector<ChartSeries> series;
  for (size_t policy = 0; policy < kPolicies; ++policy) {
    ChartSeries& line =
        series.emplace_back(ChartSeries{std::string(kCachePolicyNames[policy]), {}});
    for (const ReplayRow& row : found.replay.rows) {
      const double size = found.expert_bytes > 0 ? gigabytes(row.slots, found.expert_bytes)
                                                 : static_cast<double>(row.slots);
      line.points.emplace_back(size, row.hit_rates[policy]);
    }
  }
  ChartSeries& ceiling = series.emplace_back(ChartSeries{"everything kept", {}});
  for (const auto& point : std::vector(series.front().points)) {
    ceiling.points.emplace_back(point.first, found.replay.ceiling);
  }
  return line_chart("Hits of an expert cache",
                    {found.expert_bytes > 0 ? "cache, GB" : "cache, experts"}, {"hit rate"},
                    series);
}

void write_charts(const Findings& found, const std::string& folder) {
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (fault) throw Error(folder, ": cannot be made: ", fault.message());
  write_chart(folder + "/load.svg", load_chart(found));
  write_chart(folder + "/coverage.svg", coverage_chart(found));
  if (!found.replay.rows.empty()) write_chart(folder + "/cache.svg", replay_chart(found));
}

}  // namespace

void run_trace_stats(const TraceStatsRequest& request, std::ostream& out) {
  const RoutingTable table = load_routing(request.traces);
  std::optional<RoutingTable> held_out;
  if (!request.held_out.empty()) {
    held_out = load_routing(request.held_out);
    if (held_out->header.layers != table.header.layers ||
        held_out->header.experts != table.header.experts) {
      throw Error(request.held_out.front(), ": is of another model than ", request.traces.front());
    }
  }
  const int64_t expert_bytes =
      request.expert_bytes > 0 ? request.expert_bytes : table.header.expert_bytes;
  const TraceStats stats = measure_routing(table, held_out ? &*held_out : nullptr);
  const Replay replayed = replay(request, table, expert_bytes);
  const Findings found{table, stats, replayed, expert_bytes};
  if (request.json) {
    write_json(found, out);
  } else {
    print_text(found, out);
  }
  if (!request.svg_folder.empty()) write_charts(found, request.svg_folder);
}

}  // namespace k3
