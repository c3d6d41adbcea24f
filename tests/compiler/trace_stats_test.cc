#include "compiler/trace_stats.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "compiler/trace_import.h"
#include "compiler/trace_merge.h"
#include "compiler/trace_report.h"
#include "schema/trace_reader.h"
#include "schema/trace_writer.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

TEST(TraceStats, AnEvenLoadHasNoSkewAndALoadOnOneHasAll) {
  const LoadSkew even = measure_skew(std::vector<int64_t>{5, 5, 5, 5});
  EXPECT_EQ(even.used, 4);
  EXPECT_DOUBLE_EQ(even.hottest_to_mean, 1);
  EXPECT_NEAR(even.gini, 0, 1e-12);
  EXPECT_NEAR(even.effective, 4, 1e-12);
  const LoadSkew one = measure_skew(std::vector<int64_t>{0, 8, 0, 0});
  EXPECT_EQ(one.used, 1);
  EXPECT_DOUBLE_EQ(one.hottest_to_mean, 4);
  EXPECT_NEAR(one.gini, 0.75, 1e-12);  // (n - 1) / n
  EXPECT_NEAR(one.effective, 1, 1e-12);
  // Worked by hand: loads 1, 3 have Gini 1/4 and entropy 0.8113.
  const LoadSkew two = measure_skew(std::vector<int64_t>{3, 1});
  EXPECT_NEAR(two.gini, 0.25, 1e-12);
  EXPECT_NEAR(std::log2(two.effective), 0.8112781, 1e-6);
}

// One layer of 8 experts, one choice a token. Domain a uses experts 0 and 1, b uses 4 and 5.
std::string two_domains(const TempFolder& folder) {
  const TraceHeader header{
      .expert_bytes = 1000000, .experts = 8, .experts_per_token = 1, .layers = {2}};
  TraceWriter writer(folder.path("t"), header);
  TraceBlock block{.layers = 1,
                   .documents = {{1, "a"}, {2, "a"}, {3, "b"}, {4, "b"}},
                   .ids = {0, 0, 1, 0, 1, 4, 4, 5, 4, 4}};
  for (const uint32_t document : {0, 0, 0, 1, 1, 2, 2, 2, 3, 3}) {
    const bool follows = !block.tokens.empty() && block.tokens.back().document == document;
    block.tokens.push_back(
        {document, follows ? block.tokens.back().position + 1 : 0, TracePhase::kPrefill});
  }
  writer.write(block);
  writer.finish(10);
  return folder.path("t");
}

TEST(TraceStats, CoverageIsOfTheTextItWasNotChosenOn) {
  const TempFolder folder;
  const std::vector<std::string> paths = {two_domains(folder)};
  const TraceStats stats = measure_routing(load_routing(paths), nullptr);
  EXPECT_EQ(stats.tokens, 10);
  EXPECT_EQ(stats.documents, 4);
  // Chosen on the first and the third document, 0 0 1 and 4 4 5; of 0 and 4, which are used alike,
  // 0 comes first. Tested on 0 1 and 4 4.
  ASSERT_EQ(stats.coverage.front().top, 1);
  EXPECT_DOUBLE_EQ(stats.coverage.front().in_sample, 2.0 / 6);
  EXPECT_DOUBLE_EQ(stats.coverage.front().held_out, 1.0 / 4);
  EXPECT_EQ(stats.domain_top, 2);
  std::map<std::string, double> covered;
  for (const DomainCoverage& each : stats.domains) {
    covered[each.chosen_on + each.tested_on] = each.covered;
  }
  EXPECT_EQ(covered, (std::map<std::string, double>{{"aa", 1}, {"ab", 0}, {"ba", 0}, {"bb", 1}}));
}

TEST(TraceStats, ReuseCountsTokensThatFollowOneInTheirSequence) {
  const TempFolder folder;
  const std::vector<std::string> paths = {two_domains(folder)};
  // Of the six followers, 00, 44 and 44 repeat.
  EXPECT_DOUBLE_EQ(measure_routing(load_routing(paths), nullptr).overall.reuse, 0.5);
}

