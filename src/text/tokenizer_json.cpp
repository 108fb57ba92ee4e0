#include "text/tokenizer_json.h"

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/json_scanner.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace dgem::text {

namespace {

constexpr size_t kMaxTokenBytes = 64 * 1024;

Error error_at(std::string pointer, std::string message) { return {std::move(message), std::move(pointer)}; }

// A short form of a value for a message.
std::string shown(const json::Value* value) {
  if (value == nullptr) return "nothing";
  std::string text = json::write(*value);
  if (text.size() > 120) {
    size_t cut = 117;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
    text = text.substr(0, cut) + "...";
  }
  return text;
}

bool is_absent(const json::Value* value) { return value == nullptr || value->is_null(); }

bool is_text(const json::Value* value, std::string_view text) {
  return value != nullptr && value->is_string() && value->string() == text;
}

// The members of an object: "vocab" and "merges" as views of their text, the others parsed.
struct Members {
  std::map<std::string, std::string_view, std::less<>> raw;
  std::map<std::string, json::Value, std::less<>> parsed;

  const json::Value* find(std::string_view key) const {
    const auto it = parsed.find(key);
    return it == parsed.end() ? nullptr : &it->second;
  }
};

// With `model`, the member "model" is read into it in the same way, so that the file is walked once.
Result<Members> read_members(JsonScanner& scanner, const std::string& pointer, Members* model) {
  Members members;
  std::set<std::string> names;
  if (!scanner.begin('{')) return scanner.failure();
  for (bool first = true, more = true;; first = false) {
    if (!scanner.next('}', first, more)) return scanner.failure();
    if (!more) break;
    std::string_view key;
    if (!scanner.string(key)) return scanner.failure();
    const std::string name(key);
    const std::string at = pointer + "/" + json::pointer_token(name);
    std::string_view value;
    if (!names.insert(name).second) return error_at(at, "this key comes twice");
    if (!scanner.colon()) return scanner.failure();
    if (model != nullptr && name == "model") {
      DGEM_ASSIGN(*model, read_members(scanner, at, nullptr));
      continue;
    }
    if (!scanner.skip(value)) return scanner.failure();
    if (name == "vocab" || name == "merges") {
      members.raw[name] = value;
      continue;
    }
    Result<json::Value> parsed = json::parse(value);
    if (!parsed) return error_at(at + parsed.error().pointer, parsed.error().message);
    members.parsed[name] = std::move(*parsed);
  }
  return members;
}

// ---- settings

Status check_normalizer(const json::Value* value) {
  std::string pointer = "/normalizer";
  if (value != nullptr && is_text(value->find("type"), "Sequence")) {
    const json::Value* list = value->find("normalizers");
    if (list != nullptr && list->is_array() && list->array().size() == 1) {
      value = &list->array()[0];
      pointer += "/normalizers/0";
    }
  }
  const json::Value* pattern = value == nullptr ? nullptr : value->find("pattern");
  if (value != nullptr && is_text(value->find("type"), "Replace") && pattern != nullptr &&
      is_text(pattern->find("String"), " ") && is_text(value->find("content"), kSpaceMark)) {
    return {};
  }
  return error_at(pointer,
                  fmt::format("this tokenizer is not supported: its normalizer must be a Replace of \" \" by \"{}\", "
                              "but it is {}",
                              kSpaceMark, shown(value)));
}

// After the normalizer there are no spaces, so a split at spaces does nothing unless it is inverted.
Status check_pre_tokenizer(const json::Value* value) {
  if (is_absent(value)) return {};
  const json::Value* pattern = value->find("pattern");
  const json::Value* invert = value->find("invert");
  const bool inverted = invert != nullptr && !(invert->is_bool() && !invert->boolean());
  if (is_text(value->find("type"), "Split") && pattern != nullptr && is_text(pattern->find("String"), " ") && !inverted)
    return {};
  return error_at("/pre_tokenizer",
                  fmt::format("this tokenizer is not supported: its pre_tokenizer must be null or a Split at "
                              "\" \", but it is {}",
                              shown(value)));
}

Status check_decoder(const json::Value* value) {
  const json::Value* list = value == nullptr ? nullptr : value->find("decoders");
  if (list != nullptr && is_text(value->find("type"), "Sequence") && list->is_array() && list->array().size() >= 2 &&
      list->array().size() <= 3) {
    const json::Array& steps = list->array();
    const json::Value* pattern = steps[0].find("pattern");
    if (is_text(steps[0].find("type"), "Replace") && pattern != nullptr && is_text(pattern->find("String"), kSpaceMark) &&
        is_text(steps[0].find("content"), " ") && is_text(steps[1].find("type"), "ByteFallback") &&
        (steps.size() == 2 || is_text(steps[2].find("type"), "Fuse"))) {
      return {};
    }
  }
  return error_at("/decoder",
                  fmt::format("this tokenizer is not supported: its decoder must be a Sequence of Replace \"{}\" by "
                              "\" \", ByteFallback and Fuse, but it is {}",
                              kSpaceMark, shown(value)));
}

Status check_model_settings(const Members& model) {
  const auto refuse = [&](const char* key, const char* expected) {
    return error_at(
        fmt::format("/model/{}", key),
        fmt::format("this tokenizer is not supported: {} must be {}, but it is {}", key, expected, shown(model.find(key))));
  };
  const auto is_flag = [&](const char* key, bool value) {
    const json::Value* found = model.find(key);
    return found != nullptr && found->is_bool() && found->boolean() == value;
  };
  if (!is_text(model.find("type"), "BPE")) return refuse("type", "\"BPE\"");
  if (!is_flag("byte_fallback", true)) return refuse("byte_fallback", "true");
  if (!is_absent(model.find("ignore_merges")) && !is_flag("ignore_merges", false)) return refuse("ignore_merges", "false");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const json::Value* found = model.find(key);
    const bool neutral = is_absent(found) || is_text(found, "") || (found->is_number() && found->number() == 0.0);
    if (!neutral) return refuse(key, "null");
  }
  return {};  // unk_token and fuse_unk have no effect: with byte fallback nothing is unknown
}

// ---- vocabulary, merges, added tokens

Status read_vocabulary(JsonScanner scanner, Vocabulary& vocabulary) {
  const auto fail = [&] { return error_at("/model/vocab", scanner.failure().message); };
  if (!scanner.begin('{')) return fail();
  std::string token;
  for (bool first = true, more = true;; first = false) {
    if (!scanner.next('}', first, more)) return fail();
    if (!more) return {};
    std::string_view view;
    int64_t id = 0;
    if (!scanner.string(view)) return fail();
    token.assign(view);
    if (!scanner.colon() || !scanner.natural(id)) return fail();
    const auto refuse = [&](std::string message) {
      return error_at("/model/vocab/" + json::pointer_token(token), std::move(message));
    };
    if (token.empty() || token.size() > kMaxTokenBytes) {
      return refuse(fmt::format("a token must have 1 to {} bytes", kMaxTokenBytes));
    }
    if (id >= Vocabulary::kMaxTokens) {
      return refuse(fmt::format("token ids must be below {}, but this one is {}", Vocabulary::kMaxTokens, id));
    }
    switch (vocabulary.add(token, static_cast<int32_t>(id))) {
      case Vocabulary::Outcome::added: break;
      case Vocabulary::Outcome::token_taken: return refuse("this token comes twice");
      case Vocabulary::Outcome::id_taken:
        return refuse(fmt::format("id {} also belongs to the token \"{}\"", id, vocabulary.token(static_cast<int32_t>(id))));
    }
  }
}

class MergeReader {
 public:
  MergeReader(JsonScanner scanner, const Vocabulary& vocabulary) : scanner_(std::move(scanner)), vocabulary_(vocabulary) {}

  Result<std::vector<Merge>> read() {
    if (!scanner_.begin('[')) return syntax();
    for (bool first = true, more = true;; first = false) {
      if (!scanner_.next(']', first, more)) return syntax();
      if (!more) return std::move(merges_);
      DGEM_RETURN_IF_ERROR(scanner_.at('[') ? read_pair() : read_line());
    }
  }

 private:
  Error syntax() const { return error_at("/model/merges", scanner_.failure().message); }
  Error here(std::string message) const {
    return error_at(fmt::format("/model/merges/{}", merges_.size()), std::move(message));
  }

  // ["a", "b"]
  Status read_pair() {
    int32_t ids[2] = {0, 0};
    bool more = false;
    if (!scanner_.begin('[')) return syntax();
    for (int i = 0; i < 2; ++i) {
      std::string_view part;
      if (!scanner_.next(']', i == 0, more)) return syntax();
      if (!more) return here("a merge must have two tokens");
      if (!scanner_.string(part)) return syntax();
      DGEM_ASSIGN(ids[i], id_of(part));
    }
    if (!scanner_.next(']', false, more)) return syntax();
    if (more) return here("a merge must have two tokens");
    return add(ids[0], ids[1]);
  }

  // "a b"
  Status read_line() {
    std::string_view line;
    if (!scanner_.string(line)) return syntax();
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return here("a merge written as one string must be two tokens with one space between them");
    }
    DGEM_ASSIGN(const int32_t left, id_of(line.substr(0, space)));
    DGEM_ASSIGN(const int32_t right, id_of(line.substr(space + 1)));
    return add(left, right);
  }

  Result<int32_t> id_of(std::string_view token) const {
    const int32_t id = vocabulary_.find(token);
    if (id < 0) return here(fmt::format("\"{}\" is not in the vocabulary", token));
    return id;
  }

  Status add(int32_t left, int32_t right) {
    joined_.assign(vocabulary_.token(left)).append(vocabulary_.token(right));
    DGEM_ASSIGN(const int32_t result, id_of(joined_));
    merges_.push_back({left, right, result});
    return {};
  }

  JsonScanner scanner_;
  const Vocabulary& vocabulary_;
  std::vector<Merge> merges_;
  std::string joined_;
};

