#include "schema/pack_reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>

#include "schema/pack_check.h"
#include "schema/pack_decode.h"
#include "schema/pack_extents.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

constexpr int64_t kTwoTo40 = int64_t{1} << 40;
constexpr int64_t kMinus8 = -8;  // 2^64 - 8 on disk

// The message with which a pack is refused after `break_it`.
std::string refusal(const std::function<void(TinyPack&)>& break_it) {
  const TempFolder folder;
  TinyPack pack;
  break_it(pack);
  const std::string path = folder.write("p.k3pack", pack.image());
  const std::string message = thrown_message([&] { PackReader reader(path); });
  if (message == "no error") return message;
  EXPECT_EQ(message.rfind(path + ": ", 0), 0u) << message;
  return message.substr(path.size() + 2);
}

void expect_refused(const std::string& part, const std::function<void(TinyPack&)>& break_it) {
  const std::string message = refusal(break_it);
  EXPECT_NE(message.find(part), std::string::npos) << "got: " << message << "\nwant: " << part;
}

PackTensor& some_matrix(TinyPack& pack) {
  return pack.tensor("model.layers.0.mlp.up_proj.weight");
}
PackBank& the_bank(TinyPack& pack) {
  return pack.index.content.banks[0];
}

TEST(PackReader, ReadsBackWhatWasWritten) {
  const TempFolder folder;
  TinyPack tiny;
  const PackReader pack(folder.write("p.k3pack", tiny.image()));
  EXPECT_EQ(pack.config(), tiny_config());
  EXPECT_EQ(pack.index().content.tensors.size(), tiny.index.content.tensors.size());
  EXPECT_EQ(pack.payload_xxh3(), xxh3(encode_content(tiny.index.content)));

  const PackTensor& want = tiny.tensor("lm_head.weight");
  const PackTensor* const got = pack.find("lm_head.weight");
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->format, Format::kInt8);
  EXPECT_EQ(got->layout, Layout::kBlocks160);
  EXPECT_EQ(got->shape, want.shape);
  EXPECT_EQ(got->extent, want.extent);
  std::vector<std::byte> bytes(static_cast<size_t>(got->extent.length_bytes));
  pack.read(got->extent, got->name, bytes);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tiny.bytes_of(want.extent).begin()));

  EXPECT_EQ(pack.bank(0), nullptr);
  ASSERT_NE(pack.bank(1), nullptr);
  EXPECT_EQ(pack.bank(1)->fixed_point, 40);
  EXPECT_EQ(pack.bank(1)->experts[0].source_id, 2u);
  EXPECT_EQ(pack.bank(1)->experts[2].least_exponent, the_bank(tiny).experts[2].least_exponent);
  EXPECT_EQ(pack.bank(2), nullptr);
  EXPECT_EQ(pack.bank(-1), nullptr);
  EXPECT_EQ(pack.find("model.layers.1.mlp.up_proj.weight"), nullptr);

  EXPECT_EQ(pack.side_file("tiktoken.model").size(), 37u);
  EXPECT_THROW(pack.side_file("other"), Error);
  EXPECT_EQ(pack.report("source_hashes").size(), 8 * (tiny.index.content.tensors.size() + 3));
  EXPECT_EQ(pack.report("decisions").size(), 1000u);
  EXPECT_TRUE(pack.verify().empty());
}

TEST(PackReader, AbsentOptionalsStayAbsent) {
  const TempFolder folder;
  TinyPack tiny;
  EXPECT_EQ(tiny.index.content.config.kda_gate_rank, std::nullopt);
  const PackReader pack(folder.write("p.k3pack", tiny.image()));
  EXPECT_EQ(pack.config().kda_gate_rank, std::nullopt);
  EXPECT_EQ(pack.config().decay_lower_bound, -5.0);
}

constexpr RotatedBasis kBasis = {.seed = ~uint64_t{0},
                                 .stream_block = 32,
                                 .query_block = 8,
                                 .kda_block = 8,
                                 .mla_block = 4,
                                 .dense_block = 16,
                                 .shared_block = 32,
                                 .latent_block = 64};

