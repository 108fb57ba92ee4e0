// Reads the members of one JSON object and keeps the first error, so that a long list of fields reads as a list.
// null counts as absent, as transformers writes unset fields.
#pragma once

#include "base/json.h"
#include "base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dgem::model {

class Fields {
 public:
  // `object` must be an object; `pointer` is its JSON pointer. Both and `error` must outlive this.
  Fields(const json::Value& object, std::string pointer, Error& error)
      : object_(object), pointer_(std::move(pointer)), error_(error) {}

  const json::Value* find(const char* key) const;  // nullptr also for null
  std::string pointer(std::string_view key) const { return fmt::format("{}/{}", pointer_, key); }
  // Keeps the error unless there is one already.
  void fail(std::string_view key, std::string message);

  // The member within [least, most]; the fallback if it is absent, an error if there is none. After an error, `least`.
  int64_t integer(const char* key, int64_t least, int64_t most, std::optional<int64_t> fallback = std::nullopt);
  double number(const char* key, double least, double most, double fallback);
  std::string string(const char* key, const char* fallback);
  // One id or a list of ids within [0, last]; empty if absent.
  std::vector<int32_t> token_ids(const char* key, int64_t last);

  // Refuse any other value; absent is fine.
  void expect_bool(const char* key, bool value, const char* why);
  void expect_zero(const char* key, const char* why);

 private:
  const json::Value& object_;
  std::string pointer_;
  Error& error_;
};

// A decimal number in [0, count) without sign or leading zeros.
std::optional<int> parse_index(std::string_view text, int count);

}  // namespace dgem::model
