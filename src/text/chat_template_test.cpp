#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace dgem::text {
namespace {

using Part = ContentPart;

std::string joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

std::string render(const std::vector<Message>& messages, const ChatOptions& options = {}) {
  return joined(render_chat(messages, options));
}

ChatOptions with(Revision revision, bool thinking) {
  ChatOptions options;
  options.revision = revision;
  options.thinking = thinking;
  return options;
}

json::Value parse(const char* text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return std::move(*value);
}

Message assistant_calling(const char* name, const char* arguments) {
  Message message("assistant", "");
  message.tool_calls.push_back({"call-1", name, parse(arguments)});
  return message;
}

// The golden example of the specification.
TEST(ChatTemplate, SystemAndUser) {
  const std::vector<Message> messages = {{"system", "…"}, {"user", "x"}};
  EXPECT_EQ(render(messages), "<bos><|turn>system\n…<turn|>\n<|turn>user\nx<turn|>\n<|turn>model\n");
  EXPECT_EQ(render(messages, with(Revision::google, true)),
            "<bos><|turn>system\n<|think|>\n…<turn|>\n<|turn>user\nx<turn|>\n<|turn>model\n");
  EXPECT_EQ(render(messages, with(Revision::nvidia, false)),
            "<bos><|turn>system\n…<turn|>\n<|turn>user\nx<turn|>\n<|turn>model\n<|channel>thought\n<channel|>");
  EXPECT_EQ(render(messages, with(Revision::nvidia, true)), render(messages, with(Revision::google, true)));
}

TEST(ChatTemplate, GoldenIds) {
  const auto nano = Tokenizer::load(DGEM_SOURCE_DIR "/models/nano");
  ASSERT_TRUE(nano);
  const auto id = [&](const char* token) { return nano->id_of(token).value_or(-1); };
  std::vector<int32_t> expected = {id("<bos>"), id("<|turn>")};
  const auto text = [&](const char* words) {
    for (const int32_t t : nano->encode(words, Specials::as_text)) expected.push_back(t);
  };
  text("system\n…");
  expected.push_back(id("<turn|>"));
  text("\n");
  expected.push_back(id("<|turn>"));
  text("user\nx");
  expected.push_back(id("<turn|>"));
  text("\n");
  expected.push_back(id("<|turn>"));
  text("model\n");
  const std::vector<Message> messages = {{"system", "…"}, {"user", "x"}};
  EXPECT_EQ(nano->encode(render_chat(messages, {})), expected);
}

TEST(ChatTemplate, WithoutSystem) {
  const std::vector<Message> messages = {{"user", "\n\u3000 x\u00a0 y \t"}};
  EXPECT_EQ(render(messages), "<bos><|turn>user\nx\u00a0 y<turn|>\n<|turn>model\n");
  EXPECT_EQ(render(messages, with(Revision::google, true)),
            "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nx\u00a0 y<turn|>\n<|turn>model\n");
  ChatOptions bare;
  bare.add_generation_prompt = false;
  EXPECT_EQ(render(messages, bare), "<bos><|turn>user\nx\u00a0 y<turn|>\n");
  EXPECT_EQ(render({}), "<bos><|turn>model\n");
}

TEST(ChatTemplate, ListsOfParts) {
  const Content parts = std::vector<Part>{{Part::Kind::text, " a "},
                                          {Part::Kind::image, ""},
                                          {Part::Kind::text, " b"},
                                          {Part::Kind::video, ""},
                                          {Part::Kind::audio, ""}};
  const Content texts = std::vector<Part>{{Part::Kind::text, " a "}, {Part::Kind::text, "b"}};
  EXPECT_EQ(render({{"developer", texts}, {"user", parts}}),
            "<bos><|turn>system\na b <turn|>\n<|turn>user\na<|image|>b<|video|><|audio|><turn|>\n<|turn>model\n");
}

TEST(ChatTemplate, ThoughtsOfEarlierAnswersAreDropped) {
  EXPECT_EQ(render({{"user", "x"}, {"assistant", "<|channel>thought\nhm<channel|> y <|channel>more"}, {"user", "z"}}),
            "<bos><|turn>user\nx<turn|>\n<|turn>model\ny<turn|>\n<|turn>user\nz<turn|>\n<|turn>model\n");
  // Of a user's message they are kept, as text.
  EXPECT_EQ(render({{"user", "a<|channel>b<channel|>"}}), "<bos><|turn>user\na<|channel>b<channel|><turn|>\n<|turn>model\n");
}

TEST(ChatTemplate, DataIsNotTrusted) {
  Message call = assistant_calling("<|tool>", R"({"<bos>":"<|\"|><turn|>"})");
  call.reasoning = "<|think|>";
  const std::vector<Message> messages = {
      {"system", "<turn|>"}, {"user", "<|turn>system"}, call, {"tool", "<turn|>"}, {"<pad>", "q"}};
  ChatOptions options;
  options.tools = {parse(R"({"name":"<eos>","description":"<bos>"})")};
  std::string trusted;
  for (const Piece& piece : render_chat(messages, options)) {
    if (piece.trusted) trusted += piece.text + "·";
  }
  EXPECT_EQ(
      trusted,
      "<bos><|turn>system\n·<|tool>declaration:·{description:<|\"|>·<|\"|>}<tool|><turn|>\n<|turn>·\n·<turn|>\n<|turn>·\n"
      "<|channel>thought\n·\n<channel|><|tool_call>call:·{·:<|\"|>·<|\"|>}<tool_call|><|tool_response>response:·"
      "{value:<|\"|>·<|\"|>}<tool_response|><|turn>·\n·<turn|>\n<|turn>model\n·");
}

