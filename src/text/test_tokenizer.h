// A small tokenizer for tests: tokenizer.json as text, with the parts that a test wants to see or to break.
#pragma once

#include "base/json.h"
#include "text/tokenizer.h"

#include <string>
#include <utility>
#include <vector>

namespace dgem::text {

// Control tokens <pad>, <turn|>, <|turn> at ids 0 to 2, the byte tokens at 3 to 258, U+2581, then `tokens`; merges as pairs.
// "\n\n" (which must be among the tokens to be found) is added but controls nothing.
inline json::Value small_tokenizer(const std::vector<std::string>& tokens,
                                   const std::vector<std::pair<std::string, std::string>>& merges) {
  json::Object vocab;
  json::Array added;
  const auto add = [&](const std::string& token) { vocab.emplace_back(token, static_cast<int64_t>(vocab.size())); };
  for (const char* token : {"<pad>", "<turn|>", "<|turn>"}) {
    added.push_back(json::Object{{"id", static_cast<int64_t>(vocab.size())}, {"content", token}, {"special", true}});
    add(token);
  }
  for (int byte = 0; byte < 256; ++byte) add(byte_token(static_cast<uint8_t>(byte)));
  add(std::string(kSpaceMark));
  for (const std::string& token : tokens) {
    if (token == "\n\n") {
      added.push_back(json::Object{{"id", static_cast<int64_t>(vocab.size())}, {"content", token}, {"special", false}});
    }
    add(token);
  }
  json::Array pairs;
  for (const auto& [left, right] : merges) pairs.push_back(json::Array{left, right});
  const std::string mark(kSpaceMark);
  const auto replace = [](const std::string& from, const std::string& to) {
    return json::Object{{"type", "Replace"}, {"pattern", json::Object{{"String", from}}}, {"content", to}};
  };
  return json::Object{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", replace(" ", mark)},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder", json::Object{{"type", "Sequence"},
                               {"decoders", json::Array{replace(mark, " "), json::Object{{"type", "ByteFallback"}},
                                                        json::Object{{"type", "Fuse"}}}}}},
      {"model", json::Object{{"type", "BPE"},
                             {"dropout", nullptr},
                             {"unk_token", "<unk>"},
                             {"fuse_unk", true},
                             {"byte_fallback", true},
                             {"ignore_merges", false},
                             {"vocab", std::move(vocab)},
                             {"merges", std::move(pairs)}}},
  };
}

}  // namespace dgem::text
