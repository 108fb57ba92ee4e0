// UTF-8: decoding with the errors of the Unicode standard (section 3.9, table 3-7), and replacing what is invalid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dgem::utf8 {

inline constexpr char32_t kReplacement = 0xfffd;

struct Decoded {
  char32_t code_point = kReplacement;  // kReplacement where the bytes are invalid
  size_t length = 0;                   // bytes used, at least 1; of invalid text, the maximal subpart
  bool valid = false;
};

// Decodes the code point at the start of `text`, which must not be empty. Overlong forms, surrogates and values over
// U+10FFFF are invalid. A maximal subpart is the longest run of bytes that could have begun a valid code point, or one
// byte; replacing each by one U+FFFD is what browsers and Python do.
Decoded decode(std::string_view text);

bool is_valid(std::string_view text);

// `text` with each maximal invalid subpart replaced by U+FFFD.
std::string replace_invalid(std::string_view text);

// Appends the encoding of a code point; surrogates and values over U+10FFFF are written as U+FFFD.
void append(std::string& out, char32_t code_point);

}  // namespace dgem::utf8
