#include "schema/safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/compiler/checkpoint_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::message_of;

SafetensorsHeader parse(const std::string& json, int64_t data_bytes) {
  return parse_safetensors_header("x.safetensors", json,
                                  8 + static_cast<int64_t>(json.size()) + data_bytes);
}

struct Malformed {
  std::string json;
  int64_t data_bytes;
  std::string complaint;
};

std::string tensor(const std::string& rest) {
  return R"({"a":{)" + rest + "}}";
}

TEST(Safetensors, EachBrokenRuleIsNamed) {
  const std::string a4 = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::vector<Malformed> cases = {
      // The object
      {"", 0, "does not start with '{'"},
      {" {}", 0, "does not start with '{'"},
      {"[]", 0, "does not start with '{'"},
      {"{", 0, "expected a string"},
      {"{}x", 0, "goes on with 'x' behind its object"},
      {"{}\n", 0, "only spaces may stand there"},
      {std::string("{}\0", 3), 0, "goes on with '\\x00'"},
      {"{}{}", 0, "goes on with '{'"},
      {"{" + a4 + ",}", 4, "expected a string"},
      {"{" + a4 + " " + a4 + "}", 4, "expected '}'"},
      {"{\"a\":{\"dtype\":\"U8\"", 0, "the text ends, expected '}'"},
      // Names
      {"{" + a4 + "," + a4 + "}", 4, "tensor a: the name is there twice"},
      {R"({"\u0061":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},)" + a4 + "}", 8,
       "the name is there twice"},
      {R"({"a\u0000b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
       "tensor a\\x00b: a NUL byte in the name"},
      {std::string("{\"a\0\":{}}", 9), 0, "found '\\x00', expected the end of a string"},
      {"{\"a\nb\":{}}", 0, "found '\\x0a', expected the end of a string"},
      {"{\"\xff\":{}}", 0, "not UTF-8"},
      {"{\"\xc0\x80\":{}}", 0, "not UTF-8"},
      {"{\"\xed\xa0\x80\":{}}", 0, "not UTF-8"},
      {"{\"a\\n\xff\":{}}", 0, "not UTF-8"},
      {R"({"\ud800":{}})", 0, "lone surrogate"},
      {R"({"\udc00":{}})", 0, "lone surrogate"},
      {R"({"\ud800\u0041":{}})", 0, "lone surrogate"},
      {R"({"\x":{}})", 0, "expected an escape"},
      {R"({"\u00g0":{}})", 0, "expected a hexadecimal digit"},
      // Metadata
      {R"({"__metadata__":{"n":1}})", 0, "metadata __metadata__: byte 21: found '1'"},
      {R"({"__metadata__":{"n":{"m":"x"}}})", 0, "expected a string"},
      {R"({"__metadata__":[]})", 0, "expected '{'"},
      {R"({"__metadata__":{"n":"1","n":"2"}})", 0, "the key n is there twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ is there twice"},
      // Fields
      {R"({"a":null})", 0, "tensor a: byte 5: found 'n', expected '{'"},
      {R"({"a":{}})", 0, "expected a string"},
      {tensor(R"("shape":[4],"data_offsets":[0,4])"), 4, "tensor a: dtype is missing"},
      {tensor(R"("dtype":"U8","data_offsets":[0,4])"), 4, "shape is missing"},
      {tensor(R"("dtype":"U8","shape":[4])"), 4, "data_offsets is missing"},
      {tensor(R"("dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4])"), 4,
       "dtype is there twice"},
      {tensor(R"("dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4])"), 4,
       "shape is there twice"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4])"), 4,
       "data_offsets is there twice"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"x":0)"), 4,
       "the field x is unknown"},
      {tensor(R"("dtype":"U9","shape":[4],"data_offsets":[0,4])"), 4, "the dtype U9 is unknown"},
      {tensor(R"("dtype":4,"shape":[4],"data_offsets":[0,4])"), 4, "expected a string"},
      // Shapes
      {tensor(R"("dtype":"U8","shape":4,"data_offsets":[0,4])"), 4, "expected '['"},
      {tensor(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), 4,
       "found '-', expected a non-negative integer"},
      {tensor(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])"), 4,
       "found '.', expected a non-negative integer"},
      {tensor(R"("dtype":"U8","shape":[4e0],"data_offsets":[0,4])"), 4, "found 'e'"},
      {tensor(R"("dtype":"U8","shape":[04],"data_offsets":[0,4])"), 4, "leading zeros"},
      {tensor(R"("dtype":"U8","shape":["4"],"data_offsets":[0,4])"), 4,
       "expected a non-negative integer"},
      {tensor(R"("dtype":"U8","shape":[1,1,1,1,4],"data_offsets":[0,4])"), 4,
       "more than 4 dimensions"},
      {tensor(R"("dtype":"U8","shape":[4398046511104,4398046511104],"data_offsets":[0,0])"), 0,
       "more elements than can be counted"},
      {tensor(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0,
       "more elements than can be counted"},
      {tensor(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0])"), 0,
       "an integer of 2^63 or more"},
      {tensor(R"("dtype":"U8","shape":)" + std::string(100000, '[')), 0,
       "found '[', expected a non-negative integer"},
      // Places
      {tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8,
       "span 8 bytes, expected 12 for F32 [3]"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[8,4])"), 8, "begin at 8 and end at 4"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4,8])"), 8, "expected ']'"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0])"), 4, "expected ','"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[-4,0])"), 4, "found '-'"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 3,
       "end at 4, the file has 3 bytes behind its header"},
      {tensor(
           R"("dtype":"U8","shape":[8],"data_offsets":[9223372036854775800,9223372036854775807])"),
       8, "the file has 8 bytes behind its header"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 5,
       "end at byte 4 of the data, the file has 5"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[1,5])"), 5,
       "begins at byte 1 of the data, expected 0"},
      {"{" + a4 + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})", 8,
       "tensor b: begins at byte 6 of the data, expected 4"},
      {"{" + a4 + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6,
       "tensor b: begins at byte 2 of the data, expected 4: it overlaps tensor a"},
      {"{" + a4 + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
       "it overlaps tensor a"},
      {"{" + a4 + R"(,"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 4,
       "tensor b: begins at byte 2"},
      {"{}", 1, "end at byte 0 of the data, the file has 1"},
  };
  for (const Malformed& bad : cases) {
    const std::string message = message_of([&] { parse(bad.json, bad.data_bytes); });
    EXPECT_TRUE(message.starts_with("x.safetensors: ")) << message;
    EXPECT_TRUE(contains(message, bad.complaint)) << bad.json.substr(0, 200);
  }
}

