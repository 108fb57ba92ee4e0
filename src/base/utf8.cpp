#include "base/utf8.h"

#include "base/result.h"

namespace dgem::utf8 {

namespace {

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && byte_at(text, i) < 0x80) ++i;
  return i;
}

}  // namespace

Decoded decode(std::string_view text) {
  DGEM_CHECK(!text.empty());
  const uint8_t first = byte_at(text, 0);
  if (first < 0x80) return {first, 1, true};

  // The first byte gives the length; it also narrows the second byte where a wider range would be overlong, a surrogate
  // or past U+10FFFF.
  size_t length = 0;
  uint8_t low = 0x80, high = 0xbf;
  char32_t code_point = 0;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
    code_point = first & 0x1fu;
  } else if ((first & 0xf0u) == 0xe0u) {
    length = 3;
    code_point = first & 0x0fu;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    code_point = first & 0x07u;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return {kReplacement, 1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {kReplacement, i, false};
    const uint8_t next = byte_at(text, i);
    if (next < low || next > high) return {kReplacement, i, false};
    low = 0x80;
    high = 0xbf;
    code_point = (code_point << 6) | (next & 0x3fu);
  }
  return {code_point, length, true};
}

bool is_valid(std::string_view text) {
  for (;;) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const Decoded decoded = decode(text);
    if (!decoded.valid) return false;
    text.remove_prefix(decoded.length);
  }
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded decoded = decode(text);
    if (decoded.valid) {
      out.append(text.substr(0, decoded.length));
    } else {
      append(out, kReplacement);
    }
    text.remove_prefix(decoded.length);
  }
  return out;
}

void append(std::string& out, char32_t code_point) {
  if ((code_point >= 0xd800 && code_point <= 0xdfff) || code_point > 0x10ffff) code_point = kReplacement;
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80u | ((code_point >> shift) & 0x3fu))); };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xc0u | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xe0u | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0u | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace dgem::utf8
