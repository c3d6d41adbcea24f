#include "compiler/attach.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "compiler/report.h"
#include "schema/hash.h"
#include "schema/pack_reader.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

class Attach : public testing::Test {
 protected:
  Attach() {
    pack_ = folder_.write("p.k3pack", TinyPack().image());
    payload_ = PackReader(pack_).payload_xxh3();
  }

  std::string receipt(const std::string& more = "") const {
    return folder_.write("r.k3eval", R"({"kind": "k3eval", "version": 1, "pack_payload_xxh3": ")" +
                                         hex_digits(payload_) + "\"" + more + "}");
  }
  std::string refusal(const std::string& text) const {
    const auto before = file_bytes(pack_);
    const std::string path = folder_.write("bad.k3eval", text);
    const std::string message = thrown_message([&] { attach(path); });
    EXPECT_EQ(file_bytes(pack_), before) << "the pack changed";
    return message.rfind(path + ": ", 0) == 0 ? message.substr(path.size() + 2) : message;
  }
  void attach(const std::string& receipt) const {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    try {
      run_attach(pack_, receipt);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      testing::internal::GetCapturedStderr();
      throw;
    }
    testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
  }

  TempFolder folder_;
  std::string pack_;
  uint64_t payload_ = 0;
};

TEST_F(Attach, AddsReceiptsAndKeepsThePayload) {
  const auto extents_before = file_bytes(pack_);
  attach(receipt(R"(, "kl": 0.01)"));
  attach(receipt(R"(, "kl": 0.02)"));
  const PackReader pack(pack_);
  EXPECT_EQ(pack.payload_xxh3(), payload_);
  ASSERT_EQ(pack.index().receipts.size(), 2u);
  EXPECT_EQ(pack.index().receipts[0].kind, "k3eval");
  EXPECT_NE(pack.index().receipts[0].text.find("0.01"), std::string::npos);
  EXPECT_NE(pack.index().receipts[1].text.find("0.02"), std::string::npos);
  EXPECT_EQ(pack.index().retired.size(), 2u);
  EXPECT_TRUE(pack.verify().empty());
  const auto after = file_bytes(pack_);
  EXPECT_TRUE(std::equal(extents_before.begin() + kFrameBytes, extents_before.end(),
                         after.begin() + kFrameBytes));
}

TEST_F(Attach, TheSameReceiptIsNotAddedTwice) {
  attach(receipt());
  const auto once = file_bytes(pack_);
  attach(receipt());
  EXPECT_EQ(file_bytes(pack_), once);
}

TEST_F(Attach, RefusesAReceiptOfAnotherPack) {
  const std::string message =
      refusal(R"({"kind": "k3eval", "version": 1, "pack_payload_xxh3": "0123456789abcdef"})");
  EXPECT_EQ(message,
            "was measured on payload 0123456789abcdef, " + pack_ + " has " + hex_digits(payload_));
}

TEST_F(Attach, RefusesWhatIsNoReceipt) {
  EXPECT_NE(refusal("").find("is not JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"kind\": \"k3eval\"").find("is not JSON"), std::string::npos);
  EXPECT_EQ(refusal("[]"), "is not a JSON object");
  EXPECT_EQ(refusal("{}"), "kind is missing, expected k3eval");
  EXPECT_EQ(refusal(R"({"kind": "other"})"), "kind is other, expected k3eval");
  EXPECT_EQ(refusal(R"({"kind": "k3eval"})"), "version is missing, expected 1");
  EXPECT_EQ(refusal(R"({"kind": "k3eval", "version": 2})"), "version is 2, this program reads 1");
  EXPECT_NE(refusal(R"({"kind": "k3eval", "version": 1})").find("pack_payload_xxh3 is missing"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"kind": "a\nb"})"), "kind is a\\x0ab, expected k3eval");
  EXPECT_EQ(refusal(R"({"a\nb": 1, "a\nb": 1})"), "has the key a\\x0ab twice");
  EXPECT_EQ(refusal(R"({"kind": "k3eval", "kind": "k3eval"})"), "has the key kind twice");
}

TEST_F(Attach, AnInterruptedAttachIsRecovered) {
  const auto before = file_bytes(pack_);
  attach(receipt());
  auto torn = file_bytes(pack_);
  std::copy(before.begin(), before.begin() + kFrameBytes, torn.begin());  // the frame came last
  for (const size_t cut : {before.size() + 1, before.size() + 5000, torn.size()}) {
    folder_.write("p.k3pack", std::span(torn).first(std::min(cut, torn.size())));
    EXPECT_NE(thrown_message([&] { PackReader reader(pack_); }).find("run `k3c attach` again"),
              std::string::npos);
    attach(receipt());
    const PackReader pack(pack_);
    EXPECT_EQ(pack.index().receipts.size(), 1u);
    EXPECT_EQ(pack.index().retired.size(), 1u);
    EXPECT_TRUE(pack.verify().empty());
  }
}

}  // namespace
}  // namespace k3