Result<AddedToken> read_added_token(const json::Value& value, const std::string& pointer) {
  const json::Value* id = value.find("id");
  const json::Value* content = value.find("content");
  if (id == nullptr || !id->is_integer() || id->integer() < 0 || id->integer() >= Vocabulary::kMaxTokens) {
    return error_at(pointer + "/id",
                    fmt::format("expected a token id from 0 to {}, got {}", Vocabulary::kMaxTokens - 1, shown(id)));
  }
  if (content == nullptr || !content->is_string() || content->string().empty() ||
      content->string().size() > AddedTokens::kMaxLength) {
    return error_at(pointer + "/content",
                    fmt::format("expected a string of 1 to {} bytes, got {}", AddedTokens::kMaxLength, shown(content)));
  }
  for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"}) {
    const json::Value* flag = value.find(key);
    if (!is_absent(flag) && !(flag->is_bool() && !flag->boolean())) {
      return error_at(fmt::format("{}/{}", pointer, key),
                      fmt::format("this tokenizer is not supported: {} must be false for added "
                                  "tokens, but it is {}",
                                  key, shown(flag)));
    }
  }
  const json::Value* special = value.find("special");
  return AddedToken{static_cast<int32_t>(id->integer()), content->string(),
                    special != nullptr && special->is_bool() && special->boolean()};
}

