#include "base/json.h"

#include "base/utf8.h"

#include <rapidjson/error/error.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

namespace dgem::json {

Value::Value(uint64_t v) {
  if (v <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    v_ = static_cast<int64_t>(v);
  } else {
    v_ = v;
  }
}

bool Value::boolean() const {
  DGEM_CHECK(is_bool(), "JSON value is {}", kind());
  return std::get<bool>(v_);
}

int64_t Value::integer() const {
  DGEM_CHECK(is_integer(), "JSON value is {}", kind());
  return std::get<int64_t>(v_);
}

double Value::number() const {
  DGEM_CHECK(is_number(), "JSON value is {}", kind());
  if (is_integer()) return static_cast<double>(std::get<int64_t>(v_));
  if (is_big()) return static_cast<double>(std::get<uint64_t>(v_));
  return std::get<double>(v_);
}

std::optional<uint64_t> Value::big_integer() const {
  if (!is_big()) return std::nullopt;
  return std::get<uint64_t>(v_);
}

const std::string& Value::string() const {
  DGEM_CHECK(is_string(), "JSON value is {}", kind());
  return std::get<std::string>(v_);
}

const Array& Value::array() const {
  DGEM_CHECK(is_array(), "JSON value is {}", kind());
  return std::get<Array>(v_);
}

Array& Value::array() {
  DGEM_CHECK(is_array(), "JSON value is {}", kind());
  return std::get<Array>(v_);
}

const Object& Value::object() const {
  DGEM_CHECK(is_object(), "JSON value is {}", kind());
  return std::get<Object>(v_);
}

Object& Value::object() {
  DGEM_CHECK(is_object(), "JSON value is {}", kind());
  return std::get<Object>(v_);
}

const Value* Value::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : std::get<Object>(v_)) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Value& Value::set(std::string key, Value value) {
  if (is_null()) v_ = Object{};
  for (Member& member : object()) {
    if (member.first == key) return member.second = std::move(value);
  }
  return object().emplace_back(std::move(key), std::move(value)).second;
}

const char* Value::kind() const {
  if (is_null()) return "null";
  if (is_bool()) return "true/false";
  if (is_number()) return "a number";
  if (is_string()) return "a string";
  return is_array() ? "a list" : "an object";
}

namespace {

// Lines and columns count from 1; a column is one code point.
std::string position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const std::string_view in_line = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
  const auto starts_code_point = [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; };
  const auto column = std::count_if(in_line.begin(), in_line.end(), starts_code_point) + 1;
  return fmt::format("line {}, column {}", line, column);
}

// Two equal keys of an object: the index of the later one, or nothing. O(n log n).
std::optional<size_t> repeated_key(const Object& object) {
  std::vector<size_t> order(object.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int c = object[a].first.compare(object[b].first);
    return c != 0 ? c < 0 : a < b;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (object[order[i - 1]].first == object[order[i]].first) return order[i];
  }
  return std::nullopt;
}

const char* explain(rapidjson::ParseErrorCode code) {
  switch (code) {
    case rapidjson::kParseErrorDocumentRootNotSingular: return "text after the end of the JSON value";
    case rapidjson::kParseErrorObjectMissName: return "expected a key in double quotes, or }";
    case rapidjson::kParseErrorObjectMissColon: return "expected : after the key";
    case rapidjson::kParseErrorObjectMissCommaOrCurlyBracket: return "expected , or } after the value";
    case rapidjson::kParseErrorArrayMissCommaOrSquareBracket: return "expected , or ] after the element";
    case rapidjson::kParseErrorStringUnicodeEscapeInvalidHex: return "\\u needs four hexadecimal digits";
    case rapidjson::kParseErrorStringUnicodeSurrogateInvalid:
      return "the string escapes half of a surrogate pair (\\ud800-\\udfff)";
    case rapidjson::kParseErrorStringEscapeInvalid: return "unknown escape in a string";
    case rapidjson::kParseErrorStringMissQuotationMark: return "the string has no closing quote";
    case rapidjson::kParseErrorStringInvalidEncoding: return "the string is not valid UTF-8, or has a raw control character";
    case rapidjson::kParseErrorNumberTooBig: return "the number is too large for a double";
    case rapidjson::kParseErrorNumberMissFraction: return "expected a digit after the decimal point";
    case rapidjson::kParseErrorNumberMissExponent: return "expected a digit in the exponent";
    default: return "expected a JSON value: an object, list, string, number, true, false or null";
  }
}

