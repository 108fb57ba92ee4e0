// JSON values in memory: keys keep their order (question and option order matter), numbers keep their exact value.
// Parsing is RapidJSON's reader (UTF-8 validated, iterative); only json.cpp sees it.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dgem::json {

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Object = std::vector<Member>;  // in the order of the text; a repeated key is refused by parse()

class Value {
 public:
  Value() = default;                                 // null
  Value(std::nullptr_t) {}                           // NOLINT
  Value(bool v) : v_(v) {}                           // NOLINT
  Value(int v) : v_(int64_t{v}) {}                   // NOLINT
  Value(int64_t v) : v_(v) {}                        // NOLINT
  Value(uint64_t v);                                 // NOLINT: kept as int64_t where it fits
  Value(double v) : v_(v) {}                         // NOLINT
  Value(const char* v) : v_(std::string(v)) {}       // NOLINT
  Value(std::string_view v) : v_(std::string(v)) {}  // NOLINT
  Value(std::string v) : v_(std::move(v)) {}         // NOLINT
  Value(Array v) : v_(std::move(v)) {}               // NOLINT
  Value(Object v) : v_(std::move(v)) {}              // NOLINT

  bool is_null() const { return v_.index() == 0; }
  bool is_bool() const { return std::holds_alternative<bool>(v_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(v_); }  // written without fraction or exponent, fits
  bool is_number() const { return is_integer() || std::holds_alternative<double>(v_) || is_big(); }
  bool is_string() const { return std::holds_alternative<std::string>(v_); }
  bool is_array() const { return std::holds_alternative<Array>(v_); }
  bool is_object() const { return std::holds_alternative<Object>(v_); }

  // Each needs its kind to hold (DGEM_CHECK), but for big_integer().
  bool boolean() const;
  int64_t integer() const;
  double number() const;                        // of an integer as well
  std::optional<uint64_t> big_integer() const;  // an integer over the int64 range, which is_integer() denies
  const std::string& string() const;
  const Array& array() const;
  Array& array();
  const Object& object() const;
  Object& object();

  const Value* find(std::string_view key) const;  // linear; nullptr if absent or this is no object
  Value& set(std::string key, Value value);       // replaces or appends; makes a null an object
  const char* kind() const;                       // "null", "true/false", "a number", "a string", "a list", "an object"

  friend bool operator==(const Value&, const Value&) = default;

 private:
  bool is_big() const { return std::holds_alternative<uint64_t>(v_); }
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> v_;
};

struct ParseOptions {
  int max_depth = 200;
};

// Errors name line and column. Trailing text, repeated keys, NaN, invalid UTF-8 and depth over the limit are refused.
Result<Value> parse(std::string_view text, const ParseOptions& options = {});
Result<Value> parse_file(const std::string& path, const ParseOptions& options = {});

// indent 0: one line without spaces. Doubles are written shortest round-trip; NaN and infinities as null.
std::string write(const Value& value, int indent = 0);

// Escapes one reference token of a JSON pointer (RFC 6901): "~" and "/".
std::string pointer_token(std::string_view key);

}  // namespace dgem::json
