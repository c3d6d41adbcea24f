// The target of a matrix whose inputs are already off: with x the inputs of the original model and
// x_q those of the compressed one, |W x - W^ x_q|^2 is least around
//   W~ = W C (H_q + l I)^-1,   C = sum x x_q^T,   H_q = sum x_q x_q^T,
// not around W. What is left at W^ = W~ is error the layer inherits and no code can mend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace k3 {

// The map T with W~ = W T, [cols, cols]: strength x C (H_q + l I)^-1 + (1 - strength) x I, with l
// = damping x the mean of diag(H_q). Throws Error where H_q + l I is not positive definite.
std::vector<float> propagated_map(std::span<const float> gram, std::span<const float> cross_gram,
                                  int64_t cols, double strength, double damping);

}  // namespace k3
