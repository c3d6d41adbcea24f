// The payload hash of the untuned pack is that of its content, and the content is known: encode
// hashed what it replaced, and the places follow from the formats, which differ only where a gain
// became f32. So the plan is put back and laid out once more; no byte is encoded again.
#include "compiler/untuned_payload.h"

#include "compiler/pack_encode.h"
#include "compiler/pack_plan.h"
#include "passes/pass.h"
#include "passes/planned_extent.h"
#include "schema/error.h"
#include "schema/hash.h"

namespace k3 {
namespace {

void put_back(TrunkTensor& tensor) {
  if (!tensor.tuned) return;
  tensor.tuned.reset();
  tensor.tuned_codes.reset();
  if (!lies_in_blocks160(tensor.format)) tensor.format = source_format(tensor);
  tensor.extent.xxh3 = tensor.untuned_xxh3;
}

// Gives every extent its place and keeps its hash.
void lay_out(Model& model, const Options& options) {
  const Model encoded = model;
  PassResults results;
  results.passes.push_back({"assign_offsets", {}});
  Problems problems;
  Progress progress(Progress::Style::kQuiet);
  PassContext context{options, results, problems, progress, "assign_offsets"};
  assign_offsets(model, context);
  for (size_t i = 0; i < model.trunk.size(); ++i) {
    model.trunk[i].extent.xxh3 = encoded.trunk[i].extent.xxh3;
  }
  for (size_t bank = 0; bank < model.banks.size(); ++bank) {
    for (size_t i = 0; i < model.banks[bank].experts.size(); ++i) {
      model.banks[bank].experts[i].extent.xxh3 = encoded.banks[bank].experts[i].extent.xxh3;
    }
  }
  for (size_t i = 0; i < model.side_files.size(); ++i) {
    model.side_files[i].extent.xxh3 = encoded.side_files[i].extent.xxh3;
  }
}

}  // namespace

void check_tuning(const Model& model, const Options& options) {
  if (model.tuning == nullptr) return;
  Model untuned = model;
  for (TrunkTensor& tensor : untuned.trunk) put_back(tensor);
  lay_out(untuned, options);
  const PackContent content = planned_index(untuned, PassResults(), options).content;
  const uint64_t payload = xxh3(encode_content(content));
  if (payload == model.tuning->pack_payload_xxh3()) return;
  throw Error(model.tuning->path(), ": was tuned for the pack with payload ",
              hex_digits(model.tuning->pack_payload_xxh3()),
              ", without it this checkpoint and these options make payload ", hex_digits(payload));
}

}  // namespace k3
