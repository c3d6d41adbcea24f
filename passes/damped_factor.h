// The triangular factor of a damped Gram matrix, for error feedback and for the propagated target.
//
// Blocked and by our own product, so that its bits, and with them all codes, are the same on every
// machine; a library's factor depends on the vector width and the cache sizes it finds.
#pragma once

#include <cstdint>
#include <span>

namespace k3 {

// The mean of the diagonal of `gram` [dim, dim].
double mean_diagonal(std::span<const float> gram, int64_t dim);

// Overwrites the lower triangle of `a` [dim, dim] with L, A + ridge x I = L L^T; only the lower
// triangle of A is read. A pivot below `ridge` can only be rounding and is taken as `ridge`, which
// is above 0. On all threads.
void factor_damped(std::span<float> a, int64_t dim, double ridge);

// Overwrites each row x of `rows` [n, dim] with x (L L^T)^-1. On all threads.
void solve_factored(std::span<float> rows, std::span<const float> factor, int64_t dim);

}  // namespace k3
