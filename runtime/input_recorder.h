// Keeps what the matrices of one layer read, for all tokens: the rows and each channel's largest
// magnitude, which fixes its step. The first of the two sweeps of a Gram matrix.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/generate.h"
#include "runtime/row_store.h"
#include "schema/matrix_inputs.h"

namespace k3 {

class InputRecorder final : public RunObserver {
 public:
  // For the given inputs of one layer and no others. In memory, or with a `folder` in temporary
  // files NAME.INPUT there.
  InputRecorder(std::vector<SharedInput> inputs, int64_t rows, const std::string& folder,
                const std::string& name);

  // What passes next are the tokens from this row on.
  void at_row(int64_t row) { row_ = row; }

  bool wants_logits() const override { return false; }
  void on_logits(int64_t, const float*) override {}
  void on_layer(int64_t, int64_t, const float*) override {}
  void on_routing(int64_t, int64_t, const int32_t*, const float*) override {}
  // Throws Error when a value is not finite.
  void on_matrix_input(int64_t layer, MatrixInput input, int64_t tokens, int64_t width,
                       int64_t stride, const float* x) override;

  const std::vector<SharedInput>& inputs() const { return inputs_; }
  const RowStore& rows(size_t input) const { return stores_[input]; }
  std::vector<int16_t> exponents(size_t input) const;  // of each channel's step

 private:
  std::vector<SharedInput> inputs_;
  std::vector<RowStore> stores_;
  std::vector<std::vector<float>> maxima_;
  std::vector<float> packed_;
  int64_t row_ = 0;
};

}  // namespace k3
