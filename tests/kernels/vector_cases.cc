#include "tests/kernels/vector_cases.h"

#include <array>
#include <span>
#include <stdexcept>
#include <utility>

namespace k3 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kEpsilon = 1e-5;
constexpr std::array<double, 2> kBetas = {4.0, 25.0};  // K3's

std::vector<float> zeros(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count));
}
std::vector<float> copy(const float* values, int64_t count) {
  return std::vector<float>(values, values + count);
}

// ---- Running a case.

std::vector<VectorOutput> run_matmul(Backend& backend, const VectorCase& in) {
  const MatmulVector vector(in);
  std::vector<float> y = zeros(vector.tokens * vector.weights.rows);
  backend.matmul(vector.weights, vector.x, vector.tokens, y.data());
  return {{"y", std::move(y), {}}};
}

std::vector<VectorOutput> run_glu(Backend& backend, const VectorCase& in) {
  const double* betas = in.at<double>("betas");
  std::vector<float> y = zeros(in.size(1));
  backend.glu({static_cast<Activation>(in.size(0)), betas[0], betas[1]}, in.at<float>("gate"),
              in.at<float>("up"), in.size(1), y.data());
  return {{"y", std::move(y), {}}};
}

std::vector<VectorOutput> run_sigmoid_gate(Backend& backend, const VectorCase& in) {
  std::vector<float> y = zeros(in.size(0));
  backend.sigmoid_gate(in.at<float>("x"), in.at<float>("gate_logits"), in.size(0), y.data());
  return {{"y", std::move(y), {}}};
}

std::vector<VectorOutput> run_rms_norm(Backend& backend, const VectorCase& in) {
  std::vector<float> y = zeros(in.size(0) * in.size(1));
  backend.rms_norm(in.at<float>("x"), in.at<float>("weight"), in.size(0), in.size(1),
                   in.at<double>("epsilon")[0], y.data());
  return {{"y", std::move(y), {}}};
}

std::vector<VectorOutput> run_hadamard(Backend& backend, const VectorCase& in) {
  std::vector<float> y = zeros(in.size(0) * in.size(1));
  backend.hadamard(in.at<float>("x"), in.size(0), in.size(1), in.size(2), y.data());
  return {{"y", std::move(y), {}}};
}

std::vector<VectorOutput> run_mix(Backend& backend, const VectorCase& in) {
  const int64_t values = in.size(1) * in.size(2);
  std::vector<const float*> sources;
  for (int64_t j = 0; j < in.size(0); ++j) {
    sources.push_back(in.at<float>("sources") + j * values);
  }
  std::vector<float> y = zeros(values);
  backend.attention_residual_mix(sources, in.at<float>("norm"), in.at<float>("proj"), in.size(1),
                                 in.size(2), in.at<double>("epsilon")[0], y.data());
  return {{"y", std::move(y), {}}};
}

std::vector<VectorOutput> run_short_conv(Backend& backend, const VectorCase& in) {
  std::vector<float> y = zeros(in.size(0) * in.size(1));
  std::vector<float> window = copy(in.at<float>("window"), (in.size(2) - 1) * in.size(1));
  backend.short_conv(in.at<float>("x"), in.at<float>("weight"), in.size(0), in.size(1), in.size(2),
                     window.data(), y.data());
  return {{"y", std::move(y), {}}, {"window_after", std::move(window), {}}};
}

std::vector<VectorOutput> run_kda(Backend& backend, const VectorCase& in) {
  const double* constants = in.at<double>("constants");
  KdaShape shape{in.size(0), in.size(1), {}, constants[1]};
  if (in.size(3) != 0) shape.decay_lower_bound = constants[0];
  const KdaInputs inputs{in.at<float>("q"),           in.at<float>("k"),
                         in.at<float>("v"),           in.at<float>("decay_logits"),
                         in.at<float>("beta_logits"), in.at<float>("a_log"),
                         in.at<float>("dt_bias")};
  std::vector<float> state =
      copy(in.at<float>("state"), shape.heads * shape.head_dim * shape.head_dim);
  std::vector<float> o = zeros(in.size(2) * shape.heads * shape.head_dim);
  backend.kda(shape, inputs, in.size(2), state.data(), o.data());
  return {{"o", std::move(o), {}}, {"state_after", std::move(state), {}}};
}

