#include "text/json_scanner.h"

#include "base/utf8.h"

#include <algorithm>

namespace dgem::text {

void JsonScanner::space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
}

bool JsonScanner::fail(const char* expected) {
  expected_ = expected;
  return false;
}

Error JsonScanner::failure() const {
  const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size())), '\n');
  return make_error("not the JSON of a tokenizer.json: expected {} at byte {} (line {})", expected_, at_, line);
}

bool JsonScanner::at(char c) {
  space();
  return at_ < text_.size() && text_[at_] == c;
}

bool JsonScanner::expect(char c, const char* name) {
  if (!at(c)) return fail(name);
  ++at_;
  return true;
}

bool JsonScanner::begin(char bracket) { return expect(bracket, bracket == '{' ? "'{'" : "'['"); }

bool JsonScanner::next(char close, bool first, bool& more) {
  more = !at(close);
  if (!more) {
    ++at_;
    return true;
  }
  return first || expect(',', close == '}' ? "',' or '}'" : "',' or ']'");
}

bool JsonScanner::end() {
  space();
  return at_ == text_.size() || fail("the end of the file");
}

// From behind the opening quote: where the closing quote is, and whether the text before it is plain ASCII without
// escapes.
bool JsonScanner::string_end(size_t& end, bool& plain) {
  plain = true;
  for (size_t i = at_; i < text_.size(); ++i) {
    const auto c = static_cast<unsigned char>(text_[i]);
    if (c == '"') {
      end = i;
      return true;
    }
    if (c >= 0x20 && c < 0x80 && c != '\\') continue;
    plain = false;
    if (c == '\\') ++i;
    if (c < 0x20) {
      at_ = i;
      return fail("no control character inside a string");
    }
  }
  at_ = text_.size();
  return fail("the closing '\"' of a string");
}

bool JsonScanner::string(std::string_view& value) {
  size_t end = 0;
  bool plain = false;
  if (!expect('"', "a string") || !string_end(end, plain)) return false;
  value = text_.substr(at_, end - at_);
  if (!plain) {
    if (!utf8::is_valid(value)) return fail("valid UTF-8 in a string");
    if (value.find('\\') != std::string_view::npos) {
      unescaped_.clear();
      while (at_ < end) {
        if (text_[at_] != '\\') {
          unescaped_.push_back(text_[at_++]);
        } else if (!escape(unescaped_)) {
          return false;
        }
      }
      value = unescaped_;
    }
  }
  at_ = end + 1;
  return true;
}

bool JsonScanner::hex(uint32_t& unit) {
  unit = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return fail("four hexadecimal digits after \\u");
    unit = unit * 16 + static_cast<uint32_t>(digit);
  }
  return true;
}

bool JsonScanner::escape(std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  const char name = text_[at_ + 1];  // string_end() has seen a quote behind it
  at_ += 2;
  if (name != 'u') {
    const size_t i = kNames.find(name);
    if (i == std::string_view::npos) return fail("an escape sequence that JSON has");
    out.push_back(kValues[i]);
    return true;
  }
  uint32_t unit = 0;
  if (!hex(unit)) return false;
  if (unit >= 0xd800 && unit < 0xe000) {
    uint32_t low = 0;
    const bool paired = unit < 0xdc00 && text_.substr(at_, 2) == "\\u";
    if (!paired) return fail("a pair of surrogates");
    at_ += 2;
    if (!hex(low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return fail("a pair of surrogates");
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
  }
  utf8::append(out, unit);
  return true;
}

bool JsonScanner::natural(int64_t& value) {
  space();
  const size_t first = at_;
  value = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - first < 10)
    value = value * 10 + (text_[at_++] - '0');
  const bool leading_zero = at_ - first > 1 && text_[first] == '0';
  if (at_ == first || at_ - first > 9 || leading_zero) return fail("a whole number of at most 9 digits");
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) return fail("a whole number");
  return true;
}

bool JsonScanner::skip(std::string_view& value) {
  space();
  const size_t first = at_;
  size_t depth = 0;
  do {
    if (at_ >= text_.size()) return fail("a value");
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      size_t end = 0;
      bool plain = false;
      if (!string_end(end, plain)) return false;
      at_ = end + 1;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at_;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return fail("a value");
      --depth;
      ++at_;
    } else {
      // A number, a literal, or white space and punctuation between values.
      ++at_;
      while (depth == 0 && at_ < text_.size() &&
             std::string_view(",]}:\" \n\r\t").find(text_[at_]) == std::string_view::npos)
        ++at_;
    }
  } while (depth != 0);
  value = text_.substr(first, at_ - first);
  return true;
}

}  // namespace dgem::text
