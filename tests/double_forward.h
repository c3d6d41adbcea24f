// The forward pass of a K3-like model in double, written out plainly: to judge by a factor of a
// million what a change of weights that should change nothing does. It shares no arithmetic with
// the programs; weights come from the plan's WeightRows.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "passes/model.h"
#include "passes/weight_rows.h"
#include "schema/error.h"
#include "schema/formats/mxfp4.h"

namespace k3 {

class DoubleForward {
 public:
  using Vector = std::vector<double>;
  using Vectors = std::vector<Vector>;  // by token

  explicit DoubleForward(const Model& model) : config_(model.config) {
    for (const TrunkTensor& tensor : model.trunk) {
      WeightRows source(model, tensor);
      Vector& values = tensors_[tensor.name];
      values.resize(static_cast<size_t>(source.rows() * source.cols()));
      source.read(0, std::span(values));
    }
    for (const Bank& bank : model.banks) {
      for (const Expert& expert : bank.experts) {
        Vectors& matrices = experts_[{bank.layer, expert.source_id}];
        for (const size_t codes : {size_t{0}, size_t{4}, size_t{2}}) {  // w1, w3, w2
          matrices.push_back(mxfp4(model, expert.sources[codes], expert.sources[codes + 1]));
        }
      }
    }
  }

  // The logits of every token.
  Vectors run(const std::vector<int32_t>& ids) {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    Vectors stream;
    for (const int32_t id : ids) {
      const auto row = get("model.embed_tokens.weight").begin() + id * config_.hidden_size;
      stream.emplace_back(row, row + config_.hidden_size);
    }
    std::vector<Vectors> snapshots;
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      const LayerConfig& kinds = config_.layers[i];
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      Vectors x = mix(stream, snapshots, layer + "self_attention_res");
      const bool starts_block =
          static_cast<int64_t>(i) % config_.attention_residual_block.value() == 0;
      if (starts_block) {
        snapshots.push_back(stream);
        for (Vector& token : stream) token.assign(hidden, 0.0);
      }
      x = normed(x, layer + "input_layernorm.weight", config_.rms_norm_epsilon);
      add(stream, kinds.attention == AttentionKind::kKda ? kda(layer + "self_attn.", x)
                                                         : mla(layer + "self_attn.", x));
      x = normed(mix(stream, snapshots, layer + "mlp_res"),
                 layer + "post_attention_layernorm.weight", config_.rms_norm_epsilon);
      add(stream, kinds.ffn == FfnKind::kDense
                      ? mlp(layer + "mlp.", basis().dense_block, x)
                      : mixture(static_cast<int64_t>(i), layer + "block_sparse_moe.", x));
    }
    return product("lm_head.weight", normed(mix(stream, snapshots, "model.output_attn_res"),
                                            "model.norm.weight", config_.rms_norm_epsilon));
  }

 private:
  RotatedBasis basis() const { return config_.rotation.value_or(RotatedBasis{}); }

  const Vector& get(const std::string& name) const { return tensors_.at(name); }

  static Vector mxfp4(const Model& model, const Source& codes, const Source& scales) {
    const auto read = [&](const Source& source) {
      std::vector<std::byte> bytes(static_cast<size_t>(source.length_bytes));
      model.shards[static_cast<size_t>(source.shard)]->read_at(source.offset_bytes, bytes);
      return bytes;
    };
    const auto code_bytes = read(codes);
    const auto scale_bytes = read(scales);
    Vector values(2 * code_bytes.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = decode_mxfp4(mxfp4_code_at(reinterpret_cast<const uint8_t*>(code_bytes.data()),
                                             static_cast<int64_t>(i)),
                               std::to_integer<uint8_t>(scale_bytes[i / 32]));
    }
    return values;
  }

  static Vector multiply(const Vector& matrix, const Vector& x) {
    Vector y(matrix.size() / x.size());
    for (size_t row = 0; row < y.size(); ++row) {
      y[row] = std::inner_product(
          x.begin(), x.end(), matrix.begin() + static_cast<std::ptrdiff_t>(row * x.size()), 0.0);
    }
    return y;
  }
  Vectors product(const std::string& name, const Vectors& x) const {
    Vectors y;
    for (const Vector& token : x) y.push_back(multiply(get(name), token));
    return y;
  }

  static void add(Vectors& to, const Vectors& from) {
    for (size_t t = 0; t < to.size(); ++t) {
      std::transform(to[t].begin(), to[t].end(), from[t].begin(), to[t].begin(), std::plus<>());
    }
  }

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  static Vector normed(const Vector& x, const Vector& gain, double epsilon) {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double rms = std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / rms * gain[i];
    return y;
  }
  Vectors normed(const Vectors& x, const std::string& gain, double epsilon) const {
    Vectors y;
    for (const Vector& token : x) y.push_back(normed(token, get(gain), epsilon));
    return y;
  }