std::vector<VectorOutput> run_kda_output_gate(Backend& backend, const VectorCase& in) {
  std::vector<float> y = zeros(in.size(0) * in.size(1) * in.size(2));
  backend.kda_output_gate(in.at<float>("o"), in.at<float>("norm_weight"),
                          in.at<float>("gate_logits"), in.size(0), in.size(1), in.size(2),
                          in.at<double>("epsilon")[0], y.data());
  return {{"y", std::move(y), {}}};
}

std::vector<VectorOutput> run_mla(Backend& backend, const VectorCase& in) {
  const MlaShape shape{in.size(0), in.size(1), in.size(2), in.size(3), in.size(4)};
  const MatrixView kv_b =
      view_matrix(static_cast<Format>(in.size(5)), shape.heads * (shape.content_dim + shape.v_dim),
                  shape.latent, reinterpret_cast<const std::byte*>(in.at<uint8_t>("kv_b")));
  std::vector<float> o = zeros(in.size(7) * shape.heads * shape.v_dim);
  backend.mla_attention(shape, in.at<float>("q"), kv_b, in.at<float>("cache"), in.size(6),
                        in.size(7), o.data());
  return {{"o", std::move(o), {}}};
}

std::vector<VectorOutput> run_route(Backend& backend, const VectorCase& in) {
  const RouterRule rule{in.size(0), in.size(1) != 0, in.at<double>("factor")[0]};
  std::vector<int32_t> slots(static_cast<size_t>(in.size(2) * in.size(0)));
  std::vector<float> weights(slots.size());
  std::vector<float> scores = zeros(in.size(2) * in.size(3));
  backend.route(rule, in.at<float>("logits"), in.at<float>("bias"), in.at<int32_t>("source_ids"),
                in.size(2), in.size(3), slots.data(), weights.data(), scores.data());
  return {{"slots", {}, std::move(slots)},
          {"weights", std::move(weights), {}},
          {"scores", std::move(scores), {}}};
}

std::vector<VectorOutput> run_routed_experts(Backend& backend, const VectorCase& in) {
  const RoutedExpertsVector vector(in);
  std::vector<float> u = zeros(in.size(3) * vector.shape.place.latent);
  backend.routed_experts(vector.shape, vector.experts, in.at<float>("weights"), in.size(4),
                         in.at<float>("z"), in.size(3), u.data());
  return {{"u", std::move(u), {}}};
}

struct VectorRunner {
  const char* operation;
  std::vector<VectorOutput> (*run)(Backend& backend, const VectorCase& in);
};
constexpr std::array<VectorRunner, 12> kRunners = {{
    {"matmul", run_matmul},
    {"glu", run_glu},
    {"sigmoid_gate", run_sigmoid_gate},
    {"rms_norm", run_rms_norm},
    {"hadamard", run_hadamard},
    {"attention_residual_mix", run_mix},
    {"short_conv", run_short_conv},
    {"kda", run_kda},
    {"kda_output_gate", run_kda_output_gate},
    {"mla_attention", run_mla},
    {"route", run_route},
    {"routed_experts", run_routed_experts},
}};

// ---- Making the cases, without outputs.

