// A JSON reader that walks a text without building values, for the vocabulary and merges of a tokenizer.json: 33 MB and
// 1.3 million strings, which would take most of a second as values. Everything else is read by base/json.h.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dgem::text {

// Each function returns false when the text is not what it asks for; failure() then says what was expected and where,
// and the scanner must not be used further. Views returned hold until the next call.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}
  // Over a part of the text, which skip() gave; failures tell places in the whole text.
  JsonScanner(std::string_view text, std::string_view part)
      : text_(text.substr(0, static_cast<size_t>(part.data() + part.size() - text.data()))),
        at_(static_cast<size_t>(part.data() - text.data())) {}

  bool begin(char bracket);  // '{' or '['
  // To the next member or element of the innermost list or object that closes with `close`; `more` is false once the
  // closing bracket has been read. `first`: this is the first call after begin().
  bool next(char close, bool first, bool& more);
  bool colon() { return expect(':', "':'"); }
  bool string(std::string_view& value);  // unescaped, valid UTF-8
  bool natural(int64_t& value);          // a whole number of at most 9 digits
  bool skip(std::string_view& value);    // any value, by its brackets and quotes only: the caller parses the view
  bool end();                            // nothing but white space is left
  bool at(char c);                       // the next character is c

  Error failure() const;

 private:
  void space();
  bool fail(const char* expected);
  bool expect(char c, const char* name);
  bool string_end(size_t& end, bool& plain);
  bool escape(std::string& out);
  bool hex(uint32_t& unit);

  std::string_view text_;
  size_t at_ = 0;
  const char* expected_ = "";
  std::string unescaped_;
};

}  // namespace dgem::text
