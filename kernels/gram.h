// Gram matrices of what passes: H = sum over tokens of x x', or C = sum of y x'.
//
// Exact: every channel has one power-of-two step for all tokens, found by a first sweep for its
// maximum; a second sweep turns values into int16 codes q = rint(x 2^-s) and adds products of codes
// in int64. |q| <= 32639, so a product stays below 2^30 and a sum of 2^33 tokens below 2^63.
// Integer addition has no order: tokens may come in any cut, on any thread.
//
// Against `reference` (float values, double sums in token order): |x - q 2^s| <= 2^(s - 1), so a
// token's product of channels i and j is off by at most 2^(s_i - 1) |x_j| + 2^(s_j - 1) |x_i| +
// 2^(s_i + s_j - 2), and with |x| <= 32639 2^s a sum over n tokens by n 2^(s_i + s_j) 32640; the
// double sum's own error, n^2 2^-53 of its terms' size, comes on top.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/quantize_activations.h"
#include "schema/gram_place.h"
#include "schema/host_device.h"

namespace k3 {

// A channel that was always zero has this exponent, which no value above zero gives.
inline constexpr int kZeroChannelExponent = -163;

K3_HOST_DEVICE inline int exact_channel_exponent(float magnitude) {
  return magnitude == 0.0F ? kZeroChannelExponent : activation_exponent(magnitude);
}

// rint(x 2^-exponent); |x| is at most the channel's maximum.
K3_HOST_DEVICE inline int16_t exact_channel_code(float x, int exponent) {
  return exact_activation_code(x, power_of_two(-exponent));
}

// The sum over `tokens` of a[t] b[t]; channels lie `a_stride` and `b_stride` apart.
K3_HOST_DEVICE inline int64_t exact_product_sum(const int16_t* a, int64_t a_stride,
                                                const int16_t* b, int64_t b_stride,
                                                int64_t tokens) {
  int64_t sum = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    sum += int64_t{a[t * a_stride]} * int64_t{b[t * b_stride]};
  }
  return sum;
}

}  // namespace k3

namespace k3::reference {
// y, x [tokens, width]; adds the sum of y x' to sums [place.entries(all rows)], in double and in
// the order of tokens.
void add_gram(const GramPlace& place, const float* y, const float* x, int64_t tokens, double* sums);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {

// maxima[c] = max(maxima[c], |x[t, c]|) for x [tokens, width]. Returns false when a value is not
// finite; the maxima then mean nothing.
bool raise_maxima(const float* x, int64_t tokens, int64_t width, float* maxima);

// The codes of at most kMostTokens tokens, in the order that add_gram multiplies them: by tiles of
// kTileChannels channels, in a tile by pairs of tokens, in a pair channel by channel.
class GramCodes {
 public:
  static constexpr int64_t kMostTokens = 512;
  static constexpr int64_t kTileChannels = 32;

  explicit GramCodes(int64_t width);
  // x [tokens, width]; exponents [width].
  void set(const float* x, int64_t tokens, const int16_t* exponents);

  int64_t width() const { return width_; }
  int64_t pairs() const { return pairs_; }
  // Of a tile, [pairs, kTileChannels, 2]: codes of an even and the next odd token.
  const int16_t* tile(int64_t tile) const {
    return codes_.data() + tile * kTileChannels * kMostTokens;
  }
  static int64_t bytes(int64_t width);

 private:
  int64_t width_;
  int64_t pairs_ = 0;
  std::vector<int16_t> codes_;
};

// Adds the sums of y x' of the tokens in `y` and `x`, which are the same ones, to the rows `rows`
// of a matrix at `place`; sums [place.entries(rows)] has these rows alone.
void add_gram(const GramPlace& place, RowRange rows, const GramCodes& y, const GramCodes& x,
              int64_t* sums);

}  // namespace k3::cpu