VectorCase matmul_case(Format format, int64_t rows, int64_t cols, int64_t tokens, int64_t seed) {
  VectorCase made("matmul", {static_cast<int64_t>(format), rows, cols, tokens, seed});
  if (seed != kStored) return made;
  const auto shape_seed = static_cast<uint64_t>(rows * 65536 + cols);
  uint8_t* weights = made.add<uint8_t>("weights", counted_matrix_bytes(format, rows, cols));
  fill_counted_matrix(shape_seed, format, rows, cols, reinterpret_cast<std::byte*>(weights));
  fill_counted_activations(shape_seed, tokens, cols, made.add<float>("x", tokens * cols));
  return made;
}

// A token whose vector holds an infinity, between two that do not.
VectorCase infinite_matmul_case(Format format) {
  VectorCase made("matmul", {static_cast<int64_t>(format), 3, 64, 3, kStored});
  uint8_t* weights = made.add<uint8_t>("weights", counted_matrix_bytes(format, 3, 64));
  fill_counted_matrix(9, format, 3, 64, reinterpret_cast<std::byte*>(weights));
  std::vector<float> x = counted_normals(9, 3 * 64);
  x[64 + 17] = kInfinity;
  made.add("x", x);
  return made;
}

struct Shape {
  int64_t rows, cols, tokens;
};
// Rows and columns around the edges of vectors, tiles, groups of 32 and blocks of 160.
constexpr Shape kStoredShapes[] = {
    {1, 1, 2},   {2, 31, 1},   {3, 32, 7},   {5, 33, 3},  {16, 64, 2},  {17, 159, 1}, {15, 160, 7},
    {7, 161, 4}, {33, 192, 3}, {4, 320, 17}, {3, 481, 2}, {257, 64, 1}, {513, 32, 2}, {9, 1600, 5}};
// Widths of K3: hidden, the dense layer's inner, experts', and a batch; and so many rows that a GPU
// takes them two by two.
constexpr Shape kCountedShapes[] = {{896, 7168, 3},  {96, 33792, 2},  {513, 7168, 17},
                                    {3072, 3584, 1}, {3584, 3072, 1}, {4099, 320, 1}};

std::vector<VectorCase> matmul_cases(Format format) {
  std::vector<VectorCase> cases;
  for (const Shape& shape : kStoredShapes) {
    if (format == Format::kMxfp4 && shape.cols % kMxfp4GroupInputs != 0) continue;
    cases.push_back(matmul_case(format, shape.rows, shape.cols, shape.tokens, kStored));
  }
  cases.push_back(infinite_matmul_case(format));
  for (const Shape& shape : kCountedShapes) {
    cases.push_back(matmul_case(format, shape.rows, shape.cols, shape.tokens,
                                static_cast<int64_t>(cases.size())));
  }
  return cases;
}

std::vector<float> with_special_values(std::vector<float> values) {
  const float special[] = {0.0F,  -0.0F,  kInfinity, -kInfinity, kNan,   1e-40F,
                           1e30F, -1e30F, 88.0F,     -88.0F,     710.0F, -710.0F};
  for (size_t i = 0; i < std::size(special); ++i) values[7 * i + 3] = special[i];
  return values;
}

std::vector<VectorCase> elementwise_cases() {
  constexpr int64_t kCount = 257;
  std::vector<VectorCase> cases;
  for (const Activation activation : {Activation::kSilu, Activation::kSitu}) {
    VectorCase& glu =
        cases.emplace_back("glu", std::vector<int64_t>{static_cast<int64_t>(activation), kCount});
    glu.add("betas", std::vector<double>(kBetas.begin(), kBetas.end()));
    glu.add("gate", with_special_values(counted_normals(1, kCount, 8)));
    glu.add("up", counted_normals(2, kCount, 30));
  }
  VectorCase& gate = cases.emplace_back("sigmoid_gate", std::vector<int64_t>{kCount});
  gate.add("x", counted_normals(3, kCount));
  gate.add("gate_logits", with_special_values(counted_normals(4, kCount, 20)));
  return cases;
}

