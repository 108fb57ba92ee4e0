#include "text/chat_template.h"

#include "base/mapped_file.h"
#include "base/utf8.h"
#include "text/pieces.h"
#include "text/tool_format.h"

#include <filesystem>

namespace dgem::text {

namespace {

constexpr std::string_view kThoughtBegin = "<|channel>";
constexpr std::string_view kThoughtEnd = "<channel|>";

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// An answer without the thoughts in it. A thought that is not closed reaches to the end.
std::string without_thoughts(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find(kThoughtEnd);
    const std::string_view part = text.substr(0, end);
    out += part.substr(0, part.find(kThoughtBegin));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + kThoughtEnd.size());
  }
  return out;
}

bool is_system(const Message& message) { return message.role == "system" || message.role == "developer"; }

void write_marker(ContentPart::Kind kind, PieceWriter& out) {
  switch (kind) {
    case ContentPart::Kind::text: break;
    case ContentPart::Kind::image: out.trusted("<|image|>"); break;
    case ContentPart::Kind::video: out.trusted("<|video|>"); break;
    case ContentPart::Kind::audio: out.trusted("<|audio|>"); break;
  }
}

void write_system_content(const Content& content, PieceWriter& out) {
  if (const auto* text = std::get_if<std::string>(&content)) {
    out.data(strip(*text));
    return;
  }
  for (const ContentPart& part : std::get<std::vector<ContentPart>>(content)) {
    if (part.kind != ContentPart::Kind::text) continue;
    out.data(strip(part.text));
    out.trusted(" ");
  }
}

// Returns whether it wrote anything.
bool write_content(const Content& content, bool model, PieceWriter& out) {
  bool any = false;
  const auto write_text = [&](const std::string& text) {
    const std::string answer = model ? without_thoughts(text) : text;
    const std::string_view stripped = strip(answer);
    out.data(stripped);
    any = any || !stripped.empty();
  };
  if (const auto* text = std::get_if<std::string>(&content)) {
    write_text(*text);
    return any;
  }
  for (const ContentPart& part : std::get<std::vector<ContentPart>>(content)) {
    if (part.kind == ContentPart::Kind::text) {
      write_text(part.text);
    } else {
      write_marker(part.kind, out);
      any = true;
    }
  }
  return any;
}

void write_call(const ToolCall& call, PieceWriter& out) {
  out.trusted("<|tool_call>call:");
  out.data(call.name);
  out.trusted("{");
  if (call.arguments.is_object()) {
    write_members(call.arguments, out);
  } else if (call.arguments.is_string()) {
    out.data(call.arguments.string());
  }
  out.trusted("}<tool_call|>");
}

void write_response(std::string_view name, const json::Value& response, PieceWriter& out) {
  out.trusted("<|tool_response>response:");
  out.data(name);
  out.trusted("{");
  if (response.is_object()) {
    write_members(response, out);
  } else {
    out.trusted("value:");
    write_value(response, false, out);
  }
  out.trusted("}<tool_response|>");
}

void write_tool_message(const Message& message, const Message& caller, PieceWriter& out) {
  std::string name = message.name;
  for (const ToolCall& call : caller.tool_calls) {
    if (name.empty() && !call.id.empty() && call.id == message.tool_call_id) name = call.name;
  }
  if (name.empty()) name = "unknown";
  if (const auto* text = std::get_if<std::string>(&message.content)) {
    write_response(name, json::Value(*text), out);
    return;
  }
  const auto& parts = std::get<std::vector<ContentPart>>(message.content);
  std::string text;
  for (const ContentPart& part : parts) text += part.text;
  write_response(name, json::Value(text), out);
  for (const ContentPart& part : parts) write_marker(part.kind, out);
}