// Added tokens may be part of the model's vocabulary (under the same id) or come on top of it.
Result<std::vector<AddedToken>> read_added_tokens(const json::Value* list, Vocabulary& vocabulary) {
  std::vector<AddedToken> added;
  if (is_absent(list)) return added;
  if (!list->is_array()) return error_at("/added_tokens", fmt::format("expected a list, got {}", list->kind()));
  for (size_t i = 0; i < list->array().size(); ++i) {
    const std::string pointer = fmt::format("/added_tokens/{}", i);
    DGEM_ASSIGN(AddedToken token, read_added_token(list->array()[i], pointer));
    if (vocabulary.find(token.content) != token.id &&
        vocabulary.add(token.content, token.id) != Vocabulary::Outcome::added) {
      return error_at(pointer,
                      fmt::format("\"{}\" has id {} here, but in the vocabulary that id is \"{}\" and the token's id is {}",
                                  token.content, token.id, vocabulary.token(token.id), vocabulary.find(token.content)));
    }
    added.push_back(std::move(token));
  }
  return added;
}

// A text may hold any byte and spaces, so each needs its token. Byte tokens stand for nothing else: one that is found by
// its spelling would not decode to it, and the encoder, which looks for merges between characters, would not find merges
// with them.
Status check_basic_tokens(const TokenizerParts& parts) {
  std::vector<uint8_t> is_byte(static_cast<size_t>(parts.vocabulary.size()));
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = byte_token(static_cast<uint8_t>(byte));
    const int32_t id = parts.vocabulary.find(token);
    if (id < 0)
      return error_at("/model/vocab", fmt::format("byte_fallback needs a token for each byte, but {} is missing", token));
    is_byte[static_cast<size_t>(id)] = 1;
  }
  if (parts.vocabulary.find(kSpaceMark) < 0) {
    return error_at("/model/vocab", fmt::format("expected a token \"{}\" for the space, but it is missing", kSpaceMark));
  }
  for (size_t i = 0; i < parts.added.size(); ++i) {
    if (is_byte[static_cast<size_t>(parts.added[i].id)] == 0 && parts.added[i].content != kSpaceMark) continue;
    return error_at(fmt::format("/added_tokens/{}", i),
                    "this tokenizer is not supported: the token of a byte or of the space is an added token");
  }
  for (size_t i = 0; i < parts.merges.size(); ++i) {
    const Merge& merge = parts.merges[i];
    if (is_byte[static_cast<size_t>(merge.left)] == 0 && is_byte[static_cast<size_t>(merge.right)] == 0) continue;
    return error_at(fmt::format("/model/merges/{}", i),
                    "this tokenizer is not supported: it merges the token of a single byte");
  }
  return {};
}

}  // namespace

