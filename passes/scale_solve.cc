// With t_a the codes of group a, zero elsewhere, the loss as a function of changes x of the scales
// is x^T A x + 2 g^T x, A_ab = t_a^T (H + r I) t_b, g_a = t_a . q. The rows of A come from one
// product per group, t_a H, of which the part behind the group is enough: A is symmetric.
#include "passes/scale_solve.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "schema/float_product.h"

namespace k3 {
namespace {

constexpr double kRidge = 1e-9;  // of A's mean diagonal: two groups may have proportional outputs

// Sums in a fixed order that a compiler may still spread over a vector.
template <class T>
double dot_codes(const T* values, const int8_t* codes, int64_t count) {
  constexpr int64_t kLanes = 8;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += values[i + lane] * static_cast<float>(codes[i + lane]);
    }
  }
  double sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * codes[i];
  return sum;
}

// Solves A x = b for a symmetric positive definite A of which the lower triangle is given; b
// becomes x.
void solve_symmetric(std::vector<double>& a, std::vector<double>& b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
    double sum = b[i];
    for (size_t k = 0; k < i; ++k) sum -= a[i * n + k] * b[k];
    b[i] = sum / a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    b[i] /= a[i * n + i];
    for (size_t k = 0; k < i; ++k) b[k] -= a[i * n + k] * b[i];
  }
}

// Codes of one group as floats, [rows, 160].
void code_floats(const RowBlock& block, int64_t group, std::vector<float>& floats) {
  const int64_t begin = block.group_begin(group);
  for (int64_t r = 0; r < block.rows; ++r) {
    const int8_t* const codes = block.code_row(r) + begin;
    for (int64_t j = 0; j < block.group_size(group); ++j) {
      floats[static_cast<size_t>(r * kBlockInputs + j)] = static_cast<float>(codes[j]);
    }
  }
}

// A of every row, [rows, groups, groups], its lower triangle.
std::vector<double> normal_matrices(const RowBlock& block, const Loss& loss,
                                    double& multiplications) {
  const int64_t groups = block.groups;
  std::vector<double> normal(static_cast<size_t>(block.rows * groups * groups));
  std::vector<float> codes(static_cast<size_t>(block.rows * kBlockInputs));
  std::vector<float> outputs(block.slopes.size());
  for (int64_t a = 0; a < groups; ++a) {
    const int64_t begin = block.group_begin(a);
    const int64_t size = block.group_size(a);
    const int64_t behind = block.cols - begin;
    code_floats(block, a, codes);
    for (int64_t r = 0; r < block.rows; ++r) {
      std::fill_n(outputs.data() + r * block.stride + begin, behind, 0.0F);
    }
    add_float_product(block.rows, behind, size, {codes.data(), kBlockInputs},
                      {loss.gram.data() + begin * block.cols + begin, block.cols},
                      outputs.data() + begin, block.stride);
    multiplications += static_cast<double>(block.rows * size) * static_cast<double>(behind);
    for (int64_t r = 0; r < block.rows; ++r) {
      float* const own = outputs.data() + r * block.stride + begin;
      for (int64_t j = 0; j < size; ++j) {
        own[j] += loss.ridge * codes[static_cast<size_t>(r * kBlockInputs + j)];
      }
      for (int64_t b = a; b < groups; ++b) {
        const int64_t first = block.group_begin(b);
        normal[static_cast<size_t>((r * groups + b) * groups + a)] =
            dot_codes(outputs.data() + r * block.stride + first, block.code_row(r) + first,
                      block.group_size(b));
      }
    }
  }
  return normal;
}

