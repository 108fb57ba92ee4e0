#include "base/json.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace dgem::json {
namespace {

std::string error_of(std::string_view text, const ParseOptions& options = {}) {
  const auto value = parse(text, options);
  return value ? "no error: " + write(*value) : value.error().message;
}

TEST(Json, ParsesEveryKind) {
  const auto value = parse(R"( {"z":null,"a":[true,false,-3,2.5,"x"],"m":{"k":{}}} )");
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, Value(Object{{"z", nullptr}, {"a", Array{true, false, -3, 2.5, "x"}}, {"m", Object{{"k", Object{}}}}}));
  EXPECT_EQ(write(*value), R"({"z":null,"a":[true,false,-3,2.5,"x"],"m":{"k":{}}})");  // the order of the text
}

TEST(Json, ScalarsMayBeTheWholeText) {
  EXPECT_EQ(*parse("7"), Value(7));
  EXPECT_EQ(*parse("\"é\""), Value("é"));
  EXPECT_EQ(*parse(" null\n"), Value());
}

TEST(Json, KeepsNumbersExactly) {
  EXPECT_EQ(parse("-9223372036854775808")->integer(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse("9223372036854775807")->integer(), std::numeric_limits<int64_t>::max());

  const auto big = parse("18446744073709551615");
  EXPECT_FALSE(big->is_integer());
  EXPECT_TRUE(big->is_number());
  EXPECT_EQ(big->big_integer(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(write(*big), "18446744073709551615");
  EXPECT_EQ(*big, Value(std::numeric_limits<uint64_t>::max()));

  EXPECT_EQ(parse("18446744073709551616")->number(), 0x1p64);
  EXPECT_EQ(parse("-9223372036854775809")->number(), -0x1p63);
  EXPECT_EQ(Value(uint64_t{5}), Value(5));
  EXPECT_FALSE(parse("1.0")->is_integer());
  EXPECT_FALSE(parse("1e2")->is_integer());
  EXPECT_EQ(parse("1e2")->number(), 100.0);
  EXPECT_EQ(parse("0.1000e-328")->number(), 0.0);
  EXPECT_EQ(parse("1e-320")->number(), 1e-320);
  EXPECT_EQ(parse("1.7976931348623157e308")->number(), std::numeric_limits<double>::max());
  EXPECT_EQ(*parse("-0"), Value(0));
  EXPECT_EQ(parse("9007199254740993")->integer(), 9007199254740993);
}

TEST(Json, WritesDoublesSoThatTheyStayDoubles) {
  EXPECT_EQ(write(Value(0.1)), "0.1");
  EXPECT_EQ(write(Value(1.0)), "1.0");
  EXPECT_EQ(write(Value(-0.0)), "-0.0");
  EXPECT_TRUE(std::signbit(parse("-0.0")->number()));
  EXPECT_EQ(write(Value(5e-324)), "5e-324");
  EXPECT_EQ(write(Value(std::nan(""))), "null");
  EXPECT_EQ(write(Value(-std::numeric_limits<double>::infinity())), "null");
}

TEST(Json, EscapesAndUnescapes) {
  const std::string text = "\"\\\b\f\n\r\t\x01/é😀";
  EXPECT_EQ(write(Value(text)), R"("\"\\\b\f\n\r\t\u0001/é😀")");
  EXPECT_EQ(parse(write(Value(text)))->string(), text);
  EXPECT_EQ(parse(R"("\u00e9\ud83d\ude00\u0000")")->string(), std::string("é😀\0", 7));
  EXPECT_EQ(write(Value("a\xff"
                        "b")),
            "\"a\xef\xbf\xbd"
            "b\"");  // never writes invalid UTF-8
}

TEST(Json, Indents) {
  EXPECT_EQ(write(Value(Object{{"a", Array{1, 2}}, {"b", Array{}}}), 2),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": []\n}");
}

TEST(Json, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"é\" 2}"), "line 2, column 6: expected : after the key");
  EXPECT_EQ(error_of("[1 2]"), "line 1, column 4: expected , or ] after the element");
  EXPECT_EQ(error_of("{\"a\":1"), "line 1, column 7: the text ends here; expected , or } after the value");
  EXPECT_EQ(error_of("[1]\n x"), "line 2, column 2: text after the end of the JSON value");
  EXPECT_EQ(error_of(std::string_view("1\0", 2)), "line 1, column 2: text after the end of the JSON value");
  EXPECT_EQ(error_of(" \n"), "expected a JSON value; the text is empty");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"NaN",
                           "Infinity",
                           "-",
                           "01",
                           "1.",
                           "1e",
                           ".5",
                           "+1",
                           "'a'",
                           "{a:1}",
                           "[1,]",
                           "{\"a\":1,}",
                           "[,1]",
                           "tru",
                           "nul",
                           "// c\n1",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"a\nb\"",
                           "\"abc",
                           "[",
                           "{",
                           "]",
                           "{\"a\"}",
                           "1e999",
                           "1.7976931348623159e308",
                           "[1]]",
                           "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\"",
                           "\"\xff\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "{\"\\udc00\":1}"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

TEST(Json, RefusesRepeatedKeys) {
  EXPECT_EQ(error_of("{\"a\":1,\n\"b\":{\"x\":[{}]},\"a\":2}"),
            "line 2, column 18: the key \"a\" is repeated in its object; keep one");
  EXPECT_EQ(error_of("{\"a\":{\"b\":1,\"\\u0062\":2}}"),
            "line 1, column 20: the key \"b\" is repeated in its object; keep one");
  EXPECT_TRUE(parse("{\"a\":{\"a\":1},\"b\":{\"a\":1}}"));
}

TEST(Json, LimitsDepth) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse(nested(200)));
  EXPECT_EQ(error_of(nested(201)), "line 1, column 201: nested more than 200 deep");
  EXPECT_TRUE(parse(nested(3), {.max_depth = 3}));
  EXPECT_FALSE(parse("[{\"a\":{}}]", {.max_depth = 2}));
  EXPECT_TRUE(parse("1", {.max_depth = 0}));
  EXPECT_FALSE(parse(nested(1'000'000)));
}

TEST(Json, LargeObjectsParse) {
  std::string text = "{";
  for (int i = 0; i < 74'000; ++i) fmt::format_to(std::back_inserter(text), "\"layers.{}.weight\":[{}],", i, i);
  const auto value = parse(text + "\"last\":0}");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->object().size(), 74'001u);
  EXPECT_EQ(value->find("layers.73999.weight")->array()[0], Value(73'999));
  EXPECT_FALSE(parse(text + "\"layers.0.weight\":0}"));
}

TEST(Json, FindAndSet) {
  Value value;
  value.set("b", 1);
  value.set("a", 2);
  value.set("b", "new");
  EXPECT_EQ(write(value), R"({"b":"new","a":2})");
  EXPECT_EQ(value.find("c"), nullptr);
  EXPECT_EQ(Value(3).find("a"), nullptr);
  EXPECT_STREQ(value.kind(), "an object");
}

TEST(Json, ParseFileNamesThePath) {
  EXPECT_EQ(parse_file("no/such/file").error().message, "cannot read no/such/file: No such file or directory");
  EXPECT_EQ(parse_file("/").error().message, "cannot read /: Is a directory");
}

TEST(Json, PointerToken) { EXPECT_EQ(pointer_token("a/b~c"), "a~1b~0c"); }

TEST(JsonDeath, WrongKindIsACheck) { EXPECT_DEATH((void)Value(1).string(), "JSON value is a number"); }

// ---- properties ----

rc::Gen<Value> any_value(int depth) {
  auto text = rc::gen::map(rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127)), [](std::string s) { return s; });
  auto scalar =
      rc::gen::oneOf(rc::gen::just(Value()), rc::gen::map(rc::gen::arbitrary<bool>(), [](bool v) { return Value(v); }),
                     rc::gen::map(rc::gen::arbitrary<int64_t>(), [](int64_t v) { return Value(v); }),
                     rc::gen::map(rc::gen::arbitrary<uint64_t>(), [](uint64_t v) { return Value(v); }),
                     rc::gen::map(rc::gen::arbitrary<double>(), [](double v) { return Value(v); }),
                     rc::gen::map(text, [](std::string v) { return Value(std::move(v)); }));
  if (depth == 0) return scalar;
  auto inner = rc::gen::resize(6, rc::gen::container<Array>(any_value(depth - 1)));
  return rc::gen::oneOf(scalar, rc::gen::map(inner, [](Array v) { return Value(std::move(v)); }),
                        rc::gen::map(inner, [](Array v) {
                          Object object;
                          for (Value& element : v)
                            object.emplace_back(fmt::format("k{}", object.size()), std::move(element));
                          return Value(std::move(object));
                        }));
}

RC_GTEST_PROP(JsonProperty, WrittenValuesReadBackEqual, (int indent)) {
  const Value value = *any_value(3);
  const auto back = parse(write(value, std::abs(indent % 4)));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == value);
}

RC_GTEST_PROP(JsonProperty, EveryDoubleReadsBackBitForBit, (uint64_t bits)) {
  const double v = std::bit_cast<double>(bits);
  RC_PRE(std::isfinite(v));
  RC_ASSERT(std::bit_cast<uint64_t>(parse(write(Value(v)))->number()) == bits);
}

RC_GTEST_PROP(JsonProperty, DecimalsReadAsTheNearestDouble, (uint64_t digits, uint64_t more)) {
  const int exponent = *rc::gen::inRange(-340, 270);
  const std::string text = fmt::format("{}.{}e{}", digits, more, exponent);
  RC_ASSERT(parse(text)->number() == std::strtod(text.c_str(), nullptr));
}

RC_GTEST_PROP(JsonProperty, ArbitraryBytesNeverCrash, (std::string text)) {
  for (const std::string& t : {text, "[\"" + text + "\"]", "{\"" + text}) {
    if (const auto value = parse(t)) RC_ASSERT(*parse(write(*value)) == *value);
  }
}

}  // namespace
}  // namespace dgem::json
