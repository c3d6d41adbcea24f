#include "schema/teacher.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

Teacher made_teacher() {
  Teacher teacher{.model_payload_xxh3 = 0xfeed, .text_xxh3 = 0xbeef, .vocab_size = 5, .top_k = 3};
  const float first[] = {0.5F, 2.0F, 2.0F, -1.0F, 0.0F};
  const float second[] = {-1.0F, -2.0F, -3.0F, -4.0F, 4.0F};
  add_prediction(teacher, 4, 0, first);
  add_prediction(teacher, 1, 7, second);
  return teacher;
}

class TeacherFileTest : public testing::Test {
 protected:
  TempFolder folder_;
  std::string path_ = folder_.path("made.k3teach");
};

TEST(Teacher, KeepsTheLikeliestTokensAndTiesGoToTheLowerId) {
  const Teacher teacher = made_teacher();
  EXPECT_EQ(teacher.top_ids, (std::vector<int32_t>{1, 2, 0, 4, 0, 1}));
  EXPECT_EQ(teacher.top_logits, (std::vector<float>{2, 2, 0.5F, 4, -1, -2}));
  EXPECT_NEAR(teacher.log_sum_exp[0],
              std::log(std::exp(0.5) + 2 * std::exp(2.0) + std::exp(-1.0) + 1), 1e-15);
}

TEST_F(TeacherFileTest, ReadsBackWhatWasWritten) {
  const Teacher teacher = made_teacher();
  write_teacher(teacher, path_);
  const Teacher read = read_teacher(path_);
  EXPECT_EQ(read.model_payload_xxh3, 0xfeedu);
  EXPECT_EQ(read.text_xxh3, 0xbeefu);
  EXPECT_EQ(read.vocab_size, 5);
  EXPECT_EQ(read.token_ids, teacher.token_ids);
  EXPECT_EQ(read.document_ids, teacher.document_ids);
  EXPECT_EQ(read.top_ids, teacher.top_ids);
  EXPECT_EQ(read.top_logits, teacher.top_logits);
  EXPECT_EQ(read.log_sum_exp, teacher.log_sum_exp);
}

TEST_F(TeacherFileTest, PythonReadsItWithItsStandardLibraryAlone) {
  write_teacher(made_teacher(), path_);
  const std::string command = "python3 " K3_SOURCE_DIR "/tests/schema/read_teacher.py " + path_;
  FILE* python = ::popen(command.c_str(), "r");
  ASSERT_NE(python, nullptr);
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), python));
  ASSERT_EQ(::pclose(python), 0);
  EXPECT_EQ(said,
            "000000000000feed, 2 tokens, top 3 of 5\n"
            "document 0 token 4: 1:2.0000 2:2.0000 0:0.5000, the rest has 0.0769\n"
            "document 7 token 1: 4:4.0000 0:-1.0000 1:-2.0000, the rest has 0.0012\n");
}

TEST_F(TeacherFileTest, DamageAndOtherFilesAreRefused) {
  write_teacher(made_teacher(), path_);
  std::vector<std::byte> bytes = file_bytes(path_);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x10};
    folder_.write("flipped", bytes);
    bytes[i] ^= std::byte{0x10};
    // A flip in the header may change what nobody reads, such as the case of a hexadecimal digit.
    const std::string message = thrown_message([&] { read_teacher(folder_.path("flipped")); });
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    constexpr size_t kDataBytes = 80;
    EXPECT_TRUE(message != "no error" || i + kDataBytes < bytes.size()) << i;
    folder_.write("cut", std::span(bytes).first(i));
    EXPECT_NE(thrown_message([&] { read_teacher(folder_.path("cut")); }), "no error") << i;
  }
}

TEST_F(TeacherFileTest, NumbersThatNoModelPredictsAreRefused) {
  const auto message_of = [&](const auto& change) {
    Teacher teacher = made_teacher();
    change(teacher);
    write_teacher(teacher, path_);
    return thrown_message([&] { read_teacher(path_); });
  };
  EXPECT_EQ(message_of([](Teacher&) {}), "no error");
  EXPECT_NE(message_of([](Teacher& t) { t.top_ids[4] = 5; }).find("row 1 is no prediction"),
            std::string::npos);
  EXPECT_NE(message_of([](Teacher& t) { t.token_ids[0] = -1; }), "no error");
  EXPECT_NE(message_of([](Teacher& t) { t.top_logits[1] = 3; }), "no error");
  EXPECT_NE(message_of([](Teacher& t) { t.log_sum_exp[0] = 1; }), "no error");
  EXPECT_NE(message_of([](Teacher& t) { t.log_sum_exp[1] = NAN; }), "no error");
  EXPECT_NE(message_of([](Teacher& t) {
              t.top_k = 2;
              t.top_ids.resize(4);
              t.top_logits.resize(4);
              t.vocab_size = 1;
            }),
            "no error");
}

}  // namespace
}  // namespace k3