// Changes of one row's scales. `normal` is its A.
std::vector<double> scale_changes(const RowBlock& block, int64_t row, const double* normal) {
  std::vector<size_t> solved;  // groups that have a say
  for (int64_t a = 0; a < block.groups; ++a) {
    if (normal[a * block.groups + a] > 0) solved.push_back(static_cast<size_t>(a));
  }
  const size_t n = solved.size();
  std::vector<double> changes(static_cast<size_t>(block.groups));
  std::vector<double> matrix(n * n);
  std::vector<double> right(n);
  double trace = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto a = static_cast<int64_t>(solved[i]);
    for (size_t j = 0; j <= i; ++j) {
      matrix[i * n + j] = normal[solved[i] * static_cast<size_t>(block.groups) + solved[j]];
    }
    trace += matrix[i * n + i];
    right[i] = -dot_codes(block.slope_row(row) + block.group_begin(a),
                          block.code_row(row) + block.group_begin(a), block.group_size(a));
  }
  for (size_t i = 0; i < n; ++i) matrix[i * n + i] += kRidge * trace / static_cast<double>(n);
  solve_symmetric(matrix, right);
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(right[i])) changes[solved[i]] = right[i];
  }
  return changes;
}

}  // namespace

double solve_scales(RowBlock& block, const Loss& loss) {
  double multiplications = 0;
  const std::vector<double> normal = normal_matrices(block, loss, multiplications);
  std::vector<float> moved(block.scales.size());  // new scale - old one
  for (int64_t r = 0; r < block.rows; ++r) {
    const std::vector<double> changes =
        scale_changes(block, r, normal.data() + r * block.groups * block.groups);
    for (int64_t a = 0; a < block.groups; ++a) {
      float& scale = block.scale_row(r)[a];
      const auto next = static_cast<float>(scale + changes[static_cast<size_t>(a)]);
      moved[static_cast<size_t>(r * block.groups + a)] = next - scale;
      scale = next;
    }
  }
  std::vector<float> values(static_cast<size_t>(block.rows * kBlockInputs));
  for (int64_t a = 0; a < block.groups; ++a) {
    const int64_t begin = block.group_begin(a);
    const int64_t size = block.group_size(a);
    code_floats(block, a, values);
    for (int64_t r = 0; r < block.rows; ++r) {
      const float change = moved[static_cast<size_t>(r * block.groups + a)];
      for (int64_t j = 0; j < size; ++j)
        values[static_cast<size_t>(r * kBlockInputs + j)] *= change;
    }
    multiplications += add_changes(block, loss, a, values);
    for (int64_t r = 0; r < block.rows; ++r) {
      float& scale = block.scale_row(r)[a];
      if (scale >= 0) continue;
      scale = -scale;
      int8_t* const codes = block.code_row(r) + begin;
      for (int64_t j = 0; j < size; ++j) codes[j] = static_cast<int8_t>(-codes[j]);
    }
  }
  return multiplications;
}

void round_scales(RowBlock& block, int64_t first_row, TernaryCodes& out) {
  constexpr double kLargestMultiplier = 255;
  for (int64_t r = 0; r < block.rows; ++r) {
    float* const scales = block.scale_row(r);
    const double largest = *std::max_element(scales, scales + block.groups);
    auto row_scale = static_cast<float>(largest / kLargestMultiplier);
    if (static_cast<double>(row_scale) * kLargestMultiplier < largest) {
      row_scale = std::nextafter(row_scale, INFINITY);
    }
    out.row_scales[static_cast<size_t>(first_row + r)] = row_scale;
    for (int64_t a = 0; a < block.groups; ++a) {
      const double multiplier =
          row_scale > 0 ? std::min(kLargestMultiplier,
                                   std::nearbyint(static_cast<double>(scales[a]) / row_scale))
                        : 0.0;
      out.row_multipliers(first_row + r)[static_cast<size_t>(a)] = static_cast<uint8_t>(multiplier);
      scales[a] = static_cast<float>(row_scale * multiplier);
      if (scales[a] > 0) continue;
      std::fill_n(block.code_row(r) + block.group_begin(a), block.group_size(a), int8_t{0});
    }
  }
}

}  // namespace k3
