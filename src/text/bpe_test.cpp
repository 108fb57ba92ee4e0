#include "text/bpe.h"

#include "text/test_tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace dgem::text {
namespace {

// The definition, one merge at a time over strings: the pair of lowest rank, the leftmost of them.
std::vector<std::string> merge_slowly(std::vector<std::string> parts,
                                      const std::vector<std::pair<std::string, std::string>>& merges) {
  for (;;) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1]) {
          best = rank;
          place = i;
        }
      }
    }
    if (best == merges.size()) return parts;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

// Merges over the letters a, b, c and a space: any two tokens known so far may join to a new one.
RC_GTEST_PROP(Bpe, AgreesWithTheDefinition,
              (const std::vector<std::pair<uint8_t, uint8_t>>& choices, const std::string& seed)) {
  std::vector<std::string> tokens = {std::string(kSpaceMark), "a", "b", "c"};  // the first is there anyway
  std::vector<std::pair<std::string, std::string>> merges;
  for (const auto& [left, right] : choices) {
    const std::string a = tokens[left % tokens.size()];
    const std::string b = tokens[right % tokens.size()];
    if (std::find(merges.begin(), merges.end(), std::pair(a, b)) != merges.end()) continue;
    merges.emplace_back(a, b);
    if (std::find(tokens.begin(), tokens.end(), a + b) == tokens.end()) tokens.push_back(a + b);
  }
  std::string text;
  std::vector<std::string> characters;
  for (const char c : seed + seed + seed) {
    text.push_back("abc "[static_cast<unsigned char>(c) % 4]);
    characters.push_back(text.back() == ' ' ? std::string(kSpaceMark) : std::string(1, text.back()));
  }
  const auto tokenizer = Tokenizer::parse(json::write(small_tokenizer({tokens.begin() + 1, tokens.end()}, merges)));
  RC_ASSERT(tokenizer.ok());
  std::vector<std::string> ours;
  for (const int32_t id : tokenizer->encode(text, Specials::parse)) ours.emplace_back(tokenizer->token_of(id));
  RC_ASSERT(ours == merge_slowly(characters, merges));
}

TEST(Bpe, LaterMergeOfTheSamePairHolds) {
  // The pair (a, b) twice: the rank is that of the second, so "bc" comes first.
  const auto tokenizer =
      Tokenizer::parse(json::write(small_tokenizer({"a", "b", "c", "ab", "bc"}, {{"a", "b"}, {"b", "c"}, {"a", "b"}})));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("abc", Specials::parse), (std::vector{*tokenizer->id_of("a"), *tokenizer->id_of("bc")}));
}

TEST(Bpe, CharactersWithoutTokenBecomeBytes) {
  const auto tokenizer = Tokenizer::parse(json::write(small_tokenizer({"a", "é", "😀", "aé"}, {{"a", "é"}})));
  ASSERT_TRUE(tokenizer);
  const auto id = [&](const char* token) { return *tokenizer->id_of(token); };
  EXPECT_EQ(tokenizer->encode("aé😀b€\x01", Specials::parse),
            (std::vector{id("aé"), id("😀"), id("<0x62>"), id("<0xE2>"), id("<0x82>"), id("<0xAC>"), id("<0x01>")}));
}

TEST(Bpe, LongTextsOfOneLetter) {
  const auto tokenizer = Tokenizer::parse(json::write(small_tokenizer({"a", "aa", "aaaa"}, {{"a", "a"}, {"aa", "aa"}})));
  ASSERT_TRUE(tokenizer);
  const auto ids = tokenizer->encode(std::string(1'000'003, 'a'), Specials::parse);
  EXPECT_EQ(ids.size(), 250'002u);
  EXPECT_EQ(ids.front(), *tokenizer->id_of("aaaa"));
  EXPECT_EQ(ids[250'000], *tokenizer->id_of("aa"));
  EXPECT_EQ(ids[250'001], *tokenizer->id_of("a"));
}

}  // namespace
}  // namespace dgem::text