// Renders the messages behind the system turn.
class Turns {
 public:
  Turns(std::span<const Message> messages, PieceWriter& out) : messages_(messages), out_(out) {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == "user") behind_last_user_ = i + 1;
    }
  }

  // Returns whether the model's turn is still open, waiting for or following a tool's response.
  bool write() {
    bool open = false;
    const Message* before = nullptr;  // the last one that is no tool message
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role == "tool") continue;
      open = write_message(i, before);
      before = &messages_[i];
    }
    return open;
  }

 private:
  bool write_message(size_t i, const Message* before) {
    const Message& message = messages_[i];
    const bool model = message.role == "assistant";
    if (!(model && before != nullptr && before->role == "assistant")) {
      out_.trusted("<|turn>");
      out_.data(model ? "model" : message.role);
      out_.trusted("\n");
    }
    bool responses = false;
    if (model) {
      if (!message.reasoning.empty() && i >= behind_last_user_ && !message.tool_calls.empty()) {
        out_.trusted("<|channel>thought\n");
        out_.data(message.reasoning);
        out_.trusted("\n<channel|>");
      }
      for (const ToolCall& call : message.tool_calls) write_call(call, out_);
      responses = write_responses(i);
    }
    const bool content = write_content(message.content, model, out_);
    if (model && !message.tool_calls.empty() && !responses) {
      out_.trusted("<|tool_response>");
      return true;
    }
    if (responses && !content) return true;
    out_.trusted("<turn|>\n");
    return false;
  }

  // The responses that a message holds and those in the tool messages after it.
  bool write_responses(size_t i) {
    const Message& message = messages_[i];
    for (const ToolResponse& response : message.tool_responses) write_response(response.name, response.response, out_);
    size_t next = i + 1;
    for (; next < messages_.size() && messages_[next].role == "tool"; ++next)
      write_tool_message(messages_[next], message, out_);
    return !message.tool_responses.empty() || next > i + 1;
  }

  std::span<const Message> messages_;
  PieceWriter& out_;
  size_t behind_last_user_ = 0;
};

}  // namespace

std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const utf8::Decoded first = utf8::decode(text);
    if (!first.valid || !is_space(first.code_point)) break;
    text.remove_prefix(first.length);
  }
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    const utf8::Decoded last = utf8::decode(text.substr(at));
    if (!last.valid || at + last.length != text.size() || !is_space(last.code_point)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

std::vector<Piece> render_chat(std::span<const Message> messages, const ChatOptions& options) {
  PieceWriter out;
  out.trusted("<bos>");
  const bool system = !messages.empty() && is_system(messages[0]);
  if (options.thinking || !options.tools.empty() || system) {
    out.trusted("<|turn>system\n");
    if (options.thinking) out.trusted("<|think|>\n");
    if (system) write_system_content(messages[0].content, out);
    for (const json::Value& tool : options.tools) {
      out.trusted("<|tool>");
      write_declaration(tool, out);
      out.trusted("<tool|>");
    }
    out.trusted("<turn|>\n");
  }
  const bool open = Turns(messages.subspan(system ? 1 : 0), out).write();
  if (options.add_generation_prompt && !open) {
    out.trusted("<|turn>model\n");
    if (options.revision == Revision::nvidia && !options.thinking) out.trusted(kEmptyThought);
  }
  return out.take();
}

Revision revision_of(std::string_view template_source) {
  // Jinja source spells the newline "\n"; a rendered one would do as well.
  const bool empty_thought = template_source.find("<|channel>thought\\n<channel|>") != std::string_view::npos ||
                             template_source.find(kEmptyThought) != std::string_view::npos;
  return empty_thought ? Revision::nvidia : Revision::google;
}

Result<Revision> checkpoint_revision(const std::string& directory) {
  const std::string jinja = directory + "/chat_template.jinja";
  const std::string config = directory + "/tokenizer_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(jinja, ignored)) {
    DGEM_ASSIGN(const MappedFile file, MappedFile::open(jinja));
    return revision_of({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  }
  if (!std::filesystem::exists(config, ignored)) return Revision::google;
  DGEM_ASSIGN(const json::Value root, json::parse_file(config));
  const json::Value* source = root.find("chat_template");
  if (source == nullptr) return Revision::google;
  if (source->is_string()) return revision_of(source->string());
  // Several templates by name: [{"name": "default", "template": "..."}, ...]
  for (const json::Value& entry : source->is_array() ? source->array() : json::Array{}) {
    const json::Value* name = entry.find("name");
    const json::Value* text = entry.find("template");
    const bool is_default = name != nullptr && name->is_string() && name->string() == "default";
    if (is_default && text != nullptr && text->is_string()) return revision_of(text->string());
  }
  return Revision::google;
}

}  // namespace dgem::text
