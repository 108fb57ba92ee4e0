#include "base/utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace dgem::utf8 {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    std::string text;
    append(text, c);
    const Decoded decoded = decode(text);
    const bool surrogate = c >= 0xd800 && c <= 0xdfff;
    ASSERT_TRUE(decoded.valid);
    ASSERT_EQ(decoded.length, text.size());
    ASSERT_EQ(decoded.code_point, surrogate ? kReplacement : c);
    ASSERT_EQ(text.size(), c < 0x80 ? 1u : c < 0x800 ? 2u : c < 0x10000 ? 3u : 4u);
  }
  std::string text;
  append(text, 0x110000);
  EXPECT_EQ(text, "\uFFFD");
}

TEST(Utf8, EveryPrefixOfACodePointIsOneInvalidSubpart) {
  for (const char32_t c : {0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    append(text, c);
    for (size_t n = 1; n < text.size(); ++n) {
      EXPECT_EQ(decode(text.substr(0, n)).length, n);
      EXPECT_FALSE(is_valid(text.substr(0, n)));
      EXPECT_EQ(replace_invalid("a" + text.substr(0, n) + "b"), "a\uFFFDb");
    }
  }
}

// The example of the Unicode standard, tables 3-8 to 3-11: what each maximal subpart becomes.
TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(replace_invalid("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replace_invalid("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replace_invalid("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(replace_invalid("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(Utf8, ValidTextIsKept) {
  const std::string text = "plain, é, 中, 😀";
  EXPECT_TRUE(is_valid(text));
  EXPECT_EQ(replace_invalid(text), text);
  EXPECT_TRUE(is_valid(""));
  EXPECT_TRUE(is_valid(std::string_view("\0", 1)));
}

RC_GTEST_PROP(Utf8Property, ReplacedTextIsValidAndValidTextUnchanged, (const std::string& bytes)) {
  const std::string replaced = replace_invalid(bytes);
  RC_ASSERT(is_valid(replaced));
  RC_ASSERT((replaced == bytes) == is_valid(bytes));
}

}  // namespace
}  // namespace dgem::utf8
