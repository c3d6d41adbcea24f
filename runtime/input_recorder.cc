#include "runtime/input_recorder.h"

#include <algorithm>
#include <utility>

#include "kernels/gram.h"
#include "schema/error.h"

namespace k3 {

InputRecorder::InputRecorder(std::vector<SharedInput> inputs, int64_t rows,
                             const std::string& folder, const std::string& name)
    : inputs_(std::move(inputs)) {
  for (const SharedInput& input : inputs_) {
    if (folder.empty()) {
      stores_.emplace_back(rows, input.width);
    } else {
      stores_.emplace_back(folder + "/" + name + "." + input.name, rows, input.width,
                           RowStore::Keeping::kTemporary);
    }
    maxima_.emplace_back(static_cast<size_t>(input.width));
  }
}

void InputRecorder::on_matrix_input(int64_t layer, MatrixInput input, int64_t tokens, int64_t width,
                                    int64_t stride, const float* x) {
  const auto found = std::find_if(inputs_.begin(), inputs_.end(), [&](const SharedInput& one) {
    return one.kind == input && one.layer == layer;
  });
  if (found == inputs_.end()) return;
  K3_CHECK(found->width == width);
  const auto i = static_cast<size_t>(found - inputs_.begin());
  if (stride != width) {
    packed_.resize(static_cast<size_t>(tokens * width));
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(x + t * stride, width, packed_.data() + t * width);
    }
    x = packed_.data();
  }
  stores_[i].write(row_, tokens, x);
  if (!cpu::raise_maxima(x, tokens, width, maxima_[i].data())) {
    throw Error("input ", found->name, " holds a value that is not finite");
  }
}

std::vector<int16_t> InputRecorder::exponents(size_t input) const {
  std::vector<int16_t> exponents;
  for (const float most : maxima_[input]) {
    exponents.push_back(static_cast<int16_t>(exact_channel_exponent(most)));
  }
  return exponents;
}

}  // namespace k3