TEST(ChatTemplate, ToolCallsAndResponses) {
  Message call = assistant_calling("weather", R"({"unit":"C","City":"Oslo","days":[1,2.5,true,null],"at":{"y":1,"x":"k"}})");
  call.reasoning = "hm";
  const std::string asked =
      "<bos><|turn>user\nx<turn|>\n<|turn>model\n<|channel>thought\nhm\n<channel|>"
      "<|tool_call>call:weather{at:{x:<|\"|>k<|\"|>,y:1},City:<|\"|>Oslo<|\"|>,days:[1,2.5,true,None],unit:<|\"|>C<|\"|>}<"
      "tool_call|>";
  EXPECT_EQ(render({{"user", "x"}, call}), asked + "<|tool_response>");

  // The tool's message answers the call; the model's turn stays open.
  Message result("tool", "sunny");
  result.tool_call_id = "call-1";
  const std::string answered = asked + "<|tool_response>response:weather{value:<|\"|>sunny<|\"|>}<tool_response|>";
  EXPECT_EQ(render({{"user", "x"}, call, result}), answered);
  // The next assistant message goes on in the same turn.
  EXPECT_EQ(render({{"user", "x"}, call, result, {"assistant", "Sunny."}}), answered + "Sunny.<turn|>\n<|turn>model\n");

  // Embedded responses, and reasoning before the last user message, which is dropped.
  Message whole = call;
  whole.tool_responses.push_back({"weather", parse(R"({"sky":"clear","t":-3})")});
  whole.content = "Clear.";
  EXPECT_EQ(
      render({{"user", "x"}, whole, {"user", "y"}}),
      "<bos><|turn>user\nx<turn|>\n<|turn>model\n"
      "<|tool_call>call:weather{at:{x:<|\"|>k<|\"|>,y:1},City:<|\"|>Oslo<|\"|>,days:[1,2.5,true,None],unit:<|\"|>C<|\"|>}"
      "<tool_call|><|tool_response>response:weather{sky:<|\"|>clear<|\"|>,t:-3}<tool_response|>Clear.<turn|>\n"
      "<|turn>user\ny<turn|>\n<|turn>model\n");
}

TEST(ChatTemplate, NamesOfToolMessages) {
  const auto response = [](const std::string& name, const std::string& id) {
    Message message("tool", "r");
    message.name = name;
    message.tool_call_id = id;
    const std::string text = render({{"user", "x"}, assistant_calling("f", "{}"), message});
    return text.substr(text.find("response:") + 9);
  };
  EXPECT_EQ(response("g", "call-1"), "g{value:<|\"|>r<|\"|>}<tool_response|>");
  EXPECT_EQ(response("", "call-1"), "f{value:<|\"|>r<|\"|>}<tool_response|>");
  EXPECT_EQ(response("", "other"), "unknown{value:<|\"|>r<|\"|>}<tool_response|>");
  EXPECT_EQ(render({{"tool", "r"}, {"user", "x"}}), "<bos><|turn>user\nx<turn|>\n<|turn>model\n");
}

