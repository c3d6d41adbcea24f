#include "schema/routing_trace.h"

#include <gtest/gtest.h>

#include "schema/trace_reader.h"
#include "schema/trace_writer.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

TraceHeader header() {
  return {.router_xxh3 = 17,
          .payload_xxh3 = 18,
          .expert_bytes = 4096,
          .experts = 897,
          .experts_per_token = 2,
          .next_experts = 1,
          .has_weights = true,
          .has_norms = true,
          .layers = {1, 5}};
}

TraceBlock block(int64_t first_token) {
  return {.first_token = first_token,
          .first_layer = 0,
          .layers = 2,
          .documents = {{7, "prose"}, {8, "code"}},
          .tokens = {{0, 41, TracePhase::kPrefill}, {1, 0, TracePhase::kDecode}},
          .ids = {896, 3, 4, 5, 6, kNoExpert, 8, 9},
          .scores = {0.9F, 0.8F, 0.7F, 0.6F, 0.5F, 0, 0.3F, 0.2F},
          .weights = {1, 2, 3, 4, 5, 0, 7, 8},
          .norms = {10, 20, 30, 40, 50, 0, 70, 80},
          .next_ids = {11, 12, 13, kNoExpert},
          .next_scores = {0.1F, 0.01F, 0.001F, 0}};
}

std::string write_trace(const TempFolder& folder, const std::vector<TraceBlock>& blocks) {
  TraceWriter writer(folder.path("t.k3trace"), header());
  for (const TraceBlock& each : blocks) writer.write(each);
  writer.finish(4);
  return folder.path("t.k3trace");
}

std::vector<TraceBlock> read_all(TraceReader& reader) {
  std::vector<TraceBlock> blocks;
  for (TraceBlock each; reader.next(each);) blocks.push_back(each);
  return blocks;
}

TEST(RoutingTrace, ComesBackAsItWasWritten) {
  const TempFolder folder;
  TraceReader reader(write_trace(folder, {block(0), block(2)}));
  EXPECT_EQ(reader.header(), header());
  EXPECT_EQ(read_all(reader), (std::vector{block(0), block(2)}));
  EXPECT_FALSE(reader.is_cut());
  EXPECT_EQ(reader.tokens(), 4);
}

TEST(RoutingTrace, ACutFileLosesNoMoreThanItsLastBlock) {
  const TempFolder folder;
  const std::string path = write_trace(folder, {block(0), block(2)});
  const std::vector<std::byte> whole = file_bytes(path);
  std::vector<TraceBlock> only_first = {block(0)};
  const std::vector<std::byte> one = file_bytes(write_trace(folder, only_first));
  const size_t first_end = one.size() - kTraceBlockHeaderBytes;
  for (size_t size = first_end; size < whole.size(); ++size) {
    TraceReader reader(folder.write("cut", std::span(whole).first(size)));
    const std::vector<TraceBlock> blocks = read_all(reader);
    EXPECT_TRUE(reader.is_cut()) << size;
    EXPECT_EQ(blocks.front(), block(0)) << size;
    EXPECT_EQ(blocks.size(), size >= whole.size() - kTraceBlockHeaderBytes ? 2 : 1) << size;
  }
}

// Whatever single byte is damaged is found, or costs the last block and is reported as a cut.
TEST(RoutingTrace, ADamagedByteIsFound) {
  const TempFolder folder;
  const std::vector<std::byte> whole = file_bytes(write_trace(folder, {block(0), block(2)}));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::vector<std::byte> damaged = whole;
    damaged[at] ^= std::byte{0x10};
    const std::string path = folder.write("damaged", damaged);
    const std::string message = thrown_message([&] {
      TraceReader reader(path);
      read_all(reader);
      if (reader.is_cut()) throw Error("cut");
    });
    EXPECT_NE(message, "no error") << "byte " << at;
  }
}

TEST(RoutingTrace, ABlockThatLeavesTokensOutIsRefused) {
  const TempFolder folder;
  TraceReader reader(write_trace(folder, {block(0), block(0), block(3)}));
  EXPECT_EQ(
      thrown_message([&] { read_all(reader); }),
      folder.path("t.k3trace") + ": block 2: begins with token 3, the blocks before it reach 2");
}

TEST(RoutingTrace, DamageInsideNamesTheBlock) {
  const TempFolder folder;
  const std::string path = write_trace(folder, {block(0), block(2)});
  std::vector<std::byte> bytes = file_bytes(path);
  bytes[kTraceHeaderBytes + 2 * 4 + 8 + kTraceBlockHeaderBytes + 5] ^= std::byte{1};
  folder.write("t.k3trace", bytes);
  EXPECT_EQ(thrown_message([&] {
              TraceReader reader(path);
              read_all(reader);
            }),
            path + ": block 0: is damaged: its hash does not match its bytes");
}

TEST(RoutingTrace, MoreLayersChosenExpertsOrTokensThanStatedAreRefused) {
  const TraceHeader head = header();
  const std::vector<std::byte> raw = encode_trace_block(head, block(0));
  const TraceBlockHeader place{.tokens = 2, .layers = 2};
  const auto refusal = [&](TraceBlockHeader changed, std::vector<std::byte> bytes) {
    return thrown_message([&] { decode_trace_block(head, changed, bytes, "t"); });
  };
  EXPECT_EQ(refusal(place, raw), "no error");
  TraceBlockHeader changed = place;
  changed.first_layer = 1;
  EXPECT_EQ(refusal(changed, raw), "t: covers layers 1 + 2 of 2");
  changed = place;
  changed.tokens = 0xffffffff;
  EXPECT_NE(refusal(changed, raw).find("ends early"), std::string::npos);
  changed = place;
  changed.tokens = 1;
  EXPECT_NE(refusal(changed, raw), "no error");
  TraceBlock outside = block(0);
  outside.ids[3] = 897;
  EXPECT_EQ(refusal(place, encode_trace_block(head, outside)),
            "t: expert 897 was chosen, the header says there are 897");
}

TEST(RoutingTrace, AModelWithMoreOrLargerExpertsThanAHeaderCanNameIsRefused) {
  TraceHeader head = header();
  head.experts = 65536;
  EXPECT_EQ(thrown_message([&] { encode_trace_header(head); }),
            "a routing trace can name 65535 experts, the model has 65536");
  TraceHeader large = header();
  large.expert_bytes = kMostExpertBytes + 1;
  EXPECT_EQ(thrown_message([&] { encode_trace_header(large); }),
            "a routing trace can be of experts of 1099511627776 bytes, the model's have "
            "1099511627777");
}

TEST(RoutingTrace, IdsAloneAreATraceToo) {
  const TempFolder folder;
  TraceHeader head = header();
  head.has_weights = head.has_norms = false;
  head.next_experts = 0;
  TraceBlock ids = block(0);
  ids.scores = ids.weights = ids.norms = ids.next_scores = {};
  ids.next_ids = {};
  TraceWriter(folder.path("ids"), head).write(ids);
  TraceReader reader(folder.path("ids"));
  EXPECT_EQ(read_all(reader), std::vector{ids});
}

}  // namespace
}  // namespace k3