template <class T>
std::optional<T> number_from(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// RapidJSON's events become a Value. A function that returns false ends the parse; `failure` and `failed_at` then say why.
class Builder {
 public:
  Builder(const rapidjson::MemoryStream& stream, int max_depth) : stream_(stream), max_depth_(max_depth) {}

  bool Null() { return add(Value()); }
  bool Bool(bool v) { return add(Value(v)); }

  // Numbers come as text: the reader's own conversion to double, in Debian's release, is wrong near the smallest ones.
  bool RawNumber(const char* begin, rapidjson::SizeType size, bool) {
    const std::string_view text(begin, size);
    if (text.find_first_of(".eE") == text.npos) {
      if (const auto v = number_from<int64_t>(text)) return add(Value(*v));
      if (const auto v = number_from<uint64_t>(text)) return add(Value(*v));
    }
    if (const auto v = number_from<double>(text)) return add(Value(*v));
    const double v = std::strtod(std::string(text).c_str(), nullptr);  // out of range: rounds towards zero or infinity
    return std::isfinite(v) ? add(Value(v)) : fail(stream_.Tell() - 1, explain(rapidjson::kParseErrorNumberTooBig));
  }
  bool Int(int) { return unused(); }
  bool Uint(unsigned) { return unused(); }
  bool Int64(int64_t) { return unused(); }
  bool Uint64(uint64_t) { return unused(); }
  bool Double(double) { return unused(); }

  bool String(const char* text, rapidjson::SizeType size, bool) {
    return check_text({text, size}) && add(Value(std::string(text, size)));
  }

  bool Key(const char* text, rapidjson::SizeType size, bool) {
    if (!check_text({text, size})) return false;
    open_.back()->object().emplace_back(std::string(text, size), Value());
    key_ends_.push_back(stream_.Tell());
    return true;
  }

  bool StartObject() { return open(Value(Object{})); }
  bool StartArray() { return open(Value(Array{})); }

  bool EndObject(rapidjson::SizeType) {
    const Object& object = open_.back()->object();
    const size_t first_key = key_ends_.size() - object.size();
    if (const auto index = repeated_key(object)) {
      return fail(key_ends_[first_key + *index] - 1,
                  fmt::format("the key {} is repeated in its object; keep one", write(Value(object[*index].first))));
    }
    key_ends_.resize(first_key);
    open_.pop_back();
    return true;
  }

  bool EndArray(rapidjson::SizeType) {
    open_.pop_back();
    return true;
  }

  Value root;
  std::string failure;
  size_t failed_at = 0;

 private:
  // Puts the value where the text has it. A pointer to an open container stays valid: nothing is added to its parent
  // before it is closed.
  Value* place(Value value) {
    if (open_.empty()) return &(root = std::move(value));
    Value& parent = *open_.back();
    if (parent.is_array()) return &parent.array().emplace_back(std::move(value));
    return &(parent.object().back().second = std::move(value));
  }

  bool add(Value value) {
    place(std::move(value));
    return true;
  }

  bool open(Value container) {
    if (open_.size() >= static_cast<size_t>(std::max(max_depth_, 0))) {
      return fail(stream_.Tell(), fmt::format("nested more than {} deep", max_depth_));
    }
    open_.push_back(place(std::move(container)));
    return true;
  }

  // The reader validates the bytes of the text, but Debian's release lets the escape of a lone low surrogate through.
  bool check_text(std::string_view text) {
    return utf8::is_valid(text) || fail(stream_.Tell() - 1, explain(rapidjson::kParseErrorStringUnicodeSurrogateInvalid));
  }

  bool unused() {
    DGEM_CHECK(false, "the reader was told to give numbers as text");
    return false;
  }

  bool fail(size_t offset, std::string message) {
    failed_at = offset;
    failure = std::move(message);
    return false;
  }

  const rapidjson::MemoryStream& stream_;
  int max_depth_;
  std::vector<Value*> open_;
  std::vector<size_t> key_ends_;  // of the open objects, one after the other
};

Error error_at(std::string_view text, size_t offset, std::string_view what) {
  if (offset >= text.size()) return make_error("{}: the text ends here; {}", position(text, offset), what);
  return make_error("{}: {}", position(text, offset), what);
}

}  // namespace