Result<TokenizerParts> parse_tokenizer_json(std::string_view json) {
  if (json.size() > kMaxTokenizerBytes) {
    return make_error("tokenizer.json has {} bytes; at most {} are read", json.size(), kMaxTokenizerBytes);
  }
  JsonScanner scanner(json);
  Members model;
  DGEM_ASSIGN(const Members root, read_members(scanner, "", &model));
  if (!scanner.end()) return scanner.failure();
  if (model.find("type") == nullptr) return error_at("/model", "expected a model with a type: is this a tokenizer.json?");
  for (const char* key : {"truncation", "padding"}) {
    if (is_absent(root.find(key))) continue;
    return error_at(fmt::format("/{}", key), fmt::format("this tokenizer is not supported: {} must be null, but it is {}",
                                                         key, shown(root.find(key))));
  }
  DGEM_RETURN_IF_ERROR(check_normalizer(root.find("normalizer")));
  DGEM_RETURN_IF_ERROR(check_pre_tokenizer(root.find("pre_tokenizer")));
  DGEM_RETURN_IF_ERROR(check_decoder(root.find("decoder")));
  DGEM_RETURN_IF_ERROR(check_model_settings(model));
  for (const char* key : {"vocab", "merges"}) {
    if (!model.raw.contains(key)) return error_at(fmt::format("/model/{}", key), "expected it, but it is missing");
  }

  TokenizerParts parts;
  DGEM_RETURN_IF_ERROR(read_vocabulary(JsonScanner(json, model.raw.at("vocab")), parts.vocabulary));
  DGEM_ASSIGN(parts.merges, MergeReader(JsonScanner(json, model.raw.at("merges")), parts.vocabulary).read());
  DGEM_ASSIGN(parts.added, read_added_tokens(root.find("added_tokens"), parts.vocabulary));
  DGEM_RETURN_IF_ERROR(check_basic_tokens(parts));
  return parts;
}

Result<Tokenizer> Tokenizer::parse(std::string_view json) {
  DGEM_ASSIGN(TokenizerParts parts, parse_tokenizer_json(json));
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  std::error_code ignored;
  const std::string file = std::filesystem::is_directory(path, ignored) ? path + "/tokenizer.json" : path;
  DGEM_ASSIGN(const MappedFile mapped, MappedFile::open(file));
  const std::span<const std::byte> bytes = mapped.bytes();
  Result<Tokenizer> tokenizer = parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!tokenizer) return Error{fmt::format("{}: {}", file, tokenizer.error().message), tokenizer.error().pointer};
  return tokenizer;
}

}  // namespace dgem::text
