// Shapes: up to four dimensions, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <span>

#include "schema/error.h"

namespace k3 {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    K3_CHECK(dims.size() <= kMaxRank);
    for (int i = 0; i < rank_; ++i) dims_[static_cast<size_t>(i)] = dims[static_cast<size_t>(i)];
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  // The product of the dimensions (1 for a scalar), or nothing when one is negative or the product
  // passes 2^62.
  std::optional<int64_t> elements() const {
    int64_t product = 1;
    for (int64_t dim : dims()) {
      if (dim < 0) return std::nullopt;
      if (__builtin_mul_overflow(product, dim, &product)) return std::nullopt;
    }
    if (product > (int64_t{1} << 62)) return std::nullopt;
    return product;
  }

  friend bool operator==(const Shape&, const Shape&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '[';
    for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
    return out << ']';
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace k3
