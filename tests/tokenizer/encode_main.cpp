// tokenizer_encode TOKENIZER: reads texts from standard input, each as a 4-byte little-endian length and its bytes, and
// writes for each one line to standard output:
//   {"parse": [ids], "as_text": [ids], "decoded": "hex of the bytes that the ids of `parse` decode to", "text": "... of
//   `as_text`"}
#include "text/tokenizer.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <string>

namespace {

using dgem::text::Specials;
using dgem::text::Tokenizer;

bool read_text(std::string& text) {
  std::array<unsigned char, 4> length{};
  if (!std::cin.read(reinterpret_cast<char*>(length.data()), length.size())) return false;
  text.resize(length[0] | length[1] << 8 | length[2] << 16 | static_cast<size_t>(length[3]) << 24);
  return static_cast<bool>(std::cin.read(text.data(), static_cast<std::streamsize>(text.size())));
}

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: tokenizer_encode TOKENIZER_JSON < length-prefixed texts\n");
    return 2;
  }
  const dgem::Result<Tokenizer> tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer) {
    fmt::print(stderr, "{} (at {})\n", tokenizer.error().message, tokenizer.error().pointer);
    return 1;
  }
  std::string text;
  while (read_text(text)) {
    const auto parsed = tokenizer->encode(text, Specials::parse);
    const auto plain = tokenizer->encode(text, Specials::as_text);
    fmt::print("{{\"parse\":[{}],\"as_text\":[{}],\"decoded\":\"{}\",\"text\":\"{}\"}}\n", fmt::join(parsed, ","),
               fmt::join(plain, ","), hex(tokenizer->decode(parsed)), hex(tokenizer->decode(plain)));
  }
  return 0;
}