TEST(Safetensors, ReadsTensorsInFileOrderWithTheirPlaces) {
  const std::string json =
      R"({"z":{"data_offsets":[4,12],"dtype":"BF16","shape":[2,1,2]},)"
      R"("__metadata__":{"format":"pt","note":"a\"\u00e9\ud83d\ude00"},)"
      R"( "a" : { "shape" : [ 4 ] , "dtype" : "U8" , "data_offsets" : [ 0 , 4 ] } }  )";
  const SafetensorsHeader header = parse(json, 12);
  const auto start = 8 + static_cast<int64_t>(json.size());
  ASSERT_EQ(header.tensors(), 2);
  EXPECT_EQ(header.name(0), "a");
  EXPECT_EQ(header.dtype(0), Dtype::kU8);
  EXPECT_EQ(header.shape(0), Shape{4});
  EXPECT_EQ(header.offset_bytes(0), start);
  EXPECT_EQ(header.length_bytes(0), 4);
  EXPECT_EQ(header.name(1), "z");
  EXPECT_EQ(header.shape(1), (Shape{2, 1, 2}));
  EXPECT_EQ(header.offset_bytes(1), start + 4);
  EXPECT_EQ(header.length_bytes(1), 8);
  ASSERT_EQ(header.metadata().size(), 2u);
  EXPECT_EQ(header.metadata()[1].second, "a\"\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(Safetensors, EmptyTensorsScalarsAndFilesOfMetadataAloneAreLegal) {
  EXPECT_EQ(parse("{}", 0).tensors(), 0);
  EXPECT_EQ(parse(R"({"__metadata__":{}})", 0).tensors(), 0);
  EXPECT_EQ(parse("{}" + std::string(1000, ' '), 0).tensors(), 0);
  const SafetensorsHeader scalar =
      parse(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(scalar.shape(0).rank(), 0);
  EXPECT_EQ(scalar.length_bytes(0), 4);
  // Empty ones before, between and behind others, whatever their order in the header.
  const SafetensorsHeader empty = parse(R"({"d":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},)"
                                        R"("c":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
                                        R"("b":{"dtype":"U8","shape":[3,0],"data_offsets":[2,2]},)"
                                        R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                        R"("":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}})",
                                        4);
  ASSERT_EQ(empty.tensors(), 5);
  EXPECT_EQ(empty.name(0), "");
  EXPECT_EQ(empty.name(4), "d");
}

TEST(Safetensors, TheLengthIsCheckedAgainstTheFileBeforeAnythingIsAllocated) {
  const auto check = [](uint64_t length, int64_t file_bytes) {
    std::array<std::byte, 8> prefix{};
    for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<std::byte>(length >> (8 * i) & 255u);
    return safetensors_header_bytes("x", prefix, file_bytes);
  };
  EXPECT_EQ(check(92, 100), 92);
  EXPECT_EQ(check(int64_t{1} << 30, int64_t{1} << 31), int64_t{1} << 30);
  EXPECT_TRUE(contains(message_of([&] { check(93, 100); }), "should have 93 bytes"));
  EXPECT_TRUE(contains(message_of([&] { check(uint64_t{1} << 40, 100); }), "cut short"));
  EXPECT_TRUE(contains(message_of([&] { check(~uint64_t{0}, 100); }), "18446744073709551615"));
  EXPECT_TRUE(contains(message_of([&] { check(~uint64_t{0} - 7, 100); }), "the file has 92"));
  EXPECT_TRUE(contains(message_of([&] { check((uint64_t{1} << 30) + 1, int64_t{1} << 40); }),
                       "at most 1073741824 are read"));
  EXPECT_TRUE(contains(message_of([&] { check(0, 100); }), "has 0 bytes"));
  EXPECT_TRUE(contains(message_of([&] { check(1, 100); }), "has 1 bytes"));
}

TEST(Safetensors, FilesCutAnywhereAreRefused) {
  const test::CheckpointFolder folder;
  const std::string whole =
      test::with_length(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})") + "data";
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    folder.write("x.safetensors", whole.substr(0, bytes));
    const auto read = [&] { read_safetensors_header(File(folder.file("x.safetensors"))); };
    if (bytes == whole.size()) {
      EXPECT_NO_THROW(read());
    } else {
      EXPECT_TRUE(contains(message_of(read), "x.safetensors: ")) << bytes;
    }
  }
}

// No single-byte change may crash the parser, and what it still accepts obeys every rule.
TEST(Safetensors, EveryChangedByteIsRefusedOrStillCoversTheFile) {
  const std::string json = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]}})";
  int64_t refused = 0;
  for (size_t at = 0; at < json.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = json;
      changed[at] = static_cast<char>(byte);
      try {
        const SafetensorsHeader header = parse(changed, 12);
        int64_t end = header.data_offset_bytes();
        for (int64_t i = 0; i < header.tensors(); ++i) {
          ASSERT_EQ(header.offset_bytes(i), end) << changed;
          end += header.length_bytes(i);
        }
        ASSERT_EQ(end, header.data_offset_bytes() + 12) << changed;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 24000);
}

TEST(Safetensors, AHeaderBeyondTheUsualHundredMegabytesIsRead) {
  const SafetensorsHeader header = parse("{}" + std::string(size_t{101} << 20, ' '), 0);
  EXPECT_EQ(header.data_offset_bytes(), 8 + 2 + (int64_t{101} << 20));
}

}  // namespace
}  // namespace k3
