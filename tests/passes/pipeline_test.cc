#include "passes/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "passes/check_plan.h"
#include "passes/planned_extent.h"
#include "passes/ternary_round.h"
#include "schema/formats/ternary.h"
#include "schema/zstd.h"
#include "tests/thrown_message.h"
#include "tests/tiny_model.h"

namespace k3 {
namespace {

Progress quiet{Progress::Style::kQuiet};

Options int8_everywhere() {
  Options options;
  options.ternary_trunk.trunk = options.ternary_trunk.head = Precision::kInt8;
  return options;
}

TEST(Pipeline, RunsThePassesInTheDocumentedOrder) {
  Model model = tiny_model();
  const PassResults results = run_pipeline(model, {}, quiet);
  std::vector<std::string> names;
  for (const PassRecord& pass : results.passes) names.push_back(pass.name);
  EXPECT_EQ(names, (std::vector<std::string>{"census", "rotate_stream", "ternary_trunk", "tuning",
                                             "prune_experts", "reorder_layout", "assign_offsets"}));
}

TEST(Pipeline, StopsAfterThePassNamed) {
  Model model = tiny_model();
  const PassResults results = run_pipeline(model, {}, quiet, "prune_experts");
  EXPECT_EQ(results.passes.back().name, "prune_experts");
  EXPECT_EQ(results.data_end_bytes, 0);
  EXPECT_TRUE(results.reports.empty());
}

TEST(Pipeline, ByDefaultNothingIsQuantized) {
  Model model = tiny_model();
  run_pipeline(model, {}, quiet);
  for (const TrunkTensor& tensor : model.trunk) {
    EXPECT_EQ(tensor.format, tensor.dtype == Dtype::kF32 ? Format::kF32 : Format::kBf16);
    EXPECT_EQ(tensor.layout, Layout::kRowMajor);
  }
}

TEST(Pipeline, Int8TouchesOnlyWhatMayBeQuantized) {
  Model model = tiny_model();
  run_pipeline(model, int8_everywhere(), quiet);
  for (const TrunkTensor& tensor : model.trunk) {
    const bool expected = tensor.may_quantize || tensor.family == Family::kHead;
    EXPECT_EQ(tensor.format == Format::kInt8, expected) << tensor.name;
    EXPECT_EQ(tensor.layout == Layout::kBlocks160, expected) << tensor.name;
  }
}

TEST(Pipeline, TernaryTouchesTheTrunksMatricesAlone) {
  for (const auto& [precision, format] : {std::pair(Precision::kTernary, Format::kTernary),
                                          std::pair(Precision::kTernary2, Format::kTernary2)}) {
    const TempFolder folder;
    TinySource source;
    source.open(folder);
    Options options;
    options.ternary_trunk.trunk = precision;
    run_pipeline(source.model, options, quiet);
    for (const TrunkTensor& tensor : source.model.trunk) {
      EXPECT_EQ(tensor.format == format, tensor.may_quantize) << tensor.name;
      EXPECT_EQ(tensor.layout == Layout::kBlocks160, tensor.may_quantize) << tensor.name;
    }
  }
}

// What is lost of a bf16 matrix when each of its rows is rounded.
double relative_error(TinySource& source, const TrunkTensor& tensor) {
  const auto cols = static_cast<size_t>(tensor.shape[1]);
  const auto bytes = source.bytes_of(tensor.source);
  std::vector<float> weights;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    weights.push_back(decode_bf16(load_little_endian<uint16_t>(&bytes[i])));
  }
  const auto blocks = static_cast<size_t>(divide_up(tensor.shape[1], kBlockInputs));
  std::vector<int8_t> codes(blocks * kBlockInputs);
  std::vector<uint8_t> multipliers(blocks);
  double error = 0;
  double energy = 0;
  for (size_t begin = 0; begin < weights.size(); begin += cols) {
    const RoundedRow row =
        round_ternary_row(std::span(weights).subspan(begin, cols),
                          largest_ternary_code(tensor.format), codes, multipliers);
    error += row.squared_error;
    energy += row.squared_weights;
  }
  return std::sqrt(error / energy);
}

TEST(Pipeline, TernaryDecisionsTellWhatRoundingCostsEachMatrix) {
  for (const Precision precision : {Precision::kTernary, Precision::kTernary2}) {
    const TempFolder folder;
    TinySource source;
    source.open(folder);
    Options options;
    options.ternary_trunk.trunk = precision;
    const PassResults results = run_pipeline(source.model, options, quiet);
    int64_t told = 0;
    for (const TrunkTensor& tensor : source.model.trunk) {
      if (!tensor.may_quantize) continue;
      const auto decision = std::find_if(
          results.decisions.begin(), results.decisions.end(), [&](const Decision& candidate) {
            return candidate.subject == tensor.name && candidate.pass == "ternary_trunk";
          });
      ASSERT_NE(decision, results.decisions.end());
      ++told;
      EXPECT_EQ(decision->choice, precision_name(precision));
      EXPECT_NE(decision->reason.find("not trained"), std::string_view::npos);
      EXPECT_DOUBLE_EQ(decision->number, relative_error(source, tensor)) << tensor.name;
    }
    EXPECT_GT(told, 10);
    ASSERT_EQ(results.notes.size(), 1u);
    EXPECT_EQ(results.notes[0].rfind(std::to_string(told) + " matrices are ", 0), 0u);
    EXPECT_NE(results.notes[0].find("by rounding alone, untrained"), std::string::npos);
  }
}

TEST(Pipeline, TrunkAndHeadAreSeparateChoices) {
  for (const bool head : {false, true}) {
    Model model = tiny_model();
    Options options;
    (head ? options.ternary_trunk.head : options.ternary_trunk.trunk) = Precision::kInt8;
    run_pipeline(model, options, quiet);
    for (const TrunkTensor& tensor : model.trunk) {
      const bool chosen = head ? tensor.family == Family::kHead : tensor.may_quantize;
      EXPECT_EQ(tensor.format == Format::kInt8, chosen) << tensor.name;
    }
  }
}

TEST(Pipeline, ExtentsFollowEachOtherInModelOrder) {
  Model model = tiny_model();
  const PassResults results = run_pipeline(model, int8_everywhere(), quiet);
  int64_t expected = kExtentAlignment;
  const auto follows = [&](const Extent& extent) {
    EXPECT_EQ(extent.offset_bytes, expected);
    EXPECT_GT(extent.length_bytes, 0);
    expected = align_up(extent.end_bytes(), kExtentAlignment);
  };
  for (const TrunkTensor& tensor : model.trunk) follows(tensor.extent);
  for (const Expert& expert : model.banks[0].experts) follows(expert.extent);
  for (const SideFile& file : model.side_files) follows(file.extent);
  for (const PlannedReport& report : results.reports) follows(report.extent);
  EXPECT_EQ(align_up(results.data_end_bytes, kExtentAlignment), expected);
}

TEST(Pipeline, ExpertsComeInSourceOrderWithoutATrace) {
  Model model = tiny_model();
  std::reverse(model.banks[0].experts.begin(), model.banks[0].experts.end());
  run_pipeline(model, {}, quiet);
  for (size_t i = 0; i < model.banks[0].experts.size(); ++i) {
    EXPECT_EQ(model.banks[0].experts[i].source_id, static_cast<int32_t>(i));
  }
}

TEST(Pipeline, EveryTensorAndBankHasADecisionWithAReason) {
  Model model = tiny_model();
  const PassResults results = run_pipeline(model, int8_everywhere(), quiet);
  const auto count = [&](std::string_view pass) {
    return std::count_if(results.decisions.begin(), results.decisions.end(),
                         [&](const Decision& decision) {
                           EXPECT_FALSE(decision.reason.empty());
                           return decision.pass == pass;
                         });
  };
  EXPECT_EQ(count("ternary_trunk"), std::ssize(model.trunk));
  EXPECT_EQ(count("prune_experts"), 1);
  EXPECT_EQ(count("reorder_layout"), 1);
}

TEST(Pipeline, ReportsListDecisionsSourcesAndHashes) {
  Model model = tiny_model();
  const PassResults results = run_pipeline(model, {}, quiet);
  ASSERT_EQ(results.reports.size(), 3u);
  const auto text = [&](size_t i) {
    const auto raw =
        decompress_zstd(results.reports[i].stored, results.reports[i].raw_bytes, "report");
    return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  };
  EXPECT_EQ(results.reports[0].name, kDecisionsReport);
  EXPECT_EQ(text(0), format_decisions(results.decisions));
  EXPECT_EQ(results.reports[1].name, kSourcesReport);
  EXPECT_NE(text(1).find("p.lm_head.weight\tshard\t"), std::string::npos);
  EXPECT_NE(text(1).find("p.model.layers.1.block_sparse_moe.experts.3.w2.weight_scale\tshard\t"),
            std::string::npos);
  EXPECT_EQ(results.reports[2].name, kSourceHashesReport);
  EXPECT_EQ(results.reports[2].raw_bytes, 8 * (std::ssize(model.trunk) + 4));
}

TEST(Pipeline, CensusCountsTheSourceIntoTheProvenance) {
  Model model = tiny_model();
  model.dropped.push_back({Family::kVision, 2, 30, 60});
  const PassResults results = run_pipeline(model, {}, quiet, "census");
  const auto& numbers = results.passes[0].numbers;
  const auto number = [&](const std::string& name) {
    for (const auto& [got, value] : numbers) {
      if (got == name) return value;
    }
    return -1.0;
  };
  EXPECT_EQ(number("routed experts parameters"), 4 * 3 * 64 * 288);
  EXPECT_EQ(number("dropped bytes"), 60);
  EXPECT_EQ(number("checkpoint tensors"), static_cast<double>(model.trunk.size()) + 24 + 2);
}

TEST(Pipeline, AllProblemsOfAPassAreCounted) {
  Model model = tiny_model();
  model.trunk[0].dtype = Dtype::kI32;
  model.trunk[1].dtype = Dtype::kF16;
  const std::string message = thrown_message([&] { run_pipeline(model, {}, quiet); });
  EXPECT_NE(message.find("ternary_trunk: 2 problems, the first: tensor " + model.trunk[0].name +
                         ": is I32, expected F32 or BF16"),
            std::string::npos)
      << message;
}

// The plan as it is when everything has its place, to be broken.
struct FinishedPlan {
  Model model = tiny_model();
  PassResults results = run_pipeline(model, int8_everywhere(), quiet);

