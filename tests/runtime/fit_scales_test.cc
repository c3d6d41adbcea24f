#include "runtime/fit_scales.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/nano_tokenizer.h"
#include "tests/runtime/packs.h"

namespace k3 {
namespace {

TokenWindows some_windows(CalibrationHalf half) {
  return read_windows({K3_SOURCE_DIR "/examples/nano/text/calibration-prose.jsonl"}, half,
                      nano_tokenizer(), {128, 512});
}

TEST(FitScales, EveryMatrixComesNearerToItsTeacher) {
  LoadedModel student({.pack_path = test::pack_path("nano_ternary")});
  LoadedModel teacher({.pack_path = test::pack_path("nano")});
  double last = 0;
  const std::vector<FittedMatrix> fitted = fit_scales(
      student, teacher, some_windows(CalibrationHalf::kFit), [&](double share) { last = share; });
  EXPECT_EQ(last, 1);
  ASSERT_EQ(fitted.size(), 78U);
  for (const FittedMatrix& matrix : fitted) {
    EXPECT_LE(matrix.error_after, matrix.error_before) << matrix.name;
    EXPECT_EQ(std::ssize(matrix.scales), matrix.rows * matrix.blocks) << matrix.name;
  }
  // And the student is what it was.
  LoadedModel untouched({.pack_path = test::pack_path("nano_ternary")});
  const std::vector<int32_t> ids = {132, 84, 263};
  SequenceState state(student.config());
  SequenceState other(student.config());
  student.forward().run(ids, state);
  untouched.forward().run(ids, other);
  EXPECT_EQ(state.last_logits, other.last_logits);
}

TEST(FitScales, OfAModelToItselfFindNothingToMend) {
  LoadedModel student({.pack_path = test::pack_path("nano_ternary2")});
  LoadedModel teacher({.pack_path = test::pack_path("nano_ternary2")});
  for (const FittedMatrix& matrix :
       fit_scales(student, teacher, some_windows(CalibrationHalf::kSelect), [](double) {})) {
    // Not nothing: the backend rounds what a matrix reads to 16 bits, the equations do not, and by
    // that little a token may choose another expert. What the format itself costs is 0.2.
    EXPECT_LT(matrix.error_before, 0.05) << matrix.name;
    EXPECT_LE(matrix.error_after, matrix.error_before) << matrix.name;
  }
}

}  // namespace
}  // namespace k3
