#include "text/tokenizer.h"

#include "base/utf8.h"

#include <algorithm>

namespace dgem::text {

namespace {

bool is_control_token(const AddedToken& token) {
  return token.special || token.content.starts_with("<|") || token.content.ends_with("|>");
}

std::array<int32_t, 256> find_byte_ids(const Vocabulary& vocabulary) {
  std::array<int32_t, 256> ids{};
  for (size_t b = 0; b < ids.size(); ++b) {
    ids[b] = vocabulary.find(byte_token(static_cast<uint8_t>(b)));
    DGEM_CHECK(ids[b] >= 0, "no token for byte {}", b);
  }
  return ids;
}

}  // namespace

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

Tokenizer::Tokenizer(TokenizerParts parts)
    : vocabulary_(std::move(parts.vocabulary)),
      byte_ids_(find_byte_ids(vocabulary_)),
      kinds_([&] {
        std::vector<Kind> kinds(static_cast<size_t>(vocabulary_.size()), Kind::text);
        for (const AddedToken& token : parts.added) {
          if (is_control_token(token)) kinds[static_cast<size_t>(token.id)] = Kind::control;
        }
        for (const int32_t id : byte_ids_) kinds[static_cast<size_t>(id)] = Kind::byte;
        return kinds;
      }()),
      bpe_(vocabulary_, parts.merges, byte_ids_, reserved_ids()) {
  for (const AddedToken& token : parts.added) added_.add(token.content, token.id, is_control(token.id));
}

Tokenizer::Kind Tokenizer::kind(int32_t id) const {
  return id >= 0 && id < vocab_size() ? kinds_[static_cast<size_t>(id)] : Kind::text;
}

std::vector<uint8_t> Tokenizer::reserved_ids() const {
  std::vector<uint8_t> reserved(kinds_.size());
  std::transform(kinds_.begin(), kinds_.end(), reserved.begin(), [](Kind kind) { return kind != Kind::text; });
  return reserved;
}

int Tokenizer::byte_of(int32_t id) const {
  if (kind(id) != Kind::byte) return -1;
  return static_cast<int>(std::find(byte_ids_.begin(), byte_ids_.end(), id) - byte_ids_.begin());
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const int32_t id = vocabulary_.find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  const Piece piece{std::string(text), specials == Specials::parse};
  return encode(std::span(&piece, 1));
}

std::vector<int32_t> Tokenizer::encode(std::span<const Piece> pieces) const {
  // All pieces in one text, and where each stretch of equally trusted ones ends.
  struct Stretch {
    size_t end = 0;
    bool trusted = false;
  };
  std::string text;
  std::vector<Stretch> stretches;
  for (const Piece& piece : pieces) {
    text += utf8::is_valid(piece.text) ? piece.text : utf8::replace_invalid(piece.text);
    if (!stretches.empty() && stretches.back().trusted == piece.trusted) {
      stretches.back().end = text.size();
    } else {
      stretches.push_back({text.size(), piece.trusted});
    }
  }

  std::vector<int32_t> ids;
  const std::string_view all = text;
  size_t begin = 0;  // of the text since the last added token
  size_t stretch = 0;
  for (size_t i = 0; i < all.size();) {
    while (i >= stretches[stretch].end) ++stretch;
    const size_t trusted = stretches[stretch].trusted ? stretches[stretch].end - i : 0;
    const AddedTokens::Match match = added_.find(all.substr(i), trusted);
    if (match.id < 0) {
      ++i;
      continue;
    }
    bpe_.encode(all.substr(begin, i - begin), ids);
    ids.push_back(match.id);
    i += match.length;
    begin = i;
  }
  bpe_.encode(all.substr(begin), ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_control) const {
  StreamDecoder decoder(*this, skip_control);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

namespace {

// Bytes of the UTF-8 character that begins with this byte; 1 for those that begin none.
size_t character_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0xc2 || byte > 0xf4 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

std::string StreamDecoder::push(int32_t id) {
  if (skip_control_ && tokenizer_->is_control(id)) return {};
  const int byte = tokenizer_->byte_of(id);
  if (byte < 0) {
    std::string text = finish();
    std::string_view token = tokenizer_->token_of(id);
    for (size_t at = token.find(kSpaceMark); at != std::string_view::npos; at = token.find(kSpaceMark)) {
      text.append(token.substr(0, at)).push_back(' ');
      token.remove_prefix(at + kSpaceMark.size());
    }
    return text.append(token);
  }

  held_.push_back(static_cast<char>(byte));
  std::string text;
  while (!held_.empty()) {
    const utf8::Decoded first = utf8::decode(held_);
    if (!first.valid && first.length == held_.size() && first.length < character_length(held_[0])) break;
    utf8::append(text, first.code_point);
    held_.erase(0, first.valid ? first.length : 1);
  }
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  for (size_t i = 0; i < held_.size(); ++i) utf8::append(text, utf8::kReplacement);
  held_.clear();
  return text;
}

}  // namespace dgem::text
