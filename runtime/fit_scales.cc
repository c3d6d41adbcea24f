// Layer by layer, and inside a layer input by input (schema/matrix_inputs.h), in the order in which
// the forward pass comes to them. For each input all windows go through the layer once in both
// models; then the matrices that read it get their new scales, and the next input is already what
// the student makes of them. So an error made early is not repeated but answered by what follows,
// as far as scales can. That is what helps: fitted to what the teacher's matrix makes of the
// student's own inputs, scales that a solver chose come out no better, and on nano worse.
//
// The layer is run again for each of its four or five inputs. That costs five passes over the model
// and keeps nothing of it but sums.
#include "runtime/fit_scales.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "runtime/named_matrix.h"
#include "runtime/scale_equations.h"
#include "schema/error.h"
#include "schema/formats/block_scales.h"
#include "schema/matrix_inputs.h"

namespace k3 {
namespace {

// Holds scales of blocks that hardly anything reads; the tokens outnumber a row's scales a
// hundredfold, so it costs nothing elsewhere.
constexpr double kRidge = 1e-3;

// Copies what the matrices of one input read during one run of a layer.
class InputCopy final : public ForwardObserver {
 public:
  explicit InputCopy(MatrixInput input) : input_(input) {}
  void on_layer(int64_t, int64_t, const float*) override {}
  void on_routing(int64_t, int64_t, const int32_t*, const float*) override {}
  void on_matrix_input(int64_t, MatrixInput input, int64_t tokens, int64_t width, int64_t stride,
                       const float* x) override {
    if (input != input_) return;
    width_ = width;
    rows_.resize(static_cast<size_t>(tokens * width));
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(x + t * stride, width, rows_.data() + t * width);
    }
  }
  const float* rows() const { return rows_.data(); }
  int64_t width() const { return width_; }

 private:
  MatrixInput input_;
  int64_t width_ = 0;
  std::vector<float> rows_;
};

// A model with all windows standing in front of the same layer.
class Front {
 public:
  Front(LoadedModel& model, const TokenWindows& windows, int64_t longest)
      : model_(model),
        forward_(model.weights(), model.experts(), model.backend(), longest),
        scratch_(forward_.make_stream()) {
    for (const std::vector<int32_t>& window : windows.windows) {
      streams_.push_back(forward_.make_stream());
      forward_.embed(window, streams_.back());
      tokens_.push_back(std::ssize(window));
    }
  }

  LoadedModel& model() { return model_; }
  int64_t tokens(size_t window) const { return tokens_[window]; }

  // What the layer would do to a window; the window stays where it is.
  void look(int64_t layer, size_t window, ForwardObserver& observer) {
    scratch_ = streams_[window];
    run(layer, window, scratch_, &observer);
  }
  void advance(int64_t layer) {
    for (size_t window = 0; window < streams_.size(); ++window) {
      run(layer, window, streams_[window], nullptr);
    }
  }

 private:
  void run(int64_t layer, size_t window, ResidualStream& stream, ForwardObserver* observer) {
    SequenceState fresh(forward_.config());
    forward_.run_layer(layer, tokens_[window], stream, 0, fresh.layers[static_cast<size_t>(layer)],
                       observer);
  }

  LoadedModel& model_;
  Forward forward_;
  std::vector<ResidualStream> streams_;
  std::vector<int64_t> tokens_;
  ResidualStream scratch_;
};

class ScaleFit {
 public:
  ScaleFit(LoadedModel& student, LoadedModel& teacher, const TokenWindows& windows)
      : windows_(windows.windows.size()),
        longest_(longest(windows)),
        student_(student, windows, longest_),
        teacher_(teacher, windows, longest_) {}
  ~ScaleFit() {
    for (const auto& [place, view] : replaced_) *place = view;
  }
  ScaleFit(const ScaleFit&) = delete;
  ScaleFit& operator=(const ScaleFit&) = delete;

  void fit_layer(int64_t layer) {
    for (const SharedInput& input : matrix_inputs(student_.model().config(), layer)) {
      fit_input(input);
    }
    student_.advance(layer);
    teacher_.advance(layer);
  }
  std::vector<FittedMatrix> take() { return std::move(fitted_); }

 private:
  struct Matrix {
    std::string name;
    MatrixView* student;
    MatrixView* teacher;
    ScaleEquations equations;
  };

  static int64_t longest(const TokenWindows& windows) {
    size_t most = 0;
    for (const auto& window : windows.windows) most = std::max(most, window.size());
    return static_cast<int64_t>(most);
  }

  void fit_input(const SharedInput& input) {
    std::vector<Matrix> matrices;
    for (const std::string& name : input.matrices) {
      MatrixView* student = find_matrix(student_.model().weights(), name).view;
      MatrixView* teacher = find_matrix(teacher_.model().weights(), name).view;
      if (student == nullptr || !lies_in_blocks160(student->format)) continue;
      const std::string subject = student_.model().pack().path() + ": tensor " + name;
      matrices.push_back({name, student, teacher, ScaleEquations(*student, subject)});
    }
    if (matrices.empty()) return;
    InputCopy read(input.kind);
    InputCopy teacher_read(input.kind);
    std::vector<float> wanted;
    for (size_t window = 0; window < windows_; ++window) {
      const int64_t tokens = student_.tokens(window);
      student_.look(input.layer, window, read);
      teacher_.look(input.layer, window, teacher_read);
      for (Matrix& matrix : matrices) {
        wanted.resize(static_cast<size_t>(tokens * matrix.teacher->rows));
        teacher_.model().backend().matmul(*matrix.teacher, teacher_read.rows(), tokens,
                                          wanted.data());
        matrix.equations.add(read.rows(), read.width(), wanted.data(), tokens);
      }
    }
    for (Matrix& matrix : matrices) replace(matrix);
  }

  void replace(Matrix& matrix) {
    ScaleEquations::Solution solution = matrix.equations.solve(kRidge);
    const int64_t rows = matrix.equations.rows();
    const int64_t blocks = matrix.equations.blocks();
    const StoredScales& stored =
        *stored_.emplace_back(std::make_unique<StoredScales>(solution.scales, rows));
    replaced_.emplace_back(matrix.student, *matrix.student);
    matrix.student->scales = stored.multipliers.data();
    matrix.student->row_scales = stored.row_scales.data();
    const auto relative = [&](double square) {
      return solution.wanted > 0 ? std::sqrt(square / solution.wanted) : 0.0;
    };
    fitted_.push_back({matrix.name, rows, blocks, std::move(solution.scales),
                       relative(solution.before), relative(solution.after)});
  }

  size_t windows_;
  int64_t longest_;
  Front student_;
  Front teacher_;
  std::vector<std::unique_ptr<StoredScales>> stored_;
  std::vector<std::pair<MatrixView*, MatrixView>> replaced_;  // places, and what was there
  std::vector<FittedMatrix> fitted_;
};

}  // namespace

std::vector<FittedMatrix> fit_scales(LoadedModel& student, LoadedModel& teacher,
                                     const TokenWindows& windows,
                                     const std::function<void(double)>& on_progress) {
  ScaleFit fit(student, teacher, windows);
  const auto layers = std::ssize(student.config().layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    fit.fit_layer(layer);
    on_progress(static_cast<double>(layer + 1) / static_cast<double>(layers));
  }
  return fit.take();
}

}  // namespace k3
