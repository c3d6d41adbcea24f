#include <algorithm>
#include <vector>

#include "kernels/mla_attention.h"
#include "schema/error.h"

namespace k3::reference {
namespace {

double weight_at(const MatrixView& matrix, int64_t row, int64_t col) {
  return matrix.format == Format::kBf16 ? row_of<Bf16Row>(matrix, row)[col]
                                        : row_of<F32Row>(matrix, row)[col];
}

// Row `row` of kv_b times the latent of one position.
double expand(const MlaShape& shape, const MatrixView& kv_b, int64_t row, const float* latent) {
  double sum = 0;
  for (int64_t i = 0; i < shape.latent; ++i) sum += weight_at(kv_b, row, i) * latent[i];
  return sum;
}

}  // namespace

// As the model is defined: keys and values are expanded, head by head, and nothing is absorbed.
void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                   const float* cache, int64_t first_position, int64_t tokens, float* o) {
  K3_CHECK(kv_b.format == Format::kBf16 || kv_b.format == Format::kF32);
  const int64_t positions = first_position + tokens;
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.query_dim()));
  const auto at = [](int64_t row, int64_t width, int64_t i) {
    return static_cast<size_t>(row * width + i);
  };
  std::vector<double> keys(static_cast<size_t>(positions * shape.content_dim));
  std::vector<double> values(static_cast<size_t>(positions * shape.v_dim));
  std::vector<double> weights(static_cast<size_t>(positions));
  for (int64_t h = 0; h < shape.heads; ++h) {
    for (int64_t s = 0; s < positions; ++s) {
      const float* latent = cache + s * shape.cache_width();
      for (int64_t d = 0; d < shape.content_dim; ++d) {
        keys[at(s, shape.content_dim, d)] = expand(shape, kv_b, shape.key_row(h) + d, latent);
      }
      for (int64_t d = 0; d < shape.v_dim; ++d) {
        values[at(s, shape.v_dim, d)] = expand(shape, kv_b, shape.value_row(h) + d, latent);
      }
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const float* query = q + (t * shape.heads + h) * shape.query_dim();
      const int64_t seen = first_position + t + 1;
      for (int64_t s = 0; s < seen; ++s) {
        double dot = 0;
        for (int64_t d = 0; d < shape.content_dim; ++d) {
          dot += query[d] * keys[at(s, shape.content_dim, d)];
        }
        const float* extra = cache + s * shape.cache_width() + shape.latent;
        for (int64_t d = 0; d < shape.extra_dim; ++d) {
          dot += static_cast<double>(query[shape.content_dim + d]) * extra[d];
        }
        weights[static_cast<size_t>(s)] = dot * scale;
      }
      const double maximum = *std::max_element(weights.begin(), weights.begin() + seen);
      double sum = 0;
      for (int64_t s = 0; s < seen; ++s) {
        double& weight = weights[static_cast<size_t>(s)];
        weight = std::exp(weight - maximum);
        sum += weight;
      }
      for (int64_t d = 0; d < shape.v_dim; ++d) {
        double output = 0;
        for (int64_t s = 0; s < seen; ++s) {
          output += weights[static_cast<size_t>(s)] * values[at(s, shape.v_dim, d)];
        }
        o[(t * shape.heads + h) * shape.v_dim + d] = static_cast<float>(output / sum);
      }
    }
  }
}

}  // namespace k3::reference
