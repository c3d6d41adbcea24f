#include "schema/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>

#include "schema/error.h"

namespace k3 {
namespace {

template <class Value>
std::string written(const Value& value) {
  std::ostringstream out;
  JsonWriter json(out);
  json.value(value);
  EXPECT_TRUE(json.complete());
  return out.str();
}

TEST(JsonWriter, PutsCommasBetweenMembersAndElements) {
  std::ostringstream out;
  JsonWriter json(out);
  json.begin_object();
  json.member("a", 1);
  json.key("b");
  json.begin_array();
  json.value("x");
  json.null();
  json.begin_object();
  json.end_object();
  json.value(true);
  json.end_array();
  EXPECT_FALSE(json.complete());
  json.end_object();
  EXPECT_TRUE(json.complete());
  EXPECT_EQ(out.str(), R"({"a":1,"b":["x",null,{},true]})");
}

TEST(JsonWriter, IndentsEachLevelAndLeavesEmptyScopesOnOneLine) {
  std::ostringstream out;
  JsonWriter json(out, 2);
  json.begin_object();
  json.key("a");
  json.begin_array();
  json.value(1);
  json.value(2);
  json.end_array();
  json.key("b");
  json.begin_array();
  json.end_array();
  json.end_object();
  EXPECT_EQ(out.str(), "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": []\n}");
}

TEST(JsonWriter, EscapesQuotesBackslashesAndControls) {
  EXPECT_EQ(written(std::string("a\"b\\c\n\t\r\0\x7f", 10)), R"("a\"b\\c\n\t\u000d\u0000\u007f")");
  EXPECT_EQ(written("\xc3\xa9\xe2\x82\xac"), "\"\xc3\xa9\xe2\x82\xac\"");
}

TEST(JsonWriter, WritesIntegersExactlyAtTheirLimits) {
  EXPECT_EQ(written(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(written(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(written(uint8_t{65}), "65");
}

TEST(JsonWriter, WritesTheShortestDoubleThatReadsBackTheSame) {
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(1e-05), "1e-05");
  EXPECT_EQ(written(4.0), "4");
  for (const double value :
       {1.0 / 3.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()}) {
    EXPECT_EQ(std::strtod(written(value).c_str(), nullptr), value);
  }
}

TEST(JsonWriter, RefusesWhatJsonCannotHold) {
  EXPECT_THROW(written(std::nan("")), Error);
  EXPECT_THROW(written(std::numeric_limits<double>::infinity()), Error);
  EXPECT_THROW(written("\xff"), Error);
}

}  // namespace
}  // namespace k3