// Among them one of K3's heads and its latent; some values of the first are not finite.
std::vector<VectorCase> hadamard_cases() {
  std::vector<VectorCase> cases;
  for (const auto& [tokens, width, block] :
       {std::array<int64_t, 3>{2, 96, 16}, {3, 6, 2}, {5, 128, 128}, {2, 3584, 512}}) {
    VectorCase& made = cases.emplace_back("hadamard", std::vector<int64_t>{tokens, width, block});
    std::vector<float> x = counted_normals(32, tokens * width, 3);
    made.add("x", cases.size() == 1 ? with_special_values(std::move(x)) : std::move(x));
  }
  return cases;
}

std::vector<VectorCase> norm_cases() {
  std::vector<VectorCase> cases;
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{3, 1}, {2, 33}, {1, 7168}}) {
    VectorCase& norm = cases.emplace_back("rms_norm", std::vector<int64_t>{tokens, width});
    norm.add("epsilon", std::vector<double>{kEpsilon});
    norm.add("x", counted_normals(5, tokens * width, 3));
    norm.add("weight", counted_normals(6, width));
  }
  for (const auto& [sources, hidden] : {std::pair<int64_t, int64_t>{1, 33}, {2, 65}, {9, 1056}}) {
    constexpr int64_t kTokens = 2;
    VectorCase& mix = cases.emplace_back("attention_residual_mix",
                                         std::vector<int64_t>{sources, kTokens, hidden});
    mix.add("epsilon", std::vector<double>{kEpsilon});
    mix.add("sources", counted_normals(7, sources * kTokens * hidden, 5));
    mix.add("norm", counted_normals(8, hidden));
    mix.add("proj", counted_normals(9, hidden, 0.1F));
  }
  return cases;
}

void add_kda_case(std::vector<VectorCase>& cases, int64_t heads, int64_t dim, int64_t tokens,
                  bool bounded) {
  const int64_t width = heads * dim;
  VectorCase& kda =
      cases.emplace_back("kda", std::vector<int64_t>{heads, dim, tokens, bounded ? 1 : 0});
  kda.add("constants", std::vector<double>{bounded ? -5.0 : 0.0, 1e-6});
  kda.add("q", counted_normals(10, tokens * width));
  kda.add("k", counted_normals(11, tokens * width));
  kda.add("v", counted_normals(12, tokens * width));
  kda.add("decay_logits", counted_normals(13, tokens * width));
  kda.add("beta_logits", counted_normals(14, tokens * heads));
  kda.add("a_log", counted_normals(15, heads));
  kda.add("dt_bias", counted_normals(16, width));
  kda.add("state", counted_normals(17, width * dim));
}

std::vector<VectorCase> kda_cases() {
  std::vector<VectorCase> cases;
  add_kda_case(cases, 3, 4, 5, true);
  add_kda_case(cases, 2, 65, 2, false);
  add_kda_case(cases, 2, 128, 3, true);
  for (const auto& [tokens, channels] : {std::pair<int64_t, int64_t>{1, 65}, {5, 130}}) {
    constexpr int64_t kTaps = 4;
    VectorCase& conv =
        cases.emplace_back("short_conv", std::vector<int64_t>{tokens, channels, kTaps});
    conv.add("x", counted_normals(18, tokens * channels));
    conv.add("weight", counted_normals(19, channels * kTaps));
    conv.add("window", counted_normals(20, (kTaps - 1) * channels));
  }
  VectorCase& gate = cases.emplace_back("kda_output_gate", std::vector<int64_t>{2, 3, 65});
  gate.add("epsilon", std::vector<double>{kEpsilon});
  gate.add("o", counted_normals(21, 2 * 3 * 65));
  gate.add("norm_weight", counted_normals(22, 65));
  gate.add("gate_logits", counted_normals(23, 2 * 3 * 65, 4));
  return cases;
}

