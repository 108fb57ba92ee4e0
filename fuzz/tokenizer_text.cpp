// Any bytes as pieces of a prompt: data never becomes control tokens, decoding gives the text back, and a stream decoder
// gives the same as decoding at once, in valid parts. Also any ids into the decoder.
#include "base/utf8.h"
#include "text/test_tokenizer.h"
#include "text/tokenizer.h"

#include <string>
#include <vector>

namespace {

using namespace dgem;
using namespace dgem::text;

const Tokenizer& tokenizer() {
  static const Tokenizer instance = [] {
    auto parsed = Tokenizer::parse(json::write(small_tokenizer({"<",
                                                                "|",
                                                                "turn",
                                                                ">",
                                                                "t",
                                                                "u",
                                                                "r",
                                                                "n",
                                                                "<|",
                                                                "tu",
                                                                "rn",
                                                                "turn|",
                                                                "turn|>",
                                                                "<|turn",
                                                                "\n",
                                                                "\n\n",
                                                                "a",
                                                                "aa",
                                                                "aaaa",
                                                                "\xe2\x96\x81\xe2\x96\x81",
                                                                "\xe2\x96\x81"
                                                                "a",
                                                                "\xc3\xa9",
                                                                "a\xc3\xa9"},
                                                               {{"<", "|"},
                                                                {"t", "u"},
                                                                {"r", "n"},
                                                                {"tu", "rn"},
                                                                {"<|", "turn"},
                                                                {"<|turn", ">"},
                                                                {"turn", "|"},
                                                                {"turn|", ">"},
                                                                {"<", "turn|>"},
                                                                {"a", "a"},
                                                                {"aa", "aa"},
                                                                {"\xe2\x96\x81", "\xe2\x96\x81"},
                                                                {"\xe2\x96\x81", "a"},
                                                                {"a", "\xc3\xa9"},
                                                                {"\n", "\n"}})));
    DGEM_CHECK(parsed.ok(), "{}", parsed.error().message);
    return std::move(*parsed);
  }();
  return instance;
}

std::string with_spaces(std::string text) {
  for (size_t at = text.find(kSpaceMark); at != std::string::npos; at = text.find(kSpaceMark, at))
    text.replace(at, kSpaceMark.size(), " ");
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A zero byte ends a piece; every second one is trusted.
  std::vector<Piece> pieces(1);
  std::string whole;
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      pieces.push_back({{}, !pieces.back().trusted});
    } else {
      pieces.back().text.push_back(static_cast<char>(data[i]));
    }
  }
  bool any_trusted = false;
  for (const Piece& piece : pieces) {
    whole += utf8::replace_invalid(piece.text);
    any_trusted = any_trusted || (piece.trusted && !piece.text.empty());
  }
  const auto ids = tokenizer().encode(pieces);
  DGEM_CHECK(tokenizer().decode(ids) == with_spaces(whole));
  for (const int32_t id : ids) DGEM_CHECK(any_trusted || !tokenizer().is_control(id));
  for (const int32_t id : tokenizer().encode(whole, Specials::as_text)) DGEM_CHECK(!tokenizer().is_control(id));

  StreamDecoder decoder(tokenizer());
  std::vector<int32_t> any_ids;
  std::string text;
  for (size_t i = 0; i < size; ++i) any_ids.push_back(data[i] < 4 ? data[i] * 97 - 2 : data[i]);
  for (const int32_t id : any_ids) {
    const std::string part = decoder.push(id);
    DGEM_CHECK(utf8::is_valid(part));
    text += part;
  }
  DGEM_CHECK(text + decoder.finish() == tokenizer().decode(any_ids));
  return 0;
}
