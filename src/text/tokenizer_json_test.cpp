#include "text/tokenizer_json.h"

#include "text/test_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace dgem::text {
namespace {

json::Value small() { return small_tokenizer({"a", "b", "ab", "\n", "\n\n"}, {{"a", "b"}}); }

// The value behind member names and (single-digit) list positions.
json::Value& at(json::Value& root, const std::vector<std::string_view>& path) {
  json::Value* value = &root;
  for (const std::string_view key : path) {
    value =
        value->is_array() ? &value->array()[static_cast<size_t>(key[0] - '0')] : const_cast<json::Value*>(value->find(key));
  }
  return *value;
}

Error refusal(const json::Value& root) {
  const auto parts = parse_tokenizer_json(json::write(root));
  return parts ? Error{"not refused", ""} : parts.error();
}

TEST(TokenizerJson, ReadsBothNotationsOfMerges) {
  json::Value root = small();
  const auto pairs = parse_tokenizer_json(json::write(root));
  at(root, {"model", "merges"}) = json::Array{"a b"};
  const auto lines = parse_tokenizer_json(json::write(root, 2));
  ASSERT_TRUE(pairs && lines);
  for (const auto* parts : {&*pairs, &*lines}) {
    EXPECT_EQ(parts->vocabulary.size(), 265);
    ASSERT_EQ(parts->merges.size(), 1u);
    EXPECT_EQ(parts->merges[0].left, parts->vocabulary.find("a"));
    EXPECT_EQ(parts->merges[0].right, parts->vocabulary.find("b"));
    EXPECT_EQ(parts->merges[0].result, parts->vocabulary.find("ab"));
    EXPECT_EQ(parts->added.size(), 4u);
  }
}

TEST(TokenizerJson, AddedTokensMayComeOnTopOfTheVocabulary) {
  json::Value root = small();
  at(root, {"added_tokens"}).array().push_back(json::Object{{"id", 400}, {"content", "<|image|>"}, {"special", true}});
  const auto parts = parse_tokenizer_json(json::write(root));
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->vocabulary.find("<|image|>"), 400);
  EXPECT_EQ(parts->vocabulary.size(), 401);
  EXPECT_FALSE(parts->vocabulary.has(399));
}

TEST(TokenizerJson, AcceptsTheSettingsOfTheFamily) {
  json::Value root = small();
  root.set("pre_tokenizer", json::Object{{"type", "Split"},
                                         {"pattern", json::Object{{"String", " "}}},
                                         {"behavior", "MergedWithPrevious"},
                                         {"invert", false}});
  root.set("normalizer", json::Object{{"type", "Sequence"}, {"normalizers", json::Array{at(root, {"normalizer"})}}});
  EXPECT_EQ(refusal(root).message, "not refused");
}

struct Refused {
  const char* pointer;
  std::function<void(json::Value&)> change;
};