void add_mla_case(std::vector<VectorCase>& cases, const MlaShape& shape, Format format,
                  int64_t first_position, int64_t tokens) {
  const int64_t rows = shape.heads * (shape.content_dim + shape.v_dim);
  VectorCase& mla = cases.emplace_back(
      "mla_attention",
      std::vector<int64_t>{shape.heads, shape.content_dim, shape.extra_dim, shape.v_dim,
                           shape.latent, static_cast<int64_t>(format), first_position, tokens});
  mla.add("q", counted_normals(24, tokens * shape.heads * shape.query_dim(), 2));
  uint8_t* kv_b = mla.add<uint8_t>("kv_b", counted_matrix_bytes(format, rows, shape.latent));
  fill_counted_matrix(25, format, rows, shape.latent, reinterpret_cast<std::byte*>(kv_b));
  mla.add("cache", counted_normals(26, (first_position + tokens) * shape.cache_width()));
}

std::vector<VectorCase> mla_cases() {
  std::vector<VectorCase> cases;
  const MlaShape odd{5, 7, 3, 6, 33};
  for (const int64_t first_position : {0, 62, 127}) {
    add_mla_case(cases, odd, Format::kBf16, first_position, 3);
    add_mla_case(cases, odd, Format::kF32, first_position, 1);
  }
  add_mla_case(cases, {1, 128, 64, 128, 512}, Format::kBf16, 69, 1);  // one head of K3
  return cases;
}

void add_route_case(std::vector<VectorCase>& cases, int64_t k, bool renormalize,
                    std::vector<float> logits, std::vector<float> bias, int64_t tokens) {
  const auto experts = static_cast<int64_t>(bias.size());
  VectorCase& route =
      cases.emplace_back("route", std::vector<int64_t>{k, renormalize ? 1 : 0, tokens, experts});
  std::vector<int32_t> source_ids;  // a permutation, for 5 divides no count of experts here
  for (int64_t e = 0; e < experts; ++e) {
    source_ids.push_back(static_cast<int32_t>(e * 5 % experts));
  }
  route.add("factor", std::vector<double>{2.5});
  route.add("logits", logits);
  route.add("bias", bias);
  route.add("source_ids", source_ids);
}

std::vector<VectorCase> route_cases() {
  std::vector<VectorCase> cases;
  std::vector<float> logits = counted_normals(27, 3 * 37);
  for (size_t e = 0; e < 37; ++e) logits[e] = e % 2 == 0 ? 1.0F : -1.0F;  // ties
  logits[37 + 5] = kNan;
  std::vector<float> bias(37, 0.0F);
  bias[4] = -kInfinity;
  add_route_case(cases, 4, true, logits, bias, 3);
  std::vector<float> masked(37, -kInfinity);
  masked[9] = masked[20] = 0.0F;
  add_route_case(cases, 4, false, logits, masked, 1);
  add_route_case(cases, 16, true, counted_normals(28, 2 * 896), counted_normals(29, 896, 0.1F), 2);
  return cases;
}

// Every part of every expert has the same least exponent.
void fill_experts(const ExpertBands& place, int64_t experts, uint8_t* extents) {
  const int64_t stride = align_up(place.extent_bytes(), kPlaneAlignment);
  for (int64_t e = 0; e < experts; ++e) {
    auto* extent = reinterpret_cast<std::byte*>(extents + e * stride);
    for (int64_t part_index = 0; part_index < 3 * place.bands(); ++part_index) {
      const auto matrix = static_cast<ExpertMatrix>(part_index % 3);
      const ExpertBands::Part part = place.part(part_index / 3, matrix);
      const auto seed = static_cast<uint64_t>(100 + e * 64 + part_index);
      if (place.format == Format::kMxfp4) {
        fill_counted_mxfp4(seed, part.rows * part.cols / kMxfp4GroupInputs, kCountedLeastExponent,
                           extent + part.codes_offset, extent + part.scales_offset);
      } else {
        fill_counted_matrix(seed, place.format, part.rows, part.cols, extent + part.codes_offset);
      }
    }
  }
}

