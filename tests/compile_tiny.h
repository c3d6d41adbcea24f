// A TinySource through pipeline, encode and writer: the pack, read back.
#pragma once

#include <string>

#include "compiler/encode.h"
#include "compiler/pack_encode.h"
#include "compiler/pack_plan.h"
#include "passes/pipeline.h"
#include "schema/pack_check.h"
#include "schema/pack_reader.h"
#include "tests/temp_folder.h"
#include "tests/tiny_model.h"

namespace k3 {

inline PackReader compile_tiny(TinySource& source, const TempFolder& folder,
                               const Options& options = {}) {
  Progress quiet(Progress::Style::kQuiet);
  source.open(folder);
  PassResults results = run_pipeline(source.model, options, quiet);
  const std::string path = folder.path("out.k3pack");
  PackWriter writer(path);
  EncodeJournal journal(writer.journal_path(), {}, encode_items(source.model), false);
  encode(source.model, results, writer, journal, quiet, 2);
  const PackIndex index = planned_index(source.model, results, options);
  writer.finish(align_up(results.data_end_bytes, kExtentAlignment),
                encode_index(encode_content(index.content), index.provenance, {}, {}),
                demanded_features(index.content.config));
  return PackReader(path);
}

}  // namespace k3
