// A pass: a row of the table in pipeline.cc and a free function over the Model.
//
// It sets plan fields of the Model, writes down what it decided, and adds to the problems what it
// cannot accept. It never holds a whole tensor.
#pragma once

#include <string>
#include <string_view>

#include "passes/model.h"
#include "passes/options.h"
#include "passes/pass_results.h"
#include "passes/problems.h"
#include "passes/progress.h"
#include "passes/solution_store.h"

namespace k3 {

struct PassContext {
  const Options& options;
  PassResults& results;
  Problems& problems;
  Progress& progress;
  std::string_view pass;  // the running pass's name
  // Where solved matrices are found and kept; null when none is to be solved.
  const SolutionStore* solutions = nullptr;

  // Writes down a choice of the running pass.
  void decide(std::string subject, std::string choice, std::string_view reason, double number) {
    results.decisions.push_back({std::move(subject), pass, std::move(choice), reason, number});
  }
  // Tells the user something with the result, beyond numbers.
  void note(std::string text) { results.notes.push_back(std::move(text)); }
  // Puts a number of the running pass into the pack's provenance.
  void record(std::string name, double value) {
    results.passes.back().numbers.emplace_back(std::move(name), value);
  }
};

struct Pass {
  std::string_view name;
  std::string_view summary;  // one line for --help
  void (*run)(Model& model, PassContext& context);
};

// The functions behind the table.
void count_checkpoint(Model& model, PassContext& context);  // census.cc
void rotate_stream(Model& model, PassContext& context);     // rotate_stream.cc
void choose_formats(Model& model, PassContext& context);    // ternary_trunk.cc
void apply_tuning(Model& model, PassContext& context);      // apply_tuning.cc
void choose_experts(Model& model, PassContext& context);    // prune_experts.cc
void choose_layouts(Model& model, PassContext& context);    // reorder_layout.cc
void assign_offsets(Model& model, PassContext& context);    // assign_offsets.cc

// "bank of layer 7", the subject of decisions about a bank.
inline std::string bank_subject(const Bank& bank) {
  return "bank of layer " + std::to_string(bank.layer);
}

}  // namespace k3
