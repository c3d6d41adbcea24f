// What an error of a matrix does to its output: tr(E H E^T), for any format.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace k3 {

// e H e^T of `count` rows e of `cols` floats, `stride` apart; gram is [cols, cols], symmetric.
// Products in float in the fixed order of float_product.h, sums in double: good to about 1e-6 of
// |e|^2 tr(H) / cols. On all threads.
std::vector<double> output_energies(const float* rows, int64_t count, int64_t stride, int64_t cols,
                                    std::span<const float> gram);

// sqrt(lost / energy); 0 where nothing is lost, which rounding may show as less than nothing, or
// there is no energy.
double relative_error(double lost, double energy);

// The relative error tr(E H E^T) of tr(W H W^T), and weights of the same shape [n, cols].
double output_error(std::span<const float> errors, std::span<const float> weights, int64_t cols,
                    std::span<const float> gram);

}  // namespace k3