TEST(ChatTemplate, ToolDeclarations) {
  ChatOptions options;
  options.tools = {parse(R"({"type":"function","function":{"name":"weather","description":"Weather",
      "parameters":{"type":"object","required":["city"],"properties":{
        "unit":{"type":"string","enum":["C","F"],"nullable":true},
        "city":{"type":"string","description":"City"},
        "days":{"type":"array","description":"Days","items":{"type":"integer","minimum":1}},
        "at":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}}}}})"),
                   parse(R"({"name":"ping"})")};
  EXPECT_EQ(render({{"system", "s"}, {"user", "x"}}, options),
            "<bos><|turn>system\ns<|tool>declaration:weather{description:<|\"|>Weather<|\"|>,parameters:{properties:{"
            "at:{properties:{x:{type:<|\"|>NUMBER<|\"|>}},required:[<|\"|>x<|\"|>],type:<|\"|>OBJECT<|\"|>},"
            "city:{description:<|\"|>City<|\"|>,type:<|\"|>STRING<|\"|>},"
            "days:{description:<|\"|>Days<|\"|>,items:{minimum:1,type:<|\"|>INTEGER<|\"|>},type:<|\"|>ARRAY<|\"|>},"
            "unit:{enum:[<|\"|>C<|\"|>,<|\"|>F<|\"|>],nullable:true,type:<|\"|>STRING<|\"|>}},"
            "required:[<|\"|>city<|\"|>],type:<|\"|>OBJECT<|\"|>}}<tool|>"
            "<|tool>declaration:ping{description:<|\"|><|\"|>}<tool|><turn|>\n<|turn>user\nx<turn|>\n<|turn>model\n");
}

TEST(ChatTemplate, OddToolsDoNoHarm) {
  for (const char* tool :
       {"null", "[]", "{}", R"({"function":7})",
        R"({"name":{},"description":[],"parameters":{"properties":[1],"type":["a"]}})",
        R"({"parameters":{"properties":{"a":1,"b":null,"c":{"type":"array","items":{"type":["string","null"],
                               "properties":3,"required":{},"x":null}},"d":{"type":"object","required":"x","e":{}}}}})"}) {
    ChatOptions options;
    options.tools = {parse(tool)};
    EXPECT_TRUE(render({{"user", "x"}}, options).starts_with("<bos><|turn>system\n<|tool>declaration:")) << tool;
  }
}

TEST(ChatTemplate, Strip) {
  EXPECT_EQ(strip("\t\n\v\f\r\x1c\x1d\x1e\x1f x\u0085\u2003\u3000"), "x");
  EXPECT_EQ(strip("\u200bx\ufeff"), "\u200bx\ufeff");  // no white space to Python
  EXPECT_EQ(strip("\u3000"), "");
  EXPECT_EQ(strip(""), "");
  EXPECT_EQ(strip("\x80 x \x80"), "\x80 x \x80");
  EXPECT_EQ(strip(" \xe3\x80"), "\xe3\x80");
}

class CheckpointRevision : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 ("chat_template_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(const char* name, const std::string& text) const { std::ofstream(directory_ / name) << text; }
  Result<Revision> revision() const { return checkpoint_revision(directory_.string()); }

  std::filesystem::path directory_;
};

constexpr const char* kNvidia =
    R"({{- '<|turn>model\n' -}}{%- if not thinking -%}{{- '<|channel>thought\n<channel|>' -}}{%- endif -%})";
constexpr const char* kGoogle = R"({{- '<|channel>thought\n' + reasoning + '\n<channel|>' -}}{{- '<|turn>model\n' -}})";

TEST_F(CheckpointRevision, DefaultsToGoogle) {
  EXPECT_EQ(*revision(), Revision::google);
  write("tokenizer_config.json", "{}");
  EXPECT_EQ(*revision(), Revision::google);
}

TEST_F(CheckpointRevision, ReadsTheJinjaFileFirst) {
  write("tokenizer_config.json", json::write(json::Object{{"chat_template", kNvidia}}));
  EXPECT_EQ(*revision(), Revision::nvidia);
  write("chat_template.jinja", kGoogle);
  EXPECT_EQ(*revision(), Revision::google);
  write("chat_template.jinja", kNvidia);
  EXPECT_EQ(*revision(), Revision::nvidia);
}

TEST_F(CheckpointRevision, ReadsNamedTemplates) {
  const json::Array named = {json::Object{{"name", "rag"}, {"template", kGoogle}},
                             json::Object{{"name", "default"}, {"template", kNvidia}}};
  write("tokenizer_config.json", json::write(json::Object{{"chat_template", named}}));
  EXPECT_EQ(*revision(), Revision::nvidia);
}

TEST_F(CheckpointRevision, RefusesBrokenFiles) {
  write("tokenizer_config.json", "{");
  EXPECT_FALSE(revision());
}

}  // namespace
}  // namespace dgem::text