Result<Value> parse(std::string_view text, const ParseOptions& options) {
  if (text.size() > std::numeric_limits<rapidjson::SizeType>::max()) return make_error("JSON text of 4 GiB or more");
  if (text.find_first_not_of(" \t\r\n") == text.npos) return make_error("expected a JSON value; the text is empty");

  constexpr unsigned kFlags =
      rapidjson::kParseNumbersAsStringsFlag | rapidjson::kParseValidateEncodingFlag | rapidjson::kParseIterativeFlag;
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  Builder builder(stream, options.max_depth);
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, builder);
  if (!builder.failure.empty()) return error_at(text, builder.failed_at, builder.failure);
  if (result.IsError()) return error_at(text, result.Offset(), explain(result.Code()));
  // The stream shows a zero byte as its end.
  if (stream.Tell() != text.size()) return error_at(text, stream.Tell(), "text after the end of the JSON value");
  return std::move(builder.root);
}

Result<Value> parse_file(const std::string& path, const ParseOptions& options) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return make_error("cannot read {}: {}", path, std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) text.append(buffer, n);
  if (std::ferror(file.get()) != 0) return make_error("cannot read {}: {}", path, std::strerror(errno));
  auto value = parse(text, options);
  if (!value) return make_error("{}: {}", path, value.error().message);
  return value;
}

namespace {

void write_string(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<int>(c));
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

// What a caller put into a string need not be UTF-8, but the text written must be.
void write_valid_string(std::string& out, std::string_view text) {
  if (utf8::is_valid(text)) return write_string(out, text);
  write_string(out, utf8::replace_invalid(text));
}

void write_double(std::string& out, double v) {
  if (!std::isfinite(v)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  const std::string_view digits(buffer, static_cast<size_t>(end - buffer));
  out += digits;
  if (digits.find_first_of(".e") == digits.npos) out += ".0";  // read back as a double
}

class Writer {
 public:
  Writer(std::string& out, int indent) : out_(out), indent_(indent) {}

  void value(const Value& v) {
    if (v.is_null()) {
      out_ += "null";
    } else if (v.is_bool()) {
      out_ += v.boolean() ? "true" : "false";
    } else if (v.is_integer()) {
      out_ += fmt::format_int(v.integer()).c_str();
    } else if (v.is_string()) {
      write_valid_string(out_, v.string());
    } else if (v.is_array()) {
      sequence('[', ']', v.array(), [&](const Value& element) { value(element); });
    } else if (v.is_object()) {
      sequence('{', '}', v.object(), [&](const Member& member) {
        write_valid_string(out_, member.first);
        out_ += indent_ > 0 ? ": " : ":";
        value(member.second);
      });
    } else if (const auto big = v.big_integer()) {
      out_ += fmt::format_int(*big).c_str();
    } else {
      write_double(out_, v.number());
    }
  }

 private:
  template <class Items, class WriteItem>
  void sequence(char opening, char closing, const Items& items, WriteItem write_item) {
    out_.push_back(opening);
    ++depth_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_.push_back(',');
      first = false;
      new_line();
      write_item(item);
    }
    --depth_;
    if (!items.empty()) new_line();
    out_.push_back(closing);
  }

  void new_line() {
    if (indent_ > 0) out_.append(1, '\n').append(static_cast<size_t>(indent_ * depth_), ' ');
  }

  std::string& out_;
  int indent_;
  int depth_ = 0;
};

}  // namespace

std::string write(const Value& value, int indent) {
  std::string out;
  Writer(out, indent).value(value);
  return out;
}

std::string pointer_token(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace dgem::json
