// What information theory allows: the least output error that any code of so many bits a weight
// can reach, by reverse water-filling (Cover and Thomas, Elements of Information Theory, ch. 10).
//
// Model: the rows of W are draws from N(0, s^2 I), decoder and encoder know H. Then the eigenvalues
// l of H are the variances of independent Gaussian components, a water level t gives each of them
// an error min(l, t) and a rate max(0, log2(l / t) / 2), and both sums are over the same t. It is a
// bound for the average of such matrices, not a theorem about one, and too low where H is
// estimated from few tokens, since that makes small eigenvalues too small.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace k3 {

// The eigenvalues of gram [dim, dim], ascending, negative ones as 0, without those of inputs that
// are always 0. O(dim^3) on one thread.
std::vector<double> gram_spectrum(std::span<const float> gram, int64_t dim);

// The least relative error (an amplitude: sqrt of the share of energy) at `bits` a weight, >= 0.
double least_error(std::span<const double> spectrum, double bits);

// The bits a weight below which no code reaches the relative `error`: least_error's inverse.
// Infinite for error 0, 0 from error 1 on.
double least_bits(std::span<const double> spectrum, double error);

// rho = sqrt(geometric / arithmetic mean): 1 for white inputs. least_error is 2^-bits rho while
// every component is above water.
double spectral_flatness(std::span<const double> spectrum);

}  // namespace k3
