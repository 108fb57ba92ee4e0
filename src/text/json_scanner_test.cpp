#include "text/json_scanner.h"

#include "base/json.h"
#include "base/utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace dgem::text {
namespace {

std::string read_string(std::string_view text) {
  JsonScanner scanner(text);
  std::string_view value;
  if (!scanner.string(value)) return "error: " + scanner.failure().message;
  std::string copy(value);
  return scanner.end() ? copy : "error: " + scanner.failure().message;
}

TEST(JsonScanner, ReadsStrings) {
  EXPECT_EQ(read_string(R"("")"), "");
  EXPECT_EQ(read_string(" \"a\xe2\x96\x81z\" "), "a\xe2\x96\x81z");
  EXPECT_EQ(read_string(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(read_string(R"("\u0041\u00e9\u2581\ud83d\ude00\u0000")"), std::string("Aé▁😀\0", 11));
}

TEST(JsonScanner, RefusesBadStrings) {
  for (const char* text :
       {"", "x", "\"", "\"a", "\"\\\"", "\"\\", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\ud800\\u0041\"",
        "\"\\udc00\"", "\"\\ud800\\\"", "\"a\nb\"", "\"\xff\"", "\"\xe2\x96\"", "\"a\"b"}) {
    EXPECT_TRUE(read_string(text).starts_with("error: ")) << text;
  }
}

RC_GTEST_PROP(JsonScanner, ReadsWhatTheWriterWrites, (const std::vector<uint32_t>& code_points)) {
  std::string text;
  for (const uint32_t c : code_points) {
    if (c % 3 == 0) text.push_back(static_cast<char>(c % 0x80));
    if (c % 3 == 1) utf8::append(text, c % 0x110000);
    if (c % 3 == 2) text += "\"\\/";
  }
  RC_ASSERT(read_string(json::write(json::Value(text))) == text);
}

TEST(JsonScanner, ReadsNaturalNumbers) {
  const auto natural = [](std::string_view text) {
    JsonScanner scanner(text);
    int64_t value = 0;
    return scanner.natural(value) && scanner.end() ? value : -1;
  };
  EXPECT_EQ(natural("0"), 0);
  EXPECT_EQ(natural(" 999999999 "), 999999999);
  for (const char* text : {"", "-1", "1000000000", "01", "1.0", "1e3", "x", "1 2"}) EXPECT_EQ(natural(text), -1) << text;
}

TEST(JsonScanner, SkipsAnyValue) {
  for (const char* value :
       {"1", "-2.5e3", "null", "\"a]}\\\"\"", "[]", "{}", "[1,[2,{\"a\":\"}\"}],\"]\"]", "{\"a\":{\"b\":[{}]}}"}) {
    const std::string text = fmt::format(" {} , 7", value);
    JsonScanner scanner(text);
    std::string_view view;
    ASSERT_TRUE(scanner.skip(view)) << value;
    EXPECT_EQ(view, value);
    EXPECT_TRUE(scanner.at(','));
  }
  for (const char* text : {"", "[", "[1", "{\"a\":\"", "]"}) {
    JsonScanner scanner(text);
    std::string_view view;
    EXPECT_FALSE(scanner.skip(view)) << text;
  }
}

TEST(JsonScanner, SaysWhereAndWhat) {
  JsonScanner scanner("{\n\"a\" 1}");
  std::string_view key;
  bool more = false;
  ASSERT_TRUE(scanner.begin('{') && scanner.next('}', true, more) && more && scanner.string(key));
  EXPECT_FALSE(scanner.colon());
  EXPECT_EQ(scanner.failure().message, "not the JSON of a tokenizer.json: expected ':' at byte 6 (line 2)");
}

}  // namespace
}  // namespace dgem::text
