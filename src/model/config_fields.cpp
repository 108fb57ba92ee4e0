#include "model/config_fields.h"

#include <charconv>

namespace dgem::model {

const json::Value* Fields::find(const char* key) const {
  const json::Value* value = object_.find(key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

void Fields::fail(std::string_view key, std::string message) {
  if (error_.message.empty()) error_ = Error{fmt::format("{}: {}", key, message), pointer(key)};
}

int64_t Fields::integer(const char* key, int64_t least, int64_t most, std::optional<int64_t> fallback) {
  const json::Value* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_integer() || value->integer() < least || value->integer() > most) {
    fail(key, fmt::format("expected a whole number from {} to {}, found {}", least, most,
                          value ? json::write(*value).substr(0, 60) : "none"));
    return least;
  }
  return value->integer();
}

double Fields::number(const char* key, double least, double most, double fallback) {
  const json::Value* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !(value->number() >= least && value->number() <= most)) {
    fail(key, fmt::format("expected a number from {} to {}, found {}", least, most, json::write(*value).substr(0, 60)));
    return least;
  }
  return value->number();
}

std::string Fields::string(const char* key, const char* fallback) {
  const json::Value* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) {
    fail(key, fmt::format("expected a string, found {}", value->kind()));
    return fallback;
  }
  return value->string();
}

std::vector<int32_t> Fields::token_ids(const char* key, int64_t last) {
  const json::Value* value = find(key);
  if (value == nullptr) return {};
  std::vector<int32_t> ids;
  const auto add = [&](const json::Value& id) {
    if (id.is_integer() && id.integer() >= 0 && id.integer() <= last) {
      ids.push_back(static_cast<int32_t>(id.integer()));
    } else {
      fail(key, fmt::format("expected token ids from 0 to {}, found {}", last, json::write(id).substr(0, 60)));
    }
  };
  if (value->is_array()) {
    for (const json::Value& id : value->array()) add(id);
  } else {
    add(*value);
  }
  return ids;
}

void Fields::expect_bool(const char* key, bool expected, const char* why) {
  const json::Value* value = find(key);
  if (value != nullptr && *value != json::Value(expected)) fail(key, fmt::format("expected {}: {}", expected, why));
}

void Fields::expect_zero(const char* key, const char* why) {
  const json::Value* value = find(key);
  if (value != nullptr && *value != json::Value(0)) fail(key, fmt::format("expected 0: {}", why));
}

std::optional<int> parse_index(std::string_view text, int count) {
  int index = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (code != std::errc() || end != text.data() + text.size() || index < 0 || index >= count) return std::nullopt;
  if (text.front() == '-' || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  return index;
}

}  // namespace dgem::model