  static void soften(Vector& scores) {
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - most);
    for (double& score : scores) score /= sum;
  }

  Vectors mix(const Vectors& stream, const std::vector<Vectors>& snapshots,
              const std::string& name) const {
    if (snapshots.empty()) return stream;
    Vectors mixed;
    for (size_t t = 0; t < stream.size(); ++t) {
      Vectors sources;
      for (const Vectors& snapshot : snapshots) sources.push_back(snapshot[t]);
      sources.push_back(stream[t]);
      Vector shares;
      for (const Vector& source : sources) {
        const Vector key = normed(source, get(name + "_norm.weight"), config_.rms_norm_epsilon);
        shares.push_back(multiply(get(name + "_proj.weight"), key)[0]);
      }
      soften(shares);
      Vector& sum = mixed.emplace_back(stream[t].size());
      for (size_t j = 0; j < sources.size(); ++j) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += shares[j] * sources[j][i];
      }
    }
    return mixed;
  }

  // The Hadamard blocks that the runtime applies, by their definition.
  static Vectors rotated(Vectors x, int64_t block) {
    const auto size = static_cast<size_t>(block);
    for (Vector& token : x) {
      const Vector input = token;
      for (size_t i = 0; i < token.size(); ++i) {
        const size_t begin = i / size * size;
        token[i] = 0;
        for (size_t j = 0; j < size; ++j) {
          const int ones = std::popcount((i - begin) & j);
          token[i] += (ones % 2 == 0 ? 1 : -1) * input[begin + j];
        }
        token[i] /= std::sqrt(static_cast<double>(block));
      }
    }
    return x;
  }

  Vectors convolved(const std::string& prefix, const std::string& which, const Vectors& x) const {
    const Vectors u = product(prefix + which + "_proj.weight", x);
    const Vector& taps = get(prefix + which + "_conv1d.weight");
    const auto kernel = static_cast<size_t>(config_.conv_kernel);
    Vectors y = u;
    for (size_t t = 0; t < u.size(); ++t) {
      for (size_t c = 0; c < u[t].size(); ++c) {
        double sum = 0;
        for (size_t tap = 0; tap < kernel; ++tap) {
          if (t + tap + 1 >= kernel) sum += taps[c * kernel + tap] * u[t + tap + 1 - kernel][c];
        }
        y[t][c] = sum * sigmoid(sum);
      }
    }
    return y;
  }

  Vectors kda(const std::string& prefix, const Vectors& x) const {
    const auto heads = static_cast<size_t>(config_.kda_heads);
    const auto dim = static_cast<size_t>(config_.kda_head_dim);
    const Vectors q = convolved(prefix, "q", x);
    const Vectors k = convolved(prefix, "k", x);
    const Vectors v = convolved(prefix, "v", x);
    const Vectors decay =
        product(prefix + "f_b_proj.weight", product(prefix + "f_a_proj.weight", x));
    const Vectors beta = product(prefix + "b_proj.weight", x);
    const Vectors gate = product(prefix + "g_proj.weight", x);
    Vectors out(x.size(), Vector(heads * dim));
    for (size_t h = 0; h < heads; ++h) {
      Vectors state(dim, Vector(dim));  // by key, value
      for (size_t t = 0; t < x.size(); ++t) {
        const auto part = [&](const Vectors& from, double scale) {
          const auto begin = from[t].begin() + static_cast<std::ptrdiff_t>(h * dim);
          Vector head(begin, begin + static_cast<std::ptrdiff_t>(dim));
          const double squares = std::inner_product(head.begin(), head.end(), head.begin(), 0.0);
          for (double& value : head) value *= scale / std::sqrt(squares + config_.qk_norm_epsilon);
          return head;
        };
        const Vector query = part(q, 1 / std::sqrt(static_cast<double>(dim)));
        const Vector key = part(k, 1);
        for (size_t r = 0; r < dim; ++r) {
          const double z = decay[t][h * dim + r] + get(prefix + "dt_bias")[h * dim + r];
          const double fade = std::exp(config_.decay_lower_bound.value() *
                                       sigmoid(std::exp(get(prefix + "A_log")[h]) * z));
          for (double& value : state[r]) value *= fade;
        }
        Vector o(dim);
        for (size_t c = 0; c < dim; ++c) {
          double seen = 0;
          for (size_t r = 0; r < dim; ++r) seen += state[r][c] * key[r];
          const double update = sigmoid(beta[t][h]) * (v[t][h * dim + c] - seen);
          for (size_t r = 0; r < dim; ++r) {
            state[r][c] += key[r] * update;
            o[c] += state[r][c] * query[r];
          }
        }
        o = normed(o, get(prefix + "o_norm.weight"), config_.rms_norm_epsilon);
        for (size_t c = 0; c < dim; ++c) out[t][h * dim + c] = o[c] * sigmoid(gate[t][h * dim + c]);
      }
    }
    return product(prefix + "o_proj.weight", rotated(out, basis().kda_block));
  }

  Vectors mla(const std::string& prefix, const Vectors& x) const {
    const auto content = static_cast<size_t>(config_.qk_content_dim);
    const auto extra = static_cast<size_t>(config_.qk_extra_dim);
    const auto value = static_cast<size_t>(config_.v_head_dim);
    const auto latent = static_cast<size_t>(config_.kv_lora_rank);
    const double epsilon = config_.low_rank_norm_epsilon;
    const Vectors q = product(
        prefix + "q_b_proj.weight",
        normed(product(prefix + "q_a_proj.weight", x), prefix + "q_a_layernorm.weight", epsilon));
    const Vectors entries = product(prefix + "kv_a_proj_with_mqa.weight", x);
    Vectors kv;
    for (const Vector& entry : entries) {
      const Vector head(entry.begin(), entry.begin() + static_cast<std::ptrdiff_t>(latent));
      kv.push_back(multiply(get(prefix + "kv_b_proj.weight"),
                            normed(head, get(prefix + "kv_a_layernorm.weight"), epsilon)));
    }
    const Vectors gate = product(prefix + "g_proj.weight", x);
    Vectors out(x.size(), Vector(static_cast<size_t>(config_.mla_heads) * value));
    for (size_t h = 0; h < static_cast<size_t>(config_.mla_heads); ++h) {
      for (size_t t = 0; t < x.size(); ++t) {
        const double* query = &q[t][h * (content + extra)];
        Vector shares(t + 1);
        for (size_t s = 0; s <= t; ++s) {
          for (size_t d = 0; d < content; ++d) {
            shares[s] += query[d] * kv[s][h * (content + value) + d];
          }
          for (size_t d = 0; d < extra; ++d)
            shares[s] += query[content + d] * entries[s][latent + d];
          shares[s] /= std::sqrt(static_cast<double>(content + extra));
        }
        soften(shares);
        for (size_t d = 0; d < value; ++d) {
          double sum = 0;
          for (size_t s = 0; s <= t; ++s) {
            sum += shares[s] * kv[s][h * (content + value) + content + d];
          }
          out[t][h * value + d] = sum * sigmoid(gate[t][h * value + d]);
        }
      }
    }
    return product(prefix + "o_proj.weight", rotated(out, basis().mla_block));
  }

  Vector activation(const Vector& gate, const Vector& up) const {
    const double beta = config_.situ_beta;
    const double linear = config_.situ_linear_beta;
    Vector y(gate.size());
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] =
          beta * std::tanh(gate[i] / beta) * sigmoid(gate[i]) * linear * std::tanh(up[i] / linear);
    }
    return y;
  }

  Vectors mlp(const std::string& prefix, int64_t block, const Vectors& x) const {
    const Vectors gate = product(prefix + "gate_proj.weight", x);
    const Vectors up = product(prefix + "up_proj.weight", x);
    Vectors inner;
    for (size_t t = 0; t < x.size(); ++t) inner.push_back(activation(gate[t], up[t]));
    return product(prefix + "down_proj.weight", rotated(inner, block));
  }

  Vectors mixture(int64_t layer, const std::string& prefix, const Vectors& x) const {
    const Vectors logits = product(prefix + "gate.weight", x);
    const Vectors z = product(prefix + "routed_expert_down_proj.weight", x);
    Vectors sums;
    for (size_t t = 0; t < x.size(); ++t) {
      const auto score = [&](int32_t expert) {
        return sigmoid(logits[t][static_cast<size_t>(expert)]);
      };
      const auto selection = [&](int32_t expert) {
        return score(expert) +
               get(prefix + "gate.e_score_correction_bias")[static_cast<size_t>(expert)];
      };
      std::vector<int32_t> chosen(logits[t].size());
      std::iota(chosen.begin(), chosen.end(), 0);
      std::stable_sort(chosen.begin(), chosen.end(),
                       [&](int32_t a, int32_t b) { return selection(a) > selection(b); });
      chosen.resize(static_cast<size_t>(config_.experts_per_token));
      double total = 0;
      for (const int32_t expert : chosen) total += score(expert);
      Vector& sum = sums.emplace_back(z[t].size());
      for (const int32_t expert : chosen) {
        const Vectors& w = experts_.at({layer, expert});
        const Vector y = multiply(w[2], activation(multiply(w[0], z[t]), multiply(w[1], z[t])));
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += score(expert) / total * y[i];
      }
    }
    sums = normed(sums, prefix + "routed_expert_norm.weight", config_.rms_norm_epsilon);
    Vectors y =
        product(prefix + "routed_expert_up_proj.weight", rotated(sums, basis().latent_block));
    add(y, mlp(prefix + "shared_experts.", basis().shared_block, x));
    return y;
  }

  ModelConfig config_;
  std::map<std::string, Vector> tensors_;
  std::map<std::pair<int64_t, int32_t>, Vectors> experts_;
};

}  // namespace k3