  std::string first_problem() const {
    Problems problems;
    check_plan(model, results, problems);
    return problems.empty() ? "none" : problems.lines()[0];
  }
};

TEST(CheckPlan, FindsWhatBreaksARule) {
  const auto problem = [](auto break_it) {
    FinishedPlan plan;
    EXPECT_EQ(plan.first_problem(), "none");
    break_it(plan);
    return plan.first_problem();
  };
  const auto expect = [&](const std::string& part, auto break_it) {
    const std::string got = problem(break_it);
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  expect("must stay as it is", [](FinishedPlan& plan) {
    for (TrunkTensor& tensor : plan.model.trunk) {
      if (tensor.family == Family::kRouter) tensor.format = Format::kInt8;
    }
  });
  expect("is to be ternary2, but must stay as it is", [](FinishedPlan& plan) {
    for (TrunkTensor& tensor : plan.model.trunk) {
      if (tensor.family == Family::kRouter) tensor.format = Format::kTernary2;
    }
  });
  expect("is BF16 and is to be f32", [](FinishedPlan& plan) {
    for (TrunkTensor& tensor : plan.model.trunk) {
      if (tensor.family == Family::kNorm) tensor.format = Format::kF32;
    }
  });
  expect("never re-encoded",
         [](FinishedPlan& plan) { plan.model.banks[0].format = Format::kBf16; });
  expect("keeps 3 and leaves out 0 of 4",
         [](FinishedPlan& plan) { plan.model.banks[0].experts.pop_back(); });
  expect("a token needs 2", [](FinishedPlan& plan) { plan.model.banks[0].experts.resize(1); });
  expect("expert 1 is there twice",
         [](FinishedPlan& plan) { plan.model.banks[0].experts[2].source_id = 1; });
  expect("extent is", [](FinishedPlan& plan) { plan.model.trunk[3].extent.offset_bytes += 64; });
  expect("extent is", [](FinishedPlan& plan) {
    plan.model.banks[0].experts[1].extent = plan.model.banks[0].experts[0].extent;
  });
  expect("extent is", [](FinishedPlan& plan) { ++plan.results.reports[2].extent.length_bytes; });
}

}  // namespace
}  // namespace k3