TEST(PackReader, GivesTheRotationThatWasWritten) {
  const TempFolder folder;
  TinyPack tiny;
  tiny.index.content.config.rotation = kBasis;
  const PackReader pack(folder.write("p.k3pack", tiny.image()));
  EXPECT_EQ(pack.config().rotation, kBasis);
  EXPECT_EQ(pack.frame().features, kFeatureRotation);
}

TEST(PackReader, RefusesRotationsThatDoNotFit) {
  const auto refuse = [](const char* message, int64_t RotatedBasis::*member, int64_t block) {
    expect_refused(message, [&](TinyPack& pack) {
      pack.index.content.config.rotation = kBasis;
      *pack.index.content.config.rotation.*member = block;
    });
  };
  refuse("rotation stream_block is 64", &RotatedBasis::stream_block, 64);
  refuse("rotation stream_block is 0", &RotatedBasis::stream_block, 0);
  refuse("rotation query_block is -8", &RotatedBasis::query_block, -8);
  refuse("rotation kda_block is 3", &RotatedBasis::kda_block, 3);
  refuse("rotation dense_block is 32", &RotatedBasis::dense_block, 32);
  refuse("rotation latent_block is 4611686018427387904", &RotatedBasis::latent_block,
         int64_t{1} << 62);
  expect_refused("experts that read the stream itself", [](TinyPack& pack) {
    pack.index.content.config.rotation = kBasis;
    pack.index.content.config.rotation->latent_block = 1;
    pack.index.content.config.latent_size.reset();
  });
}

// A reader that does not know rotations would overlook the field, but not the feature.
TEST(PackReader, RefusesAFrameWithOtherFeaturesThanItsIndex) {
  for (const bool rotated : {false, true}) {
    TinyPack tiny;
    if (rotated) tiny.index.content.config.rotation = kBasis;
    std::vector<std::byte> image = tiny.image();
    image[48] ^= std::byte{1};
    store_little_endian(xxh3(std::span(image).first(56)), &image[56]);
    const TempFolder folder;
    const std::string path = folder.write("p.k3pack", image);
    EXPECT_NE(thrown_message([&] { PackReader pack(path); }).find("frame: features are "),
              std::string::npos);
  }
}

TEST(PackReader, RefusesExtentsThatLeaveTheFile) {
  expect_refused("beyond any file",
                 [](TinyPack& pack) { some_matrix(pack).extent.offset_bytes = kMinus8; });
  expect_refused("beyond any file",
                 [](TinyPack& pack) { the_bank(pack).experts[1].extent.length_bytes = kMinus8; });
  expect_refused("passes the end of the file",
                 [](TinyPack& pack) { some_matrix(pack).extent.offset_bytes = kTwoTo40; });
  expect_refused("passes the end of the file",
                 [](TinyPack& pack) { the_bank(pack).experts[0].extent.offset_bytes = kTwoTo40; });
  expect_refused("passes the end of the file", [](TinyPack& pack) {
    pack.index.content.side_files[0].extent.length_bytes = kTwoTo40;
  });
}

TEST(PackReader, RefusesExtentsThatOverlapOrAreMisalignedOrLeaveHoles) {
  expect_refused("overlaps",
                 [](TinyPack& pack) { some_matrix(pack).extent.offset_bytes = kExtentAlignment; });
  expect_refused("overlaps", [](TinyPack& pack) { some_matrix(pack).extent.offset_bytes = 0; });
  expect_refused("multiple of 4096",
                 [](TinyPack& pack) { some_matrix(pack).extent.offset_bytes += 64; });
  expect_refused("leaves a hole",
                 [](TinyPack& pack) { pack.data.resize(pack.data.size() + 2 * kExtentAlignment); });
  expect_refused("overlaps", [](TinyPack& pack) {
    the_bank(pack).experts[1].extent = the_bank(pack).experts[0].extent;
  });
  expect_refused("is empty",
                 [](TinyPack& pack) { pack.index.content.side_files[0].extent.length_bytes = 0; });
}