void add_experts_case(std::vector<VectorCase>& cases, const ExpertBands& place, int64_t tokens,
                      int64_t k, int64_t experts, Activation activation) {
  VectorCase& made = cases.emplace_back(
      "routed_experts",
      std::vector<int64_t>{static_cast<int64_t>(place.format), place.latent, place.inner, tokens, k,
                           experts, 24, static_cast<int64_t>(activation)});
  made.add("betas", std::vector<double>(kBetas.begin(), kBetas.end()));
  fill_experts(
      place, experts,
      made.add<uint8_t>("extents", experts * align_up(place.extent_bytes(), kPlaneAlignment)));
  made.add("least_exponents",
           std::vector<uint8_t>(static_cast<size_t>(3 * experts), uint8_t{kCountedLeastExponent}));
  std::vector<int32_t> slots;
  std::vector<float> weights;
  for (int64_t i = 0; i < tokens * k; ++i) {
    const bool is_null = k > 1 && i == 1;  // an expert that the pack left out
    slots.push_back(is_null ? -1 : static_cast<int32_t>((i / k + i % k) % experts));
    weights.push_back(std::fabs(counted_normal(30, i)));
  }
  made.add("slots", slots);
  made.add("weights", weights);
  made.add("z", counted_normals(31, tokens * place.latent));
}

std::vector<VectorCase> experts_cases() {
  std::vector<VectorCase> cases;
  add_experts_case(cases, {Format::kMxfp4, 96, 320}, 3, 3, 4, Activation::kSitu);
  add_experts_case(cases, {Format::kMxfp4, 32, 32}, 9, 2, 2, Activation::kSitu);
  add_experts_case(cases, {Format::kMxfp4, 384, 512}, 1, 1, 1, Activation::kSitu);
  add_experts_case(cases, {Format::kMxfp4, 64, 64}, 2, 2, 3, Activation::kSilu);
  add_experts_case(cases, {Format::kBf16, 41, 70}, 3, 2, 3, Activation::kSitu);
  add_experts_case(cases, {Format::kF32, 33, 257}, 2, 1, 2, Activation::kSitu);
  add_experts_case(cases, {Format::kMxfp4, 32, 2336}, 1, 1, 1, Activation::kSitu);  // ten bands
  return cases;
}

void add_outputs(Backend& exact, VectorCase& made) {
  for (const VectorOutput& output : run_vector(exact, made)) {
    if (!output.integers.empty()) {
      made.add(output.name, output.integers);
    } else if (made.operation() == "matmul" && made.size(4) != kStored) {
      made.add("y_hash", std::vector<uint64_t>{hash_outputs(
                             output.values.data(), static_cast<int64_t>(output.values.size()))});
    } else {
      made.add(output.name, output.values);
    }
  }
}

}  // namespace

std::vector<VectorOutput> run_vector(Backend& backend, const VectorCase& in) {
  for (const VectorRunner& runner : kRunners) {
    if (runner.operation == in.operation()) return runner.run(backend, in);
  }
  throw std::runtime_error("no operation " + in.operation());
}

std::vector<VectorFileCases> make_vectors(Backend& exact) {
  std::vector<VectorFileCases> files;
  for (const Format format : kAllFormats) {
    files.push_back({"matmul_" + std::string(format_name(format)), matmul_cases(format)});
  }
  files.push_back({"elementwise", elementwise_cases()});
  files.push_back({"hadamard", hadamard_cases()});
  files.push_back({"norms", norm_cases()});
  files.push_back({"kda", kda_cases()});
  files.push_back({"mla_attention", mla_cases()});
  files.push_back({"route", route_cases()});
  files.push_back({"routed_experts", experts_cases()});
  for (VectorFileCases& file : files) {
    for (VectorCase& made : file.cases) add_outputs(exact, made);
  }
  return files;
}

}  // namespace k3
