// The tokenizer of a checkpoint: text to token ids and back (model.md 2.1). It gives the ids of Hugging Face's fast
// tokenizer for the same tokenizer.json, without what a post-processor would add (the chat template writes <bos>).
#pragma once

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/vocabulary.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dgem::text {

// What becomes of control strings such as "<|turn>" inside a text: their control token, or ordinary text, so that data
// from outside cannot open or close a turn. In both cases added tokens that control nothing (in some vocabularies runs
// of newlines) are found, as Hugging Face's split_special_tokens does.
enum class Specials { parse, as_text };

// A stretch of a prompt. Only trusted text may hold control tokens.
struct Piece {
  std::string text;
  bool trusted = false;
  friend bool operator==(const Piece&, const Piece&) = default;
};

// One entry of added_tokens.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
};

// The contents of tokenizer.json, checked: every byte has its token <0xNN>, ids and texts are unique, merges are of
// existing tokens, added tokens are in the vocabulary, and U+2581 is an ordinary token.
struct TokenizerParts {
  Vocabulary vocabulary;
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
};

class Tokenizer {
 public:
  // Reads DIRECTORY/tokenizer.json, or the file itself. Refuses what the encoder does not implement and malformed files;
  // errors carry the JSON pointer.
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json);
  explicit Tokenizer(TokenizerParts parts);

  // Invalid UTF-8 becomes U+FFFD, one for each maximal invalid subpart, as in browsers and Python. Decoding gives the
  // text back byte for byte, except that U+2581 (which the vocabulary uses for spaces) comes back as a space. The text
  // must be below 2 GiB. With `as_text` no id with is_control() is ever returned.
  std::vector<int32_t> encode(std::string_view text, Specials specials) const;

  // The pieces as one text: merges may cross from one piece to the next, as they would if it had been one string.
  std::vector<int32_t> encode(std::span<const Piece> pieces) const;

  // U+2581 becomes a space, byte tokens are joined to characters, and a byte that belongs to no valid character becomes
  // U+FFFD. (Hugging Face replaces all bytes of a run of byte tokens if one of them is invalid.) Ids without a token
  // give nothing. skip_control leaves out control tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_control = false) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  std::string_view token_of(int32_t id) const { return vocabulary_.token(id); }  // as the vocabulary spells it
  int32_t vocab_size() const { return vocabulary_.size(); }                      // highest id + 1

  // Control tokens: added tokens that are marked special or written <|...> or <...|>.
  bool is_control(int32_t id) const { return kind(id) == Kind::control; }
  // The value of a byte token, else -1.
  int byte_of(int32_t id) const;

 private:
  enum class Kind : uint8_t { text, control, byte };
  Kind kind(int32_t id) const;
  std::vector<uint8_t> reserved_ids() const;  // ids that BPE must not produce

  Vocabulary vocabulary_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<Kind> kinds_;  // by id
  AddedTokens added_;
  Bpe bpe_;
};

// Decodes token by token: each call returns the text that has become certain, so that a character never comes in parts.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_control = false)
      : tokenizer_(&tokenizer), skip_control_(skip_control) {}

  std::string push(int32_t id);
  std::string finish();  // what was held back, as U+FFFD; the decoder can be used again

 private:
  const Tokenizer* tokenizer_;
  bool skip_control_;
  std::string held_;  // the beginning of a character, at most three bytes
};

// The token of a byte: "<0x0A>".
std::string byte_token(uint8_t byte);

}  // namespace dgem::text