TEST(PackReader, RefusesShapesAndLengthsThatDisagree) {
  expect_refused("shape is [4398046511104, 4398046511104]", [](TinyPack& pack) {
    some_matrix(pack).shape = {int64_t{1} << 42, int64_t{1} << 42};
  });
  expect_refused("expected [48, 32]", [](TinyPack& pack) { some_matrix(pack).shape = {32, 48}; });
  expect_refused("expected [48, 32]", [](TinyPack& pack) {
    some_matrix(pack).shape = {48, 32, 1};
  });
  expect_refused("its shape and format make",
                 [](TinyPack& pack) { --some_matrix(pack).extent.length_bytes; });
  expect_refused("its shape and format make",
                 [](TinyPack& pack) { some_matrix(pack).format = Format::kF32; });
  expect_refused("its widths and format make",
                 [](TinyPack& pack) { ++the_bank(pack).experts[2].extent.length_bytes; });
}

TEST(PackReader, RefusesFormatsThatATensorCannotHave) {
  expect_refused("format is int8, expected bf16 or f32", [](TinyPack& pack) {
    PackTensor& router = pack.tensor("model.layers.1.block_sparse_moe.gate.weight");
    router.format = Format::kInt8;
    router.layout = Layout::kBlocks160;
  });
  expect_refused("format is ternary2, expected bf16 or f32", [](TinyPack& pack) {
    PackTensor& router = pack.tensor("model.layers.1.block_sparse_moe.gate.weight");
    router.format = Format::kTernary2;
    router.layout = Layout::kBlocks160;
  });
  expect_refused("does not go with layout",
                 [](TinyPack& pack) { some_matrix(pack).layout = Layout::kBlocks160; });
  expect_refused("does not go with layout",
                 [](TinyPack& pack) { some_matrix(pack).format = Format::kTernary; });
  expect_refused("its shape and format make",
                 [](TinyPack& pack) { pack.tensor("lm_head.weight").format = Format::kTernary; });
  expect_refused("does not go with layout",
                 [](TinyPack& pack) { some_matrix(pack).format = Format::kMxfp4; });
  expect_refused("expected mxfp4 or bf16",
                 [](TinyPack& pack) { the_bank(pack).format = Format::kInt8; });
  expect_refused("expected mxfp4 or bf16",
                 [](TinyPack& pack) { the_bank(pack).format = Format::kTernary; });
  expect_refused("expected mxfp4 or bf16",
                 [](TinyPack& pack) { the_bank(pack).layout = Layout::kRowMajor; });
}

TEST(PackReader, RefusesUnknownEnumerators) {
  expect_refused("format is 9",
                 [](TinyPack& pack) { some_matrix(pack).format = static_cast<Format>(9); });
  expect_refused("layout is 4",
                 [](TinyPack& pack) { some_matrix(pack).layout = static_cast<Layout>(4); });
  expect_refused("family is 13",
                 [](TinyPack& pack) { some_matrix(pack).family = static_cast<Family>(13); });
  expect_refused("format is 255",
                 [](TinyPack& pack) { the_bank(pack).format = static_cast<Format>(255); });
  expect_refused("attention kind is 2", [](TinyPack& pack) {
    pack.index.content.config.layers[0].attention = static_cast<AttentionKind>(2);
  });
  expect_refused("activation is 2", [](TinyPack& pack) {
    pack.index.content.config.activation = static_cast<Activation>(2);
  });
}

TEST(PackReader, RefusesMissingDoubleAndSurplusTensors) {
  expect_refused("is missing", [](TinyPack& pack) {
    pack.index.content.tensors.erase(pack.index.content.tensors.begin());
  });
  expect_refused("is listed twice", [](TinyPack& pack) {
    pack.index.content.tensors.push_back(pack.index.content.tensors[0]);
  });
  expect_refused("has no tensor of that name", [](TinyPack& pack) {
    PackTensor surplus = pack.index.content.tensors[0];
    surplus.name = "surplus";
    pack.index.content.tensors.push_back(surplus);
  });
  expect_refused("family is norm",
                 [](TinyPack& pack) { some_matrix(pack).family = Family::kNorm; });
}