TEST(TokenizerJson, RefusesWhatTheEncoderDoesNotDo) {
  const auto set = [](const std::vector<std::string_view>& path, const char* key, json::Value value) {
    return [path, key, value](json::Value& root) { at(root, path).set(key, value); };
  };
  const std::vector<Refused> cases = {
      {"/truncation", set({}, "truncation", json::Object{{"max_length", 8}})},
      {"/padding", set({}, "padding", json::Object{})},
      {"/normalizer", set({}, "normalizer", nullptr)},
      {"/normalizer", set({}, "normalizer", json::Object{{"type", "NFC"}})},
      {"/normalizer", set({"normalizer"}, "content", "_")},
      {"/pre_tokenizer", set({}, "pre_tokenizer", json::Object{{"type", "ByteLevel"}})},
      {"/decoder", set({}, "decoder", nullptr)},
      {"/decoder", set({}, "decoder", json::Object{{"type", "ByteLevel"}})},
      {"/model/type", set({"model"}, "type", "Unigram")},
      {"/model/byte_fallback", set({"model"}, "byte_fallback", false)},
      {"/model/ignore_merges", set({"model"}, "ignore_merges", true)},
      {"/model/dropout", set({"model"}, "dropout", 0.1)},
      {"/model/continuing_subword_prefix", set({"model"}, "continuing_subword_prefix", "##")},
      {"/model/end_of_word_suffix", set({"model"}, "end_of_word_suffix", "</w>")},
      {"/added_tokens/0/lstrip", set({"added_tokens", "0"}, "lstrip", true)},
      {"/added_tokens/1/normalized", set({"added_tokens", "1"}, "normalized", true)},
      {"/added_tokens/2/id", set({"added_tokens", "2"}, "id", -1)},
      {"/added_tokens/2/content", set({"added_tokens", "2"}, "content", "")},
      {"/added_tokens/2", set({"added_tokens", "2"}, "id", 7)},
      {"/added_tokens", set({}, "added_tokens", 3)},
      {"/model/vocab/c~1d", set({"model", "vocab"}, "c/d", 5)},  // id 5 is taken
      {"/model/vocab/x", set({"model", "vocab"}, "x", 2097152)},
      {"/model/vocab", set({"model", "vocab"}, "x", -1)},
      {"/model/vocab", set({"model"}, "vocab", json::Array{})},
      {"/model/vocab",
       [](json::Value& root) {
         json::Object& vocab = at(root, {"model", "vocab"}).object();
         vocab.erase(std::find_if(vocab.begin(), vocab.end(), [](const json::Member& m) { return m.first == "<0x41>"; }));
       }},
      {"/model/vocab",
       [](json::Value& root) {
         for (json::Member& m : at(root, {"model", "vocab"}).object()) m.first = m.first == kSpaceMark ? "_" : m.first;
       }},
      {"/model/merges/0", set({"model"}, "merges", json::Array{json::Array{"a", "x"}})},
      {"/model/merges/0", set({"model"}, "merges", json::Array{json::Array{"b", "a"}})},  // no token "ba"
      {"/model/merges/1", set({"model"}, "merges", json::Array{"a b", "a  b"})},
      {"/model/merges/0", set({"model"}, "merges", json::Array{json::Array{"a"}})},
      {"/model/merges/0", set({"model"}, "merges", json::Array{json::Array{"a", "b", "a"}})},
      {"/model/merges", set({"model"}, "merges", json::Array{7})},
  };
  for (const Refused& c : cases) {
    json::Value root = small();
    c.change(root);
    const Error error = refusal(root);
    EXPECT_EQ(error.pointer, c.pointer) << error.message;
    EXPECT_NE(error.message, "not refused") << c.pointer;
  }
}

TEST(TokenizerJson, ByteAndSpaceTokensStandForThemselvesOnly) {
  json::Value root = small_tokenizer({"<0x41><0x42>"}, {{"<0x41>", "<0x42>"}});
  EXPECT_EQ(refusal(root).pointer, "/model/merges/0");
  root = small();
  at(root, {"added_tokens"}).array().push_back(json::Object{{"id", 3}, {"content", "<0x00>"}});
  EXPECT_EQ(refusal(root).pointer, "/added_tokens/4");
  at(root, {"added_tokens"}).array().back() = json::Object{{"id", 259}, {"content", kSpaceMark}, {"special", true}};
  EXPECT_EQ(refusal(root).pointer, "/added_tokens/4");
}

TEST(TokenizerJson, RefusesRepeatedKeysAndBrokenText) {
  for (const char* text : {"", "[]", "{", "{}", "{\"model\":3}", "{\"model\":{\"type\":\"BPE\"}}", "{\"a\":1,\"a\":2}",
                           "{\"model\":{\"vocab\":{},\"vocab\":{}}}", "{\"a\":[1}", "{\"a\":nul}", "{\"a\":1}x"}) {
    EXPECT_FALSE(parse_tokenizer_json(text)) << text;
  }
  const std::string whole = json::write(small());
  for (size_t n = 0; n < whole.size(); n += 7) EXPECT_FALSE(parse_tokenizer_json(std::string_view(whole).substr(0, n))) << n;
}

TEST(TokenizerJson, TellsThePlaceInTheFile) {
  const auto nothing = parse_tokenizer_json("\n x");
  ASSERT_FALSE(nothing);
  EXPECT_NE(nothing.error().message.find("expected '{' at byte 2 (line 2)"), std::string::npos) << nothing.error().message;
  std::string text = json::write(small(), 1);
  const size_t at = text.find("\"ab\": ") + 6;
  text.replace(at, 1, "x");
  const auto broken = parse_tokenizer_json(text);
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find(fmt::format("at byte {}", at)), std::string::npos) << broken.error().message;
}

TEST(TokenizerJson, LoadNamesTheFile) {
  const auto missing = Tokenizer::load("/does/not/exist");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/does/not/exist"), std::string::npos);
}

}  // namespace
}  // namespace dgem::text
