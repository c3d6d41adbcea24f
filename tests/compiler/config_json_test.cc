#include "compiler/config_json.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/compiler/checkpoint_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::message_of;

class ConfigJson : public testing::Test {
 protected:
  ConfigFile read(const std::string& text) {
    folder_.write("config.json", text);
    return ConfigFile(folder_.file("config.json"));
  }
  test::CheckpointFolder folder_;
};

TEST_F(ConfigJson, ReadsTypedFieldsOfNestedObjects) {
  ConfigFile file = read(
      R"({"t":{"i":7,"x":1e-05,"whole":4,"b":false,"s":"situ","l":[1,2],"n":null,"o":{"p":{"q":1}}}})");
  const ConfigFile moved = std::move(file);  // views of the root survive a move
  const ConfigObject t = moved.root().object("t");
  EXPECT_EQ(t.integer("i", 7, 7), 7);
  EXPECT_EQ(t.number("x"), 1e-05);
  EXPECT_EQ(t.number("whole"), 4.0);
  EXPECT_FALSE(t.boolean("b"));
  EXPECT_EQ(t.text("s"), "situ");
  EXPECT_EQ(t.integers("l"), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(t.has("i"));
  EXPECT_FALSE(t.has("n"));
  EXPECT_FALSE(t.has("none"));
  EXPECT_EQ(t.only_object_of("o").size("q"), 1);
}

TEST_F(ConfigJson, AMissingFieldIsNamedWithItsPathAndNeverDefaulted) {
  const ConfigFile file = read(R"({"t":{"u":{}}})");
  const ConfigObject u = file.root().object("t").object("u");
  const std::string start = folder_.file("config.json") + ": t.u.f: missing, expected ";
  EXPECT_EQ(message_of([&] { u.size("f"); }), start + "an integer");
  EXPECT_EQ(message_of([&] { u.number("f"); }), start + "a number");
  EXPECT_EQ(message_of([&] { u.boolean("f"); }), start + "a boolean");
  EXPECT_EQ(message_of([&] { u.text("f"); }), start + "a string");
  EXPECT_EQ(message_of([&] { u.integers("f"); }), start + "a list of integers");
  EXPECT_EQ(message_of([&] { u.object("f"); }), start + "an object");
}

TEST_F(ConfigJson, AnotherTypeOrRangeIsNamed) {
  const ConfigFile file = read(
      R"({"whole":7.0,"big":9223372036854775808,"text":"7","null":null,"zero":0,"l":[1,"2"],"yes":1,
          "o":{"a":{},"b":{}},"empty":{}})");
  const ConfigObject root = file.root();
  EXPECT_TRUE(
      contains(message_of([&] { root.size("whole"); }), "is a real number, expected an integer"));
  EXPECT_TRUE(contains(message_of([&] { root.size("big"); }), "is an integer of 2^63 or more"));
  EXPECT_TRUE(contains(message_of([&] { root.size("text"); }), "text: is a string, expected"));
  EXPECT_TRUE(contains(message_of([&] { root.size("null"); }), "null: is null, expected"));
  EXPECT_TRUE(
      contains(message_of([&] { root.size("zero"); }), "zero: is 0, expected 1 to 1048576"));
  EXPECT_TRUE(contains(message_of([&] { root.integers("l"); }), "l: holds a string"));
  EXPECT_TRUE(contains(message_of([&] { root.boolean("yes"); }), "yes: is an integer"));
  EXPECT_TRUE(
      contains(message_of([&] { root.positive_number("zero"); }), "expected a number above 0"));
  EXPECT_TRUE(contains(message_of([&] { root.only_object_of("o"); }), "o: has 2 members"));
  EXPECT_TRUE(contains(message_of([&] { root.only_object_of("empty"); }), "empty: has 0 members"));
}

TEST_F(ConfigJson, WhatIsNotOneObjectIsRefused) {
  const auto message = [this](const std::string& text) { return message_of([&] { read(text); }); };
  EXPECT_TRUE(contains(message(""), "not JSON"));
  EXPECT_TRUE(contains(message("[1]"), "holds a list, expected an object"));
  EXPECT_TRUE(contains(message("{\"a\":1"), "not JSON"));
  EXPECT_TRUE(contains(message("{\"a\":1} {}"), "not JSON"));
  EXPECT_TRUE(contains(message("{\"a\":NaN}"), "not JSON"));
  EXPECT_TRUE(contains(message("{\"\xff\":1}"), "not JSON"));
  EXPECT_TRUE(contains(message("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}"),
                       "not JSON"));
}

TEST_F(ConfigJson, AKeyGivenTwiceIsRefusedAtAnyDepth) {
  EXPECT_TRUE(
      contains(message_of([&] { read(R"({"a":1,"a":2})"); }), "config.json: a: is there twice"));
  EXPECT_TRUE(
      contains(message_of([&] { read(R"({"t":{"b":1,"c":2,"b":1}})"); }), "t.b: is there twice"));
  EXPECT_TRUE(contains(message_of([&] { read(R"({"t":[{"b":1,"b":1}]})"); }), "b: is there twice"));
}

}  // namespace
}  // namespace k3
