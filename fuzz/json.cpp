// Any bytes: parse() returns a value or an error, and what it accepts is written so that it reads back the same.
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = dgem::json::parse({reinterpret_cast<const char*>(data), size});
  if (!value) {
    DGEM_CHECK(!value.error().message.empty());
    return 0;
  }
  const std::string text = dgem::json::write(*value);
  const auto again = dgem::json::parse(text);
  DGEM_CHECK(again.ok(), "{}", text);
  DGEM_CHECK(*again == *value, "{}", text);
  return 0;
}