TEST(TraceStats, HeldOutTracesTestWhatAllTokensChose) {
  const TempFolder folder;
  const std::vector<std::string> paths = {two_domains(folder)};
  const RoutingTable table = load_routing(paths);
  const TraceStats stats = measure_routing(table, &table);
  for (const Coverage& each : stats.coverage) EXPECT_DOUBLE_EQ(each.in_sample, each.held_out);
}

TEST(TraceStats, TokensThatNotEveryLayerSawAreLeftOut) {
  const TempFolder folder;
  TraceHeader header{.experts = 8, .experts_per_token = 1, .layers = {2, 3}};
  TraceWriter writer(folder.path("t"), header);
  TraceBlock block{.layers = 1, .documents = {{1, "a"}}, .tokens = {{}, {}}, .ids = {3, 4}};
  writer.write(block);
  block.first_layer = 1;
  block.tokens.pop_back();
  block.ids = {7};
  writer.write(block);
  const std::vector<std::string> paths = {folder.path("t")};
  const RoutingTable table = load_routing(paths);
  EXPECT_EQ(table.tokens.size(), 1u);
  EXPECT_EQ(table.ids, (std::vector<uint16_t>{3, 7}));
  EXPECT_EQ(table.incomplete_tokens, 1);
  EXPECT_EQ(table.cut, paths);
}

TEST(TraceReport, JsonAndChartsHaveEveryPart) {
  const TempFolder folder;
  std::ostringstream out;
  run_trace_stats({.traces = {two_domains(folder)},
                   .held_out = {},
                   .cache_gb = {0.002, 1},
                   .replay_tokens = 100,
                   .svg_folder = folder.path("charts"),
                   .json = true},
                  out);
  simdjson::dom::parser parser;
  const simdjson::dom::element json = parser.parse(out.str());
  EXPECT_EQ(int64_t(json["tokens"]), 10);
  EXPECT_EQ(json["layers"].get_array().size(), 1u);
  // 0011... with room for two: all but the first use of 0, 1, 4, 5.
  EXPECT_DOUBLE_EQ(double(json["replay"]["ceiling"]), 0.6);
  EXPECT_EQ(int64_t(json["replay"]["sizes"].at(0)["experts"]), 2);
  EXPECT_DOUBLE_EQ(double(json["replay"]["sizes"].at(1)["LRU"]), 0.6);
  for (const char* chart : {"load.svg", "coverage.svg", "cache.svg"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path("charts") + "/" + chart));
  }
}

// A trace "t" of one token in one layer.
void import_one_token(const TempFolder& folder) {
  const std::string ids = folder.write("ids.jsonl", R"({"tok":0,"layers":[[1,2]]})"
                                                    "\n");
  import_trace({.json_lines = ids, .output = folder.path("t")});
}

TEST(TraceReport, GigabytesNeedTheSizeOfAnExpert) {
  const TempFolder folder;
  import_one_token(folder);
  std::ostringstream out;
  TraceStatsRequest request{
      .traces = {folder.path("t")}, .held_out = {}, .cache_gb = {1}, .replay_tokens = 10};
  EXPECT_EQ(thrown_message([&] { run_trace_stats(request, out); }),
            folder.path("t") +
                ": does not say how large an expert is, --cache-gb needs "
                "--expert-bytes");
  request.expert_bytes = 17547264;
  EXPECT_EQ(thrown_message([&] { run_trace_stats(request, out); }), "no error");
}

TEST(TraceReport, BytesOfATokenMayPassTwoToThe63) {
  const TempFolder folder;
  import_one_token(folder);
  std::ostringstream out;
  run_trace_stats({.traces = {folder.path("t")}, .expert_bytes = int64_t{1} << 62}, out);
  EXPECT_NE(out.str().find("a token's 9223.37 PB"), std::string::npos) << out.str();
}