TEST(PackReader, RefusesBanksThatDoNotFitTheModel) {
  expect_refused("bank of layer 1: is missing",
                 [](TinyPack& pack) { pack.index.content.banks.clear(); });
  expect_refused("is missing or out of order", [](TinyPack& pack) { the_bank(pack).layer = 0; });
  expect_refused("no such mixture layer",
                 [](TinyPack& pack) { pack.index.content.banks.push_back(the_bank(pack)); });
  expect_refused("expert 2 is listed twice",
                 [](TinyPack& pack) { the_bank(pack).experts[1].source_id = 2; });
  expect_refused("expert 4 is beyond the 4",
                 [](TinyPack& pack) { the_bank(pack).experts[1].source_id = 4; });
  expect_refused("has 1 experts, expected 2 that are not cold, to 4",
                 [](TinyPack& pack) { the_bank(pack).experts.resize(1); });
  expect_refused("source experts",
                 [](TinyPack& pack) { the_bank(pack).source_experts = kTwoTo40; });
  expect_refused("fixed point", [](TinyPack& pack) { the_bank(pack).fixed_point = 257; });
}

TEST(PackReader, RefusesConfigsOutOfRange) {
  const auto refused = [](const std::string& name, auto change) {
    expect_refused("config: " + name, [&](TinyPack& pack) { change(pack.index.content.config); });
  };
  refused("hidden_size", [](ModelConfig& config) { config.hidden_size = kTwoTo40; });
  refused("hidden_size", [](ModelConfig& config) { config.hidden_size = -1; });
  refused("vocab_size", [](ModelConfig& config) { config.vocab_size = 0; });
  refused("layers", [](ModelConfig& config) { config.layers.clear(); });
  refused("layers", [](ModelConfig& config) { config.layers.resize(10'001); });
  refused("rms_norm_epsilon", [](ModelConfig& config) { config.rms_norm_epsilon = NAN; });
  refused("rms_norm_epsilon", [](ModelConfig& config) { config.rms_norm_epsilon = 0; });
  refused("decay_lower_bound", [](ModelConfig& config) { config.decay_lower_bound = INFINITY; });
  refused("conv_kernel", [](ModelConfig& config) { config.conv_kernel = 65; });
  refused("q_lora_rank", [](ModelConfig& config) { config.q_lora_rank = 0; });
  refused("experts_per_token", [](ModelConfig& config) { config.experts_per_token = 5; });
  refused("shared experts' width", [](ModelConfig& config) {
    config.expert_intermediate_size = int64_t{1} << 22;
    config.shared_experts = 1024;
  });
  refused("attention_residual_block",
          [](ModelConfig& config) { config.attention_residual_block = 0; });
  refused("eos_token_id", [](ModelConfig& config) { config.eos_token_id = 40; });
}

TEST(PackReader, RefusesCompactScalesWhereTheyMeanNothing) {
  expect_refused("its widths and format make", [](TinyPack& pack) {
    the_bank(pack).layout = Layout::kExpertBandsCompact;  // the extents are not
  });
  expect_refused("format bf16 and layout expert_bands_compact", [](TinyPack& pack) {
    the_bank(pack).layout = Layout::kExpertBandsCompact;
    the_bank(pack).format = Format::kBf16;
  });
  expect_refused("format mxfp4 and layout row_major",
                 [](TinyPack& pack) { the_bank(pack).layout = Layout::kRowMajor; });
  expect_refused("does not go with layout expert_bands_compact",
                 [](TinyPack& pack) { some_matrix(pack).layout = Layout::kExpertBandsCompact; });
  expect_refused("has a least exponent beyond 239", [](TinyPack& pack) {
    the_bank(pack).layout = Layout::kExpertBandsCompact;
    the_bank(pack).experts[0].least_exponent[2] = 240;
  });
}

TEST(PackReader, RefusesSideFilesThatAreNoPlainNames) {
  const auto refused = [](const std::string& part, const std::string& name) {
    expect_refused(part, [&](TinyPack& pack) { pack.index.content.side_files[0].name = name; });
  };
  for (const char* name : {"", ".", "..", "../etc", "a/b"}) {
    refused("is not a plain file name", name);
  }
  refused("control character 0", std::string("a\0b", 3));
  refused("control character 27", "\x1b[31m");
  refused("a name of 256 bytes", std::string(256, 'a'));
  expect_refused("at most 1073741824",
                 [](TinyPack& pack) { pack.index.content.side_files[0].raw_bytes = kTwoTo40; });
}

TEST(PackReader, RefusesReceiptsOfAnotherPack) {
  expect_refused("measured on another pack", [](TinyPack& pack) {
    pack.index.receipts.push_back({"k3eval", 1, "{}"});
  });
}

TEST(PackReader, RefusesAPackCutAnywhere) {
  const TempFolder folder;
  const std::vector<std::byte> whole = TinyPack().image();
  std::vector<size_t> cuts;
  for (size_t at = 0; at < whole.size(); at += 4096) cuts.push_back(at);
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) cuts.push_back(random() % whole.size());
  for (const size_t cut : cuts) {
    const std::string path = folder.write("cut.k3pack", std::span(whole).first(cut));
    EXPECT_THROW(PackReader{path}, Error) << cut;
  }
}

TEST(PackReader, RefusesBytesInFrontAndBehind) {
  const TempFolder folder;
  std::vector<std::byte> image = TinyPack().image();
  image.push_back(std::byte{0});
  EXPECT_THROW(PackReader{folder.write("p", image)}, Error);
  EXPECT_NO_THROW(PackReader(folder.path("p"), Tail::kIgnore));
  image.insert(image.begin(), 29, std::byte{0});
  EXPECT_THROW(PackReader{folder.write("p", image)}, Error);
}

// Every byte of an index replaced by a few others, as if the hashes were right: whatever a hostile
// writer puts there, the answer is an Error or an index, never a crash.
TEST(PackReader, SurvivesEveryByteOfTheIndexBeingHostile) {
  const std::vector<std::byte> whole = TinyPack().image();
  const PackFrame frame = decode_frame(whole, "p", static_cast<int64_t>(whole.size()));
  const std::vector<std::byte> index(whole.end() - frame.index.length_bytes, whole.end());
  int refused = 0;
  for (size_t at = 0; at < index.size(); ++at) {
    for (const unsigned value : {0x00u, 0x01u, 0x7fu, 0x80u, 0xffu}) {
      std::vector<std::byte> hostile = index;
      hostile[at] = static_cast<std::byte>(value);
      const std::string message =
          thrown_message([&] { check_index(frame, decode_index(hostile, "p").index, "p"); });
      refused += message == "no error" ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(PackReader, NoticesEverySingleBitFlipOnOpeningOrByVerify) {
  const TempFolder folder;
  const std::vector<std::byte> whole = TinyPack().image();
  const PackReader sound(folder.write("sound.k3pack", whole));
  std::mt19937 random(4);
  std::vector<size_t> places;
  // Each region gets its share: frame, gap behind it, each extent, each gap.
  size_t end = static_cast<size_t>(kFrameBytes);
  for (int i = 0; i < 20; ++i) places.push_back(random() % end);
  for (const PackExtent& item : list_extents(sound.frame(), sound.index())) {
    const auto begin = static_cast<size_t>(item.extent.offset_bytes);
    for (int i = 0; i < 2 && begin > end; ++i) places.push_back(end + random() % (begin - end));
    for (int i = 0; i < 4; ++i) {
      places.push_back(begin + random() % static_cast<size_t>(item.extent.length_bytes));
    }
    end = static_cast<size_t>(item.extent.end_bytes());
  }
  ASSERT_GE(places.size(), 300u);
  for (const size_t place : places) {
    std::vector<std::byte> flipped = whole;
    flipped[place] ^= static_cast<std::byte>(1u << (random() % 8));
    const std::string path = folder.write("flipped.k3pack", flipped);
    bool noticed = true;
    try {
      noticed = !PackReader(path).verify().empty();
    } catch (const Error&) {
    }
    EXPECT_TRUE(noticed) << "byte " << place;
  }
}

TEST(PackReader, ReadRefusesDamagedBytesUnlessToldNotToLook) {
  const TempFolder folder;
  TinyPack tiny;
  const Extent extent = some_matrix(tiny).extent;
  std::vector<std::byte> image = tiny.image();
  image[static_cast<size_t>(extent.offset_bytes)] ^= std::byte{1};
  const PackReader pack(folder.write("p.k3pack", image));
  std::vector<std::byte> bytes(static_cast<size_t>(extent.length_bytes));
  EXPECT_THROW(pack.read(extent, "it", bytes), Error);
  EXPECT_NO_THROW(pack.read(extent, "it", bytes, false));
}

// What a wrong writer would hash along: verify must see it although every hash matches.
std::string only_fault(TinyPack& tiny) {
  const TempFolder folder;
  const auto faults = PackReader(folder.write("p.k3pack", tiny.image())).verify();
  return faults.size() == 1 ? faults[0] : std::to_string(faults.size()) + " faults";
}

std::string only_fault(const std::function<void(TinyPack&)>& break_it) {
  TinyPack tiny;
  break_it(tiny);
  return only_fault(tiny);
}

TEST(PackVerify, NoticesWhatAHashCannot) {
  const auto expect_fault = [](const std::string& part, const auto& break_it) {
    const std::string fault = only_fault(break_it);
    EXPECT_NE(fault.find(part), std::string::npos) << fault;
  };
  const ExpertBands bands{Format::kMxfp4, 64, 288};
  const auto set_scale = [&](TinyPack& pack, ExpertMatrix matrix, uint8_t scale) {
    Extent& extent = the_bank(pack).experts[1].extent;
    pack.bytes_of(extent)[static_cast<size_t>(bands.part(1, matrix).scales_offset)] =
        std::byte{scale};
    pack.rehash(extent);
  };
  expect_fault("expert 0 of layer 1: w2 band 1 row 0 group 0 has scale byte 255",
               [&](TinyPack& pack) { set_scale(pack, ExpertMatrix::kW2, 255); });
  expect_fault("w3 band 1 row 0 group 0 has scale byte 0",
               [&](TinyPack& pack) { set_scale(pack, ExpertMatrix::kW3, 0); });
  expect_fault("w1 has least scale byte 117, the index says 118",
               [&](TinyPack& pack) { set_scale(pack, ExpertMatrix::kW1, 117); });
  expect_fault("w1 spans 32 exponents",
               [&](TinyPack& pack) { set_scale(pack, ExpertMatrix::kW1, 150); });

  const Blocks160 head{Format::kInt8, 40, 32};
  const auto set_head = [&](TinyPack& pack, int64_t offset, std::byte value) {
    Extent& extent = pack.tensor("lm_head.weight").extent;
    pack.bytes_of(extent)[static_cast<size_t>(offset)] = value;
    pack.rehash(extent);
  };
  expect_fault("row 3 column 7 has code -128",
               [&](TinyPack& pack) { set_head(pack, head.code_offset(3, 7), std::byte{0x80}); });
  expect_fault("row 5 has padding codes",
               [&](TinyPack& pack) { set_head(pack, head.code_offset(5, 32), std::byte{1}); });
  expect_fault("between its planes are not zero", [&](TinyPack& pack) {
    set_head(pack, head.multipliers_offset() + 40, std::byte{1});
  });
  expect_fault("row 2 has scale", [&](TinyPack& pack) {  // the sign
    const int64_t last = head.row_scale_offset(2) + 3;
    const Extent& extent = pack.tensor("lm_head.weight").extent;
    set_head(pack, last, pack.bytes_of(extent)[static_cast<size_t>(last)] | std::byte{0x80});
  });
  expect_fault("side file tiktoken.model: content: its frame states",
               [](TinyPack& pack) { ++pack.index.content.side_files[0].raw_bytes; });
  expect_fault("retired index 0: is damaged", [](TinyPack& pack) {
    pack.index.retired.push_back(
        {static_cast<int64_t>(align_up(static_cast<int64_t>(pack.data.size()), kExtentAlignment)),
         10, 1});
    pack.data.resize(static_cast<size_t>(pack.index.retired[0].end_bytes()));
  });
}

// A soundly hashed head in `format` with one byte changed.
std::string fault_in_head(Format format, int64_t offset, uint8_t value) {
  TinyPack pack(format);
  Extent& extent = pack.tensor("lm_head.weight").extent;
  pack.bytes_of(extent)[static_cast<size_t>(offset)] = std::byte{value};
  pack.rehash(extent);
  return only_fault(pack);
}

TEST(PackVerify, AcceptsTernaryMatricesThatAnEncoderMakes) {
  for (const Format format : {Format::kTernary, Format::kTernary2}) {
    TinyPack pack(format);
    EXPECT_EQ(only_fault(pack), "0 faults");
  }
}

TEST(PackVerify, RefusesEveryByteThatHoldsNoTrits) {
  const Blocks160 place{Format::kTernary, 40, 32};
  int refused = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<uint8_t>(byte);
    // Of the 243 sound ones, those with a trit beyond column 31 break the rule of padding.
    const std::string fault = fault_in_head(Format::kTernary, place.code_offset(3, 7), value);
    const bool names_it = fault.find("row 3 byte 7 is " + std::to_string(byte) +
                                     ", which no five trits make") != std::string::npos;
    EXPECT_EQ(names_it, !holds_five_trits(value)) << fault;
    refused += names_it ? 1 : 0;
  }
  EXPECT_EQ(refused, 13);
}

TEST(PackVerify, NoticesWhatAHashCannotInTernaryMatrices) {
  const auto expect_fault = [](const std::string& part, Format format, int64_t offset,
                               uint8_t value) {
    const std::string fault = fault_in_head(format, offset, value);
    EXPECT_NE(fault.find(part), std::string::npos) << fault;
  };
  const Blocks160 one{Format::kTernary, 40, 32};
  const Blocks160 two{Format::kTernary2, 40, 32};
  // Of a block with 32 inputs only the first trit of every byte is a weight's.
  for (const int below : {-40, -1, 1, 40}) {
    expect_fault("tensor lm_head.weight: row 5 has padding trits that are not zero",
                 Format::kTernary, one.code_offset(5, 31), encode_five_trits(121 + below));
  }
  expect_fault("plane 0 row 5 has padding trits", Format::kTernary2, two.code_offset(5, 0, 0),
               encode_five_trits(122));
  expect_fault("plane 1 row 39 has padding trits", Format::kTernary2, two.code_offset(39, 0, 1),
               encode_five_trits(122));
  expect_fault("plane 1 row 0 byte 2 is ", Format::kTernary2, two.code_offset(0, 2, 1), 20);
  expect_fault("between its planes are not zero", Format::kTernary2, two.multipliers_offset() + 40,
               1);
  expect_fault("row 2 has scale -0.01", Format::kTernary, one.row_scale_offset(2) + 3, 0xbc);
  for (const float scale : {std::nanf(""), INFINITY}) {
    TinyPack pack(Format::kTernary2);
    Extent& extent = pack.tensor("lm_head.weight").extent;
    store_little_endian(std::bit_cast<uint32_t>(scale),
                        &pack.bytes_of(extent)[static_cast<size_t>(two.row_scale_offset(39))]);
    pack.rehash(extent);
    EXPECT_NE(only_fault(pack).find("row 39 has scale "), std::string::npos);
  }
}

TEST(PackVerify, CollectsAllFaults) {
  const TempFolder folder;
  TinyPack tiny;
  std::vector<std::byte> image = tiny.image();
  image[static_cast<size_t>(kFrameBytes)] = std::byte{1};
  image[static_cast<size_t>(some_matrix(tiny).extent.offset_bytes)] ^= std::byte{1};
  image[static_cast<size_t>(the_bank(tiny).experts[0].extent.offset_bytes)] ^= std::byte{1};
  const auto faults = PackReader(folder.write("p.k3pack", image)).verify();
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_NE(faults[0].find("bytes 64 to 4096"), std::string::npos);
  EXPECT_NE(faults[1].find("mlp.up_proj"), std::string::npos);
  EXPECT_NE(faults[2].find("expert 2 of layer 1"), std::string::npos);
}

// K3's own shape with so many experts a layer, in a sparse file; the last expert's bytes are true.
struct SparsePack {
  TempFolder folder;
  std::string path = folder.path("k3.k3pack");
  int64_t index_bytes = 0;
  int64_t file_bytes = 0;
  bool fits = false;  // into what this file system can address

  explicit SparsePack(int64_t experts) {
    ModelConfig config = tiny_config();
    config.hidden_size = 7168;
    config.vocab_size = 163840;
    config.experts = experts;
    config.experts_per_token = 16;
    config.latent_size = 3584;
    config.expert_intermediate_size = 3072;
    config.layers.assign(93, {AttentionKind::kKda, FfnKind::kMoe});
    config.layers[0].ffn = FfnKind::kDense;

    PackIndex index;
    index.content.config = config;
    int64_t next = kExtentAlignment;
    const auto place = [&](int64_t bytes) {
      const Extent extent{next, bytes, 0};
      next = align_up(extent.end_bytes(), kExtentAlignment);
      return extent;
    };
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      index.content.tensors.push_back({tensor.name, tensor.family, Format::kBf16, Layout::kRowMajor,
                                       tensor.shape, place(2 * *tensor.shape.elements())});
    }
    EXPECT_GT(index.content.tensors.size(), 2600u);
    const int64_t expert_bytes = ExpertBands{Format::kMxfp4, 3584, 3072}.extent_bytes();
    for (int64_t layer = 1; layer < 93; ++layer) {
      PackBank bank{layer, Format::kMxfp4, Layout::kExpertBands, experts, 40, {}};
      for (int64_t id = 0; id < experts; ++id) {
        bank.experts.push_back({place(expert_bytes), static_cast<uint32_t>(id), {1, 1, 1}, false});
      }
      index.content.banks.push_back(bank);
    }
    const std::vector<std::byte> last(static_cast<size_t>(expert_bytes), std::byte{0x5A});
    Extent& last_extent = index.content.banks.back().experts.back().extent;
    last_extent.xxh3 = xxh3(last);

    const auto encoded = encode_index(encode_content(index.content), index.provenance, {}, {});
    PackFrame frame;
    frame.index = {next, static_cast<int64_t>(encoded.size()), xxh3(encoded)};
    frame.file_bytes = file_bytes = frame.index.end_bytes();
    index_bytes = frame.index.length_bytes;
    folder.write("k3.k3pack", encode_frame(frame));
    std::error_code too_large;
    std::filesystem::resize_file(path, static_cast<uintmax_t>(file_bytes), too_large);
    fits = !too_large;
    if (!fits) return;
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const auto write = [&](int64_t offset_bytes, const std::vector<std::byte>& bytes) {
      file.seekp(offset_bytes);
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    };
    write(last_extent.offset_bytes, last);
    write(frame.index.offset_bytes, encoded);
  }
};

TEST(PackReader, OpensAnIndexOfK3sSize) {
  const SparsePack sparse(896);
  EXPECT_GT(sparse.file_bytes, int64_t{1} << 40);
  EXPECT_LT(sparse.index_bytes, 4'000'000);
  if (!sparse.fits) GTEST_SKIP() << "this file system has no sparse files of 1.5 TB";

  double fastest = INFINITY;
  for (int i = 0; i < 10; ++i) {
    const auto started = std::chrono::steady_clock::now();
    const PackReader pack(sparse.path);
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - started;
    EXPECT_EQ(pack.bank(92)->experts[895].source_id, 895u);
    fastest = std::min(fastest, elapsed.count());
  }
  EXPECT_LT(fastest, 500);  // a few milliseconds in release builds; sanitizers take longer
  std::cout << sparse.index_bytes << " bytes of index opened in " << fastest << " ms\n";
}

TEST(PackReader, ReadsExtentsBeyondTwoToThe41Bytes) {
  const SparsePack sparse(1400);
  if (!sparse.fits) GTEST_SKIP() << "this file system has no sparse files of 2.4 TB";
  const PackReader pack(sparse.path);
  const PackExpert& last = pack.bank(92)->experts.back();
  ASSERT_GT(last.extent.offset_bytes, int64_t{1} << 41);
  std::vector<std::byte> bytes(static_cast<size_t>(last.extent.length_bytes));
  pack.read(last.extent, "the last expert", bytes);
  EXPECT_EQ(bytes.front(), std::byte{0x5A});
  const PackExpert& other = pack.bank(92)->experts.front();  // a hole, its hash is not zero's
  EXPECT_NE(thrown_message([&] { pack.read(other.extent, "a hole", bytes); }).find("a hole"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
