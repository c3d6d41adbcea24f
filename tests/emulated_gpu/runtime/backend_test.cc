// The CUDA backend under the forward pass, on the emulated GPU: the same bits as the CPU's, and the
// fast ways are really taken.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "runtime/backend_choice.h"
#include "runtime/backend_memory.h"
#include "runtime/cuda_backend.h"
#include "runtime/loaded_model.h"
#include "schema/formats/bf16.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

constexpr int kNewTokens = 5;

LoadOptions options_for(const std::string& pack) {
  return {.pack_path = test::pack_path(pack), .chunk_tokens = 4};
}

// The logits after each of the new tokens, in which every bit that a pass computes has a part.
struct Decoded {
  std::vector<std::vector<float>> logits;
  SequenceState state;
};

Decoded decode(LoadedModel& model) {
  Decoded decoded{.logits = {}, .state = SequenceState(model.config())};
  std::span<const int32_t> prompt = test::kPrompt;
  while (!prompt.empty()) {
    const auto count = std::min<size_t>(4, prompt.size());
    model.forward().run(prompt.first(count), decoded.state);
    prompt = prompt.subspan(count);
  }
  for (int i = 0; i < kNewTokens; ++i) {
    decoded.logits.push_back(decoded.state.last_logits);
    const int32_t id = 7 * i + 3;
    model.forward().run({&id, 1}, decoded.state);
  }
  decoded.logits.push_back(decoded.state.last_logits);
  return decoded;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same(const Decoded& got, const Decoded& want) {
  ASSERT_EQ(got.logits.size(), want.logits.size());
  for (size_t i = 0; i < got.logits.size(); ++i) {
    EXPECT_TRUE(same_bits(got.logits[i], want.logits[i])) << "after " << i << " new tokens";
  }
}

class CudaBackendOf : public testing::TestWithParam<const char*> {};

TEST_P(CudaBackendOf, HasTheLogitsAndTheStateOfTheCpu) {
  LoadedModel cpu(options_for(GetParam()));
  const Decoded want = decode(cpu);
  LoadedModel cuda(options_for(GetParam()), make_cuda_backend({}));
  Decoded got = decode(cuda);
  expect_same(got, want);
  got.state.bring_home(cuda.config());
  for (size_t i = 0; i < want.state.layers.size(); ++i) {
    const LayerState& a = got.state.layers[i];
    const LayerState& b = want.state.layers[i];
    EXPECT_TRUE(same_bits(a.kda, b.kda)) << i;
    EXPECT_TRUE(same_bits(a.q_window, b.q_window)) << i;
    EXPECT_TRUE(same_bits(a.k_window, b.k_window)) << i;
    EXPECT_TRUE(same_bits(a.v_window, b.v_window)) << i;
    EXPECT_TRUE(same_bits(a.cache, b.cache)) << i;
  }
}

K3_FOR_EVERY_PACK(CudaBackendOf);

TEST(CudaBackend, RepeatsATokenAsOneGraphWithOneWait) {
  LoadedModel model(options_for("nano"), make_cuda_backend({}));
  SequenceState state(model.config());
  const int32_t id = 84;
  const auto counts_of_a_token = [&] {
    emulated::take_counts();
    model.forward().run({&id, 1}, state);
    return emulated::take_counts();
  };
  EXPECT_EQ(counts_of_a_token().graph_launches, 0);  // makes room
  EXPECT_EQ(counts_of_a_token().graph_launches, 1);  // captured, then run
  const emulated::Counts repeated = counts_of_a_token();
  EXPECT_EQ(repeated.graph_launches, 1);
  // Uploads of token and position, the end of the pass, and the logits.
  EXPECT_LE(repeated.waits, 4);

  // Another sequence lies elsewhere, so the graph is made anew.
  SequenceState other(model.config());
  model.forward().run({&id, 1}, other);
  EXPECT_EQ(emulated::take_counts().graph_launches, 0);
}

TEST(CudaBackend, KeepsSequencesThatTakeTurnsApart) {
  LoadedModel cpu(options_for("nano"));
  LoadedModel cuda(options_for("nano"), make_cuda_backend({}));
  SequenceState on_cpu[] = {SequenceState(cpu.config()), SequenceState(cpu.config())};
  SequenceState on_gpu[] = {SequenceState(cuda.config()), SequenceState(cuda.config())};
  // The first one's token is captured at its third turn in a row; the turns after it change.
  for (const int turn : {1, 0, 0, 0, 1, 0, 1, 1}) {
    const int32_t id = 40 + turn;
    cpu.forward().run({&id, 1}, on_cpu[turn]);
    cuda.forward().run({&id, 1}, on_gpu[turn]);
    EXPECT_TRUE(same_bits(on_gpu[turn].last_logits, on_cpu[turn].last_logits)) << turn;
  }
}

TEST(CudaBackend, GoesOnWhenTheCacheOutgrowsItsRoom) {
  LoadOptions options = options_for("nano");
  options.chunk_tokens = 64;
  options.layers = 4;
  LoadedModel cpu(options);
  LoadedModel cuda(options, make_cuda_backend({}));
  SequenceState on_cpu(cpu.config());
  SequenceState on_gpu(cuda.config());
  std::vector<int32_t> prompt;
  for (int i = 0; i < 64; ++i) prompt.push_back(5 + 3 * i);
  for (int chunk = 0; chunk < 4; ++chunk) {
    cpu.forward().run(prompt, on_cpu);
    cuda.forward().run(prompt, on_gpu);
  }
  for (int i = 0; i < 4; ++i) {  // from 256 positions on
    const int32_t id = 9 + i;
    cpu.forward().run({&id, 1}, on_cpu);
    cuda.forward().run({&id, 1}, on_gpu);
    EXPECT_TRUE(same_bits(on_gpu.last_logits, on_cpu.last_logits)) << i;
  }
}

TEST(CudaBackend, BringsExpertsFromTheHostWhenNotAllFit) {
  LoadedModel cpu(options_for("nano"));
  const Decoded want = decode(cpu);
  const PackReader pack(test::pack_path("nano"));
  const PackBank& bank = pack.index().content.banks.front();
  const int64_t expert = resident_bands(pack.config(), bank).extent_bytes() + 4096;
  for (const int64_t experts : {pack.config().experts_per_token, int64_t{24}}) {
    LoadedModel cuda(options_for("nano"), make_cuda_backend({.expert_bytes = experts * expert}));
    emulated::take_counts();
    expect_same(decode(cuda), want);
    EXPECT_EQ(emulated::take_counts().graph_launches, 0);
  }
  EXPECT_NE(thrown_message([&] {
              LoadedModel(options_for("nano"), make_cuda_backend({.expert_bytes = expert}));
            }).find("experts need "),
            std::string::npos);
}

// One token at two experts of a bank that nobody announced: every weight is another small number.
std::vector<float> outputs_of_bank(Backend& backend, Format format) {
  constexpr int64_t kWidth = 32;
  RoutedExpertsShape shape;
  shape.place = {.format = format, .latent = kWidth, .inner = kWidth};
  shape.fixed_point = 30;
  std::vector<std::vector<std::byte>> extents;
  std::vector<ExpertWeights> weights;
  for (int expert = 0; expert < 2; ++expert) {
    std::vector<std::byte>& extent = extents.emplace_back();
    for (int i = 0; i < 3 * kWidth * kWidth; ++i) {
      const float value = 0.01F * static_cast<float>((37 * i + 11 * expert) % 64 - 32);
      const uint16_t code = encode_bf16(value);
      const auto bytes = format == Format::kBf16 ? std::as_bytes(std::span(&code, 1))
                                                 : std::as_bytes(std::span(&value, 1));
      extent.insert(extent.end(), bytes.begin(), bytes.end());
    }
  }
  for (const auto& extent : extents) weights.push_back({.extent = extent.data()});
  const ExpertWeights* experts[] = {&weights[0], &weights[1]};
  const std::vector<float> z(kWidth, 1.5F);
  const std::vector<float> shares = {0.5F, 0.25F};
  Floats z_there = make_vector<float>(backend, kWidth);
  Floats shares_there = make_vector<float>(backend, 2);
  Floats u_there = make_vector<float>(backend, kWidth);
  backend.upload(z.data(), kWidth * int64_t{sizeof(float)}, z_there.data());
  backend.upload(shares.data(), 2 * int64_t{sizeof(float)}, shares_there.data());
  backend.routed_experts(shape, experts, shares_there.data(), 2, z_there.data(), 1, u_there.data());
  std::vector<float> u(kWidth);
  backend.download(u_there.data(), kWidth * int64_t{sizeof(float)}, u.data());
  return u;
}

TEST(CudaBackend, TakesBanksOfLargerExpertsThanTheFirst) {
  const auto cpu = make_backend("cpu");
  const auto cuda = make_cuda_backend({});
  for (const Format format : {Format::kBf16, Format::kF32, Format::kBf16}) {
    EXPECT_TRUE(same_bits(outputs_of_bank(*cuda, format), outputs_of_bank(*cpu, format)));
  }
}

TEST(CudaBackend, SaysHowMuchMemoryIsMissing) {
  const auto backend = make_cuda_backend({});
  emulated::set_device(emulated::default_device(), int64_t{1} << 26);
  const std::string message = thrown_message([&] { backend->allocate(int64_t{1} << 27); });
  EXPECT_TRUE(message.starts_with("the GPU's memory is full: 134217728 bytes are asked for, 6"))
      << message;
  EXPECT_TRUE(message.ends_with(" of 67108864 are free")) << message;
  emulated::set_device(emulated::default_device(), int64_t{1} << 32);
}

TEST(CudaBackend, MeasuresItsMemoryWhenWeightsLeaveLittleOfIt) {
  emulated::set_device(emulated::default_device(), int64_t{1} << 25);
  EXPECT_GT(make_cuda_backend({})->read_bandwidth().value_or(0), 0);
  emulated::set_device(emulated::default_device(), int64_t{1} << 32);
}

TEST(CudaBackend, LeavesExpertsToTheHostsCacheWhereTheMemoryIsTheHosts) {
  const PackReader pack(test::pack_path("nano"));
  constexpr int64_t kHostBytes = int64_t{1} << 30;
  const PackBank& bank = pack.index().content.banks.front();
  const int64_t slot = resident_bands(pack.config(), bank).extent_bytes() + 4096;
  cudaDeviceProp shared = emulated::default_device();
  shared.integrated = 1;
  emulated::set_device(shared, int64_t{1} << 32);
  const auto left = [&](int64_t expert_bytes) {
    return make_cuda_backend({.expert_bytes = expert_bytes})
        ->take_experts(pack, pack.config(), kHostBytes, false, false);
  };
  EXPECT_EQ(left(20 * slot), kHostBytes - 20 * slot);
  emulated::set_device(emulated::default_device(), int64_t{1} << 32);
  EXPECT_EQ(left(20 * slot), kHostBytes);
}

TEST(CudaBackend, ShowsObserversWhatTheCpuShows) {
  struct Streams final : ForwardObserver {
    std::vector<float> values;
    std::vector<int32_t> ids;
    void on_layer(int64_t, int64_t tokens, const float* hidden) override {
      values.insert(values.end(), hidden, hidden + tokens);
    }
    void on_routing(int64_t, int64_t tokens, const int32_t* source_ids,
                    const float* weights) override {
      ids.insert(ids.end(), source_ids, source_ids + tokens);
      values.insert(values.end(), weights, weights + tokens);
    }
    void on_matrix_input(int64_t, MatrixInput, int64_t, int64_t width, int64_t,
                         const float* x) override {
      values.insert(values.end(), x, x + width);
    }
  };
  const auto shown = [](LoadedModel& model) {
    Streams streams;
    SequenceState state(model.config());
    std::vector<float> logits(static_cast<size_t>(3 * model.config().vocab_size));
    model.forward().run(std::span(test::kPrompt).first(3), state, logits.data(), &streams);
    streams.values.insert(streams.values.end(), logits.begin(), logits.end());
    return streams;
  };
  LoadedModel cpu(options_for("odd"));
  LoadedModel cuda(options_for("odd"), make_cuda_backend({}));
  const Streams want = shown(cpu);
  const Streams got = shown(cuda);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_TRUE(same_bits(got.values, want.values));
}

TEST(CudaBackend, RunsLayerByLayerOnStreamsOfTheHost) {
  const auto stream_of = [](LoadedModel& model) {
    ResidualStream stream = model.forward().make_stream();
    const auto ids = std::span(test::kPrompt).first(3);
    model.forward().embed(ids, stream);
    for (int64_t layer = 0; layer < std::ssize(model.config().layers); ++layer) {
      LayerState state = fresh_layer_state(model.config(), layer);
      model.forward().run_layer(layer, 3, stream, 0, state, nullptr);
    }
    std::vector<float> logits(static_cast<size_t>(3 * model.config().vocab_size));
    model.forward().multiply_head(model.forward().finish(3, stream, nullptr), 3, logits.data());
    return logits;
  };
  LoadedModel cpu(options_for("nano"));
  LoadedModel cuda(options_for("nano"), make_cuda_backend({}));
  EXPECT_TRUE(same_bits(stream_of(cuda), stream_of(cpu)));
}

TEST(CudaBackend, ContinuesAStateThatWasSaved) {
  const TempFolder folder;
  const std::string path = folder.path("state");
  LoadedModel cuda(options_for("nano"), make_cuda_backend({}));
  Decoded first = decode(cuda);
  first.state.bring_home(cuda.config());
  save_state(first.state, cuda.config(), cuda.pack().payload_xxh3(), path);
  LoadedModel cpu(options_for("nano"));
  SequenceState loaded = load_state(cpu.config(), cpu.pack().payload_xxh3(), path);
  const int32_t id = 11;
  cuda.forward().run({&id, 1}, first.state);
  cpu.forward().run({&id, 1}, loaded);
  EXPECT_TRUE(same_bits(first.state.last_logits, loaded.last_logits));
}

TEST(CudaBackend, NamesTheLayerAfterWhichAValueIsNotFinite) {
  LoadedModel model(options_for("nano"), make_cuda_backend({}));
  ResidualStream stream = model.forward().make_stream();
  model.forward().embed(std::span(test::kPrompt).first(2), stream);
  stream.prefix[3] = -std::numeric_limits<float>::infinity();
  LayerState state = fresh_layer_state(model.config(), 0);
  const std::string message =
      thrown_message([&] { model.forward().run_layer(0, 2, stream, 0, state, nullptr); });
  EXPECT_NE(message.find("the stream after layer 0: value 0 is "), std::string::npos) << message;
  EXPECT_NE(message.find("(backend cuda)"), std::string::npos) << message;
}

TEST(CudaBackend, AuditsInDoubleNearTheExactNumerics) {
  LoadedModel cpu(options_for("odd_int8"));
  const Decoded want = decode(cpu);
  LoadedModel audit(options_for("odd_int8"), make_cuda_backend({.audits = true}));
  const Decoded got = decode(audit);
  double largest = 0;
  double size = 0;
  for (size_t i = 0; i < want.logits.size(); ++i) {
    for (size_t j = 0; j < want.logits[i].size(); ++j) {
      largest = std::max(largest, std::fabs(static_cast<double>(got.logits[i][j]) -
                                            static_cast<double>(want.logits[i][j])));
      size = std::max(size, std::fabs(static_cast<double>(want.logits[i][j])));
    }
  }
  EXPECT_GT(largest, 0);  // it is other arithmetic
  EXPECT_LT(largest, 1e-2 * size);
}

TEST(CudaDevice, RefusesWhatItCannotUse) {
  cudaDeviceProp none = emulated::default_device();
  none.major = 0;
  emulated::set_device(none, int64_t{1} << 32);
  EXPECT_NE(thrown_message([] { make_cuda_backend({}); }).find("no GPU can be used: "),
            std::string::npos);
  cudaDeviceProp older = emulated::default_device();
  older.major = 8;
  emulated::set_device(older, int64_t{1} << 32);
  EXPECT_EQ(thrown_message([] { make_cuda_backend({}); }),
            "the GPU is Emulated GPU (sm_80), 8.6 GB, expected one of emulated, for which this "
            "build has kernels");
  emulated::set_device(emulated::default_device(), int64_t{1} << 32);
}

TEST(CudaDevice, OnSharedMemoryFreeIsWhatTheKernelCallsAvailable) {
  cudaDeviceProp shared = emulated::default_device();
  shared.integrated = 1;
  shared.totalGlobalMem = size_t{1} << 50;
  emulated::set_device(shared, 4096);  // what cudaMemGetInfo says
  EXPECT_GT(free_device_bytes(open_cuda_device()), int64_t{1} << 20);
  shared.integrated = 0;
  emulated::set_device(shared, 4096);
  EXPECT_LE(free_device_bytes(open_cuda_device()), 4096);
  emulated::set_device(emulated::default_device(), int64_t{1} << 32);
}

}  // namespace
}  // namespace k3
