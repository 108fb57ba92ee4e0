#include "decide/answer_template.h"

#include "text/chat_template.h"
#include "text/test_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace dgem::decide {
namespace {

using text::Specials;
using text::Tokenizer;

const Tokenizer& nano() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::load(DGEM_SOURCE_DIR "/models/nano");
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return std::move(*loaded);
  }();
  return tokenizer;
}

AnswerTemplate parsed(std::string_view text) {
  auto answer = parse_answer_template(text);
  EXPECT_TRUE(answer) << text;
  return answer ? *answer : AnswerTemplate{};
}

std::string refusal(std::string_view text) {
  const auto answer = parse_answer_template(text);
  return answer ? "not refused" : answer.error().message;
}

Result<Canvas> canvas_of(std::string_view text, const Tokenizer& tokenizer = nano(), int canvas_length = 64) {
  return make_canvas(parsed(text), tokenizer, std::vector<int32_t>{2}, canvas_length);
}

TEST(AnswerTemplate, TakesATextApart) {
  const AnswerTemplate answer = parsed("team: [A|B|C]\n is it urgent : [yes|no] [1|2]!\r\n\n");
  EXPECT_EQ(answer.literals, (std::vector<std::string>{"team: ", "\n is it urgent : ", " ", "!"}));
  ASSERT_EQ(answer.slots.size(), 3u);
  EXPECT_EQ(answer.slots[0].name, "team");
  EXPECT_EQ(answer.slots[0].labels, (std::vector<std::string>{"A", "B", "C"}));
  EXPECT_EQ(answer.slots[1].name, "is it urgent");
  EXPECT_EQ(answer.slots[2].name, "slot 3");
  EXPECT_EQ(answer.text(std::vector<int>{2, 0, 1}), "team: C\n is it urgent : yes 2!");
}

TEST(AnswerTemplate, BackslashesKeepBrackets) {
  const AnswerTemplate answer = parsed(R"(a\[\]\|\\\n: [\[|\||x])");
  EXPECT_EQ(answer.literals[0], R"(a[]|\\n: )");
  EXPECT_EQ(answer.slots[0].labels, (std::vector<std::string>{"[", "|", "x"}));
}

TEST(AnswerTemplate, RefusesWhatIsNoTemplate) {
  EXPECT_NE(refusal("").find("no slot"), std::string::npos);
  EXPECT_NE(refusal("a: yes").find("no slot"), std::string::npos);
  EXPECT_NE(refusal("a: [yes]").find("2 to 256 labels"), std::string::npos);
  EXPECT_NE(refusal("a\nb: [yes|no").find("line 2"), std::string::npos);
  EXPECT_NE(refusal("[yes|\nno]").find("has no ']'"), std::string::npos);
  EXPECT_NE(refusal("[a[b|c]]").find("has no ']'"), std::string::npos);
  EXPECT_NE(refusal("a] [b|c]").find("without '['"), std::string::npos);
  EXPECT_NE(refusal("[a||b]").find("empty label"), std::string::npos);
  EXPECT_NE(refusal("[a|b|a]").find("'a' comes twice"), std::string::npos);
  std::string many;
  for (int i = 0; i <= kMaxSlots; ++i) many += "[a|b] ";
  EXPECT_NE(refusal(many).find("more than 256 slots"), std::string::npos);
}

TEST(Canvas, LaysTheAnswerOut) {
  const auto canvas = canvas_of("team: [A|B]\nurgent: [yes|no]\nmood: [1|2|3]");
  ASSERT_TRUE(canvas) << canvas.error().message;
  auto expected = nano().encode("<|channel>thought\n<channel|>team: A\nurgent: yes\nmood: 1<turn|>", Specials::parse);
  EXPECT_EQ(canvas->length, static_cast<int>(expected.size()));
  EXPECT_EQ(canvas->tokens.size() % 16, 0u);
  EXPECT_LT(canvas->tokens.size(), expected.size() + 16);
  expected.resize(canvas->tokens.size(), *nano().id_of("<pad>"));
  EXPECT_EQ(canvas->tokens, expected);

  const auto id = [](const char* token) { return *nano().id_of(token); };
  ASSERT_EQ(canvas->slots.size(), 3u);
  EXPECT_EQ(canvas->slots[0].label_ids, (std::vector{id("▁A"), id("▁B")}));
  EXPECT_EQ(canvas->slots[1].label_ids, (std::vector{id("▁yes"), id("▁no")}));
  EXPECT_EQ(canvas->slots[2].label_ids, (std::vector{id("1"), id("2"), id("3")}));  // behind a "▁" of the text
  for (const Canvas::Slot& slot : canvas->slots) {
    EXPECT_EQ(canvas->tokens[static_cast<size_t>(slot.position)], slot.label_ids[0]) << slot.name;
  }
}

TEST(Canvas, LeavesTheScaffoldToThePrompt) {
  const AnswerTemplate answer = parsed("a: [yes|no]");
  const auto scaffold = nano().encode(text::kEmptyThought, Specials::parse);
  std::vector<int32_t> prompt = {2, 4};
  const auto with = make_canvas(answer, nano(), prompt, 64);
  prompt.insert(prompt.end(), scaffold.begin(), scaffold.end());
  const auto without = make_canvas(answer, nano(), prompt, 64);
  ASSERT_TRUE(with && without);
  EXPECT_EQ(with->slots[0].position, without->slots[0].position + static_cast<int>(scaffold.size()));
  EXPECT_EQ(with->length, without->length + static_cast<int>(scaffold.size()));
}

