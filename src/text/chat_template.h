// The chat template of the Gemma 4 family (model.md 2.3): messages to the pieces of a prompt. Everything that comes from
// the messages is data, whose control strings stay text; the template's own markers become control tokens.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dgem::text {

// The two published revisions differ in the end of a prompt without thinking: NVIDIA's adds an empty thought block
// (kEmptyThought), which with Google's the model writes itself.
enum class Revision { google, nvidia };

inline constexpr std::string_view kEmptyThought = "<|channel>thought\n<channel|>";

struct ContentPart {
  enum class Kind { text, image, video, audio };
  Kind kind = Kind::text;
  std::string text;
};

using Content = std::variant<std::string, std::vector<ContentPart>>;

struct ToolCall {
  std::string id;  // matches Message::tool_call_id; may be empty
  std::string name;
  json::Value arguments;  // an object; a string is written as it is
};

struct ToolResponse {
  std::string name;
  json::Value response;  // an object is written with its keys, anything else under "value"
};

struct Message {
  Message() = default;
  Message(std::string role_, Content content_) : role(std::move(role_)), content(std::move(content_)) {}

  std::string role;  // "system", "developer", "user", "assistant", "tool"; others are written as they are
  Content content;
  // assistant only
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  std::vector<ToolResponse> tool_responses;
  // tool only
  std::string name;  // of the function; if empty, the one that tool_call_id belongs to
  std::string tool_call_id;
};

struct ChatOptions {
  Revision revision = Revision::google;
  bool thinking = false;
  bool add_generation_prompt = true;
  std::vector<json::Value> tools;  // {"type": "function", "function": {...}} or the function itself
};

// Renders the prompt. Tool messages belong to the assistant message before them; without one they are left out. Each
// image part is one "<|image|>" in a trusted piece.
std::vector<Piece> render_chat(std::span<const Message> messages, const ChatOptions& options);

// Which revision a template's source is: NVIDIA's contains the empty thought block.
Revision revision_of(std::string_view template_source);

// The revision of a checkpoint directory, by its chat_template.jinja or the chat_template of its tokenizer_config.json;
// Google's if it has neither. Errors: files that cannot be read.
Result<Revision> checkpoint_revision(const std::string& directory);

// Without the white space (of Unicode) at both ends, as Python's str.strip.
std::string_view strip(std::string_view text);

}  // namespace dgem::text
