// Small calibrations made by hand, for tests that read, break and merge them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "schema/calibration.h"
#include "schema/calibration_sums.h"
#include "schema/calibration_writer.h"
#include "schema/gram_place.h"

namespace k3 {

// A hash of a document that falls into `half`.
inline uint64_t document_of(CalibrationHalf half, uint64_t number) {
  return 4 * number + (half == CalibrationHalf::kSelect ? 0 : 1);
}

// What one half of one input was: the vectors themselves, as integers of 2^step.
struct MadeInput {
  std::string name;
  std::string matrix;
  std::vector<int16_t> steps;                          // by channel
  std::array<std::vector<std::vector<int64_t>>, 2> x;  // by half: [token][channel]
};

inline std::vector<int64_t> sums_of(const std::vector<std::vector<int64_t>>& y,
                                    const std::vector<std::vector<int64_t>>& x,
                                    const GramPlace& place) {
  std::vector<int64_t> sums;
  for (int64_t r = 0; r < place.width; ++r) {
    for (int64_t c = place.first_col(r); c < place.width; ++c) {
      int64_t sum = 0;
      for (size_t t = 0; t < x.size(); ++t) {
        sum += y[t][static_cast<size_t>(r)] * x[t][static_cast<size_t>(c)];
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

// Writes `inputs` as a calibration of one document a half, numbered `document`. With `source` it is
// a propagated one, whose source model read `source` (same steps).
inline void write_calibration(const std::string& path, const std::vector<MadeInput>& inputs,
                              uint64_t document = 1, const std::vector<MadeInput>& source = {}) {
  CalibrationWriter writer(path + ".growing");
  CalibrationIndex index;
  index.model_payload_xxh3 = 0x1234;
  if (!source.empty()) index.propagated_payload_xxh3 = 0x5678;
  index.texts = {{"calibration-made", 99 + document}};
  for (size_t half = 0; half < 2; ++half) {
    index.documents[half].tokens = std::ssize(inputs.front().x[half]);
    index.documents[half].xxh3 = {document_of(kCalibrationHalves[half], document)};
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const MadeInput& made = inputs[i];
    CalibrationInput input;
    input.name = made.name;
    input.width = std::ssize(made.steps);
    input.matrices = {{made.matrix, 77}};
    input.steps = writer.add(compress_steps(made.steps));
    if (!source.empty()) input.source_steps = writer.add(compress_steps(source[i].steps));
    const GramPlace triangle{input.width, true};
    const auto add = [&](const auto& y, const auto& x, const GramPlace& place) {
      return std::vector<Extent>{writer.add(compress_sums(sums_of(y, x, place)))};
    };
    for (size_t half = 0; half < 2; ++half) {
      input.sums[half].gram = add(made.x[half], made.x[half], triangle);
      if (source.empty()) continue;
      input.sums[half].cross = add(source[i].x[half], made.x[half], {input.width, false});
      input.sums[half].source_gram = add(source[i].x[half], source[i].x[half], triangle);
    }
    index.inputs.push_back(input);
  }
  writer.finish(index, path);
}

inline std::vector<MadeInput> two_inputs() {
  return {{"layers.0.attention",
           "model.layers.0.self_attn.q_proj.weight",
           {0, -2, -163},
           {{{{1, 2, 0}, {-3, 4, 0}}, {{5, -6, 0}}}}},
          {"layers.0.ffn",
           "model.layers.0.mlp.up_proj.weight",
           {3, 1},
           {{{{7, 0}, {0, -1}}, {{2, 2}}}}}};
}

}  // namespace k3