TEST(Canvas, ControlStringsStayText) {
  const auto canvas = canvas_of("<turn|> a: [yes|no]");
  ASSERT_TRUE(canvas);
  EXPECT_EQ(std::count(canvas->tokens.begin(), canvas->tokens.end(), *nano().id_of("<turn|>")), 1);
}

TEST(Canvas, NamesTheLabelThatDoesNotFit) {
  const auto long_label = canvas_of("a: [yes|no|absolutely not]");
  ASSERT_FALSE(long_label);
  EXPECT_NE(long_label.error().message.find("'absolutely not' of slot 'a'"), std::string::npos)
      << long_label.error().message;
  const auto inside = canvas_of("a: w[x|y|z]q");  // the label melts into the word around it
  ASSERT_FALSE(inside);
  EXPECT_NE(inside.error().message.find("of slot 'a: w'"), std::string::npos) << inside.error().message;
}

// Tokens in which a label takes the same number of tokens but changes two of them, or two slots depend on each other.
TEST(Canvas, RefusesSlotsThatTouch) {
  const auto small = [](const std::vector<std::string>& tokens,
                        const std::vector<std::pair<std::string, std::string>>& merges) {
    std::vector<std::string> all = {"<|channel>", "<channel|>", "a", "b", "c", "d"};
    all.insert(all.end(), tokens.begin(), tokens.end());
    auto tokenizer = Tokenizer::parse(json::write(text::small_tokenizer(all, merges)));
    EXPECT_TRUE(tokenizer);
    return std::move(*tokenizer);
  };
  // "acd" is a, cd; "bcd" is bc, d: same length, but two tokens change.
  const Tokenizer shifting = small({"bc", "cd"}, {{"b", "c"}, {"c", "d"}});
  EXPECT_FALSE(canvas_of("[a|b]cd", shifting));
  EXPECT_TRUE(canvas_of("[a|d]cd", shifting));
  // Each of ab, bd and aa leaves two tokens, but "bd" is one: only both last labels together show it.
  const Tokenizer joining = small({"bd"}, {{"b", "d"}});
  const auto joined = canvas_of("[a|b][c|d]", joining);
  ASSERT_FALSE(joined);
  EXPECT_NE(joined.error().message.find("neighbouring slots"), std::string::npos) << joined.error().message;
  EXPECT_TRUE(canvas_of("[a|b][c|a]", joining));
}

TEST(Canvas, RefusesAnswersThatAreTooLong) {
  const auto canvas = canvas_of("a: [yes|no] and a lot of other words that nobody asked for", nano(), 16);
  ASSERT_FALSE(canvas);
  EXPECT_NE(canvas.error().message.find("the model takes at most 16"), std::string::npos) << canvas.error().message;
}

TEST(Canvas, NeedsTheTokensOfTheFrame) {
  const auto bare = Tokenizer::parse(json::write(text::small_tokenizer({"a", "b"}, {})));
  ASSERT_TRUE(bare);
  const auto canvas = canvas_of("[a|b]", *bare);
  ASSERT_FALSE(canvas);
  EXPECT_NE(canvas.error().message.find("no token <|channel>"), std::string::npos);
}

TEST(FillSlots, ChangesTheSlotsOnly) {
  const auto canvas = canvas_of("a: [yes|no]\nb: [yes|no]");
  ASSERT_TRUE(canvas);
  std::set<std::vector<int32_t>> seen;
  for (int draw = 0; draw < 50; ++draw) {
    auto tokens = fill_slots(*canvas, 7, draw, 16384);
    EXPECT_EQ(tokens, fill_slots(*canvas, 7, draw, 16384));
    seen.insert(tokens);
    for (const Canvas::Slot& slot : canvas->slots) {
      const auto at = static_cast<size_t>(slot.position);
      EXPECT_TRUE(tokens[at] >= 0 && tokens[at] < 16384);
      tokens[at] = canvas->tokens[at];
    }
    EXPECT_EQ(tokens, canvas->tokens);
  }
  EXPECT_EQ(seen.size(), 50u);
  EXPECT_NE(fill_slots(*canvas, 7, 0, 16384), fill_slots(*canvas, 8, 0, 16384));
}

TEST(FillSlots, CoversTheVocabularyEvenly) {
  const auto canvas = canvas_of("a: [yes|no]\nb: [yes|no]");
  ASSERT_TRUE(canvas);
  std::vector<int> counts(8);
  for (int draw = 0; draw < 4000; ++draw) {
    const auto tokens = fill_slots(*canvas, 1, draw, 8);
    for (const Canvas::Slot& slot : canvas->slots) ++counts[static_cast<size_t>(tokens[static_cast<size_t>(slot.position)])];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
}

TEST(ContentSeed, FollowsFromPromptAndTemplate) {
  const auto a = canvas_of("a: [yes|no]"), b = canvas_of("a: [yes|A]"), c = canvas_of("b: [yes|no]");
  ASSERT_TRUE(a && b && c);
  const std::vector<int32_t> prompt = {2, 4, 5};
  EXPECT_EQ(content_seed(prompt, *a), content_seed(prompt, *a));
  std::set<uint64_t> seeds = {content_seed(prompt, *a), content_seed(prompt, *b), content_seed(prompt, *c),
                              content_seed(std::vector<int32_t>{2, 4}, *a), content_seed(std::vector<int32_t>{4, 2, 5}, *a)};
  EXPECT_EQ(seeds.size(), 5u);
}

}  // namespace
}  // namespace dgem::decide
