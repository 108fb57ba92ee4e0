// Any bytes as a tokenizer.json: they are refused with a reason, or make a tokenizer that encodes any text without control
// tokens and decodes it to the same text.
#include "base/utf8.h"
#include "text/tokenizer.h"

#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using dgem::text::Specials;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = dgem::text::Tokenizer::parse(json);
  if (!tokenizer) {
    DGEM_CHECK(!tokenizer.error().message.empty() && dgem::utf8::is_valid(tokenizer.error().message));
    return 0;
  }
  // The file itself is the text that has most in common with its vocabulary.
  std::string text = dgem::utf8::replace_invalid(json);
  for (const Specials specials : {Specials::parse, Specials::as_text}) {
    const auto ids = tokenizer->encode(text, specials);
    for (const int32_t id : ids) {
      DGEM_CHECK(id >= 0 && id < tokenizer->vocab_size());
      DGEM_CHECK(specials == Specials::parse || !tokenizer->is_control(id));
    }
    std::string expected = text;
    for (size_t at = expected.find(dgem::text::kSpaceMark); at != std::string::npos;
         at = expected.find(dgem::text::kSpaceMark, at)) {
      expected.replace(at, dgem::text::kSpaceMark.size(), " ");
    }
    DGEM_CHECK(tokenizer->decode(ids) == expected);
  }
  return 0;
}