TEST(TraceImport, JsonLinesBecomeATraceOfIds) {
  const TempFolder folder;
  const std::string lines = folder.write("kimi.jsonl",
                                         "{\"tok\":4,\"layers\":[[3,1],[0,2]]}\n\n"
                                         "{\"tok\":5,\"layers\":[[3,4],[2,5]]}\n");
  import_trace({.json_lines = lines, .output = folder.path("t")});
  TraceReader reader(folder.path("t"));
  EXPECT_EQ(reader.header().experts, 6);
  EXPECT_EQ(reader.header().layers, (std::vector<uint32_t>{0, 1}));
  EXPECT_FALSE(reader.header().has_weights);
  TraceBlock block;
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block.ids, (std::vector<uint16_t>{3, 1, 3, 4, 0, 2, 2, 5}));
  EXPECT_EQ(block.tokens[1], (TraceToken{0, 5, TracePhase::kDecode}));
  EXPECT_EQ(block.documents.front().domain, "kimi");
}

TEST(TraceImport, WhatIsNoTraceIsRefusedByLine) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& text, int64_t experts = 0) {
    const std::string path = folder.write("x", text);
    const std::string message = thrown_message([&] {
      import_trace({.json_lines = path, .output = folder.path("t"), .experts = experts});
    });
    return message.substr(std::min(message.size(), path.size()));
  };
  const std::string good = "{\"tok\":0,\"layers\":[[1,2]]}\n";
  EXPECT_EQ(refusal(""), ": has no token");
  EXPECT_NE(refusal("{\"tok\":0").find(": line 1: "), std::string::npos);
  EXPECT_EQ(refusal("{\"tok\":-1,\"layers\":[[1]]}"),
            ": line 1: \"tok\" is missing or not a token's number");
  EXPECT_EQ(refusal(good + "{\"tok\":1}"), ": line 2: \"layers\" is missing or not a list");
  EXPECT_EQ(refusal(good + "{\"tok\":1,\"layers\":[[1,65535]]}"),
            ": line 2: expert is 65535, expected 0 to 65534");
  EXPECT_EQ(refusal(good + "{\"tok\":1,\"layers\":[[1,1]]}"),
            ": line 2: a layer names an expert twice");
  EXPECT_EQ(refusal(good + "{\"tok\":1,\"layers\":[]}"),
            ": line 2: has other layers or choices than the first token, which has 1 layers with 2 "
            "experts");
  EXPECT_EQ(refusal("{\"tok\":0,\"layers\":[]}"),
            ": line 1: has no layer, or a layer without experts");
  EXPECT_EQ(refusal(good, 2), ": chooses expert 2, a layer has 2");
}

TEST(TraceMerge, AppendsTokensAndKeepsBlocksAsTheyAre) {
  const TempFolder folder;
  const std::string one = two_domains(folder);
  merge_traces({one, one, one}, folder.path("all"));
  const std::vector<std::string> paths = {folder.path("all")};
  const RoutingTable table = load_routing(paths);
  EXPECT_EQ(table.tokens.size(), 30u);
  EXPECT_EQ(table.documents.size(), 4u);  // the same texts
  EXPECT_TRUE(table.cut.empty());
  EXPECT_TRUE(std::equal(table.ids.begin(), table.ids.begin() + 10, table.ids.begin() + 20));
}

TEST(TraceMerge, RefusesOtherModelsCutTracesAndItsOwnInput) {
  const TempFolder folder;
  const std::string one = two_domains(folder);
  TraceWriter(folder.path("other"), {.experts = 9, .experts_per_token = 1, .layers = {2}})
      .finish(0);
  const auto refusal = [&](const std::vector<std::string>& traces, const std::string& output) {
    return thrown_message([&] { merge_traces(traces, output); });
  };
  EXPECT_NE(refusal({one, folder.path("other")}, folder.path("o")).find("is of another model"),
            std::string::npos);
  EXPECT_EQ(refusal({one}, one), one + ": is one of the traces to merge, expected another path");
  const std::vector<std::byte> whole = file_bytes(one);
  const std::string cut = folder.write("cut", std::span(whole).first(whole.size() - 3));
  EXPECT_EQ(refusal({cut}, folder.path("o")),
            cut + ": was cut; `k3c trace merge` takes whole traces only");
}

}  // namespace
}  // namespace k3
