#include "decide/answer_template.h"

#include "text/chat_template.h"

#include <algorithm>

namespace dgem::decide {

namespace {

constexpr size_t kCanvasStep = 16;

std::string name_of_slot(std::string_view literal, size_t number) {
  std::string_view line = literal.substr(literal.rfind('\n') == std::string_view::npos ? 0 : literal.rfind('\n') + 1);
  line = text::strip(line);
  if (line.ends_with(':')) line = text::strip(line.substr(0, line.size() - 1));
  return line.empty() ? fmt::format("slot {}", number) : std::string(line);
}

// Reads a template character by character, with backslashes resolved.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }

  // Appends up to the next unescaped character of `stops`, which is returned and passed; '\0' at the end.
  char read_until(std::string_view stops, std::string& out) {
    while (!at_end()) {
      char c = text_[at_++];
      if (c == '\n') ++line_;
      if (stops.find(c) != std::string_view::npos) return c;
      if (c == '\\' && !at_end() && std::string_view("[]|\\").find(text_[at_]) != std::string_view::npos) c = text_[at_++];
      out.push_back(c);
    }
    return '\0';
  }

  int line() const { return line_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

// The labels behind a '['.
Result<std::vector<std::string>> read_labels(Reader& reader) {
  const int line = reader.line();
  std::vector<std::string> labels;
  for (char stop = '|'; stop == '|';) {
    std::string label;
    stop = reader.read_until("|[]\n", label);
    if (stop != '|' && stop != ']') {
      return make_error("line {} of the answer template: the '[' of a slot has no ']' (write \\[ for a bracket in the text)",
                        line);
    }
    if (label.empty()) return make_error("line {} of the answer template: a slot has an empty label", line);
    if (std::find(labels.begin(), labels.end(), label) != labels.end()) {
      return make_error("line {} of the answer template: the label '{}' comes twice in one slot", line, label);
    }
    labels.push_back(std::move(label));
  }
  if (labels.size() < 2 || labels.size() > kMaxLabels) {
    return make_error(
        "line {} of the answer template: a slot must offer 2 to {} labels, as in [yes|no], but this one has {}", line,
        kMaxLabels, labels.size());
  }
  return labels;
}

// Encodes answers; the slots' labels are data like the rest of the text.
std::vector<int32_t> encode(const AnswerTemplate& answer, const text::Tokenizer& tokenizer, std::span<const int> choice) {
  return tokenizer.encode(answer.text(choice), text::Specials::as_text);
}

Error does_not_fit(const AnswerTemplate::Slot& slot, const std::string& label) {
  return make_error(
      "the label '{}' of slot '{}' must be exactly one token in its place, with the tokens around it the same as for "
      "'{}': choose another label (A, B, C, yes, no and the digits work after ': ')",
      label, slot.name, slot.labels[0]);
}

// The slot's position in the answer and its label ids, by encoding the answer once per label.
Result<Canvas::Slot> find_slot(const AnswerTemplate& answer, size_t index, const text::Tokenizer& tokenizer,
                               const std::vector<int32_t>& first) {
  const AnswerTemplate::Slot& slot = answer.slots[index];
  Canvas::Slot found{slot.name, -1, slot.labels, {}};
  std::vector<int> choice(answer.slots.size(), 0);
  for (size_t label = 1; label < slot.labels.size(); ++label) {
    choice[index] = static_cast<int>(label);
    const std::vector<int32_t> ids = encode(answer, tokenizer, choice);
    if (ids.size() != first.size()) return does_not_fit(slot, slot.labels[label]);
    const auto differs = std::mismatch(ids.begin(), ids.end(), first.begin());
    const auto position = static_cast<int>(differs.first - ids.begin());
    const bool one = differs.first != ids.end() && std::equal(differs.first + 1, ids.end(), differs.second + 1);
    if (!one || (found.position >= 0 && position != found.position)) return does_not_fit(slot, slot.labels[label]);
    if (found.position < 0) found.label_ids.push_back(*differs.second);
    found.position = position;
    if (std::find(found.label_ids.begin(), found.label_ids.end(), *differs.first) != found.label_ids.end()) {
      return make_error("the label '{}' of slot '{}' is the same token as another label", slot.labels[label], slot.name);
    }
    found.label_ids.push_back(*differs.first);
  }
  return found;
}

// What comes before and after the answer on a canvas.
struct Frame {
  std::vector<int32_t> scaffold;
  int32_t end = 0, pad = 0;
};

Result<Frame> find_frame(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  for (const char* token : {"<|channel>", "<channel|>", "<turn|>", "<pad>"}) {
    if (!tokenizer.id_of(token))
      return make_error("the tokenizer has no token {}: this model cannot be used for reads", token);
  }
  Frame frame{tokenizer.encode(text::kEmptyThought, text::Specials::parse), *tokenizer.id_of("<turn|>"),
              *tokenizer.id_of("<pad>")};
  const bool there =
      prompt.size() >= frame.scaffold.size() &&
      std::equal(frame.scaffold.begin(), frame.scaffold.end(), prompt.end() - static_cast<ptrdiff_t>(frame.scaffold.size()));
  if (there) frame.scaffold.clear();
  return frame;
}

// The finalizer of splitmix64: a bijection of 64-bit words whose outputs look independent.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::string AnswerTemplate::text(std::span<const int> choice) const {
  std::string out = literals[0];
  for (size_t i = 0; i < slots.size(); ++i) {
    out += slots[i].labels[static_cast<size_t>(choice[i])];
    out += literals[i + 1];
  }
  return out;
}

Result<AnswerTemplate> parse_answer_template(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  AnswerTemplate answer;
  answer.literals.emplace_back();
  for (Reader reader(text); !reader.at_end();) {
    const char stop = reader.read_until("[]", answer.literals.back());
    if (stop == ']')
      return make_error("line {} of the answer template: a ']' without '[' (write \\] for a bracket)", reader.line());
    if (stop == '\0') break;
    DGEM_ASSIGN(std::vector<std::string> labels, read_labels(reader));
    answer.slots.push_back({name_of_slot(answer.literals.back(), answer.slots.size() + 1), std::move(labels)});
    answer.literals.emplace_back();
    if (answer.slots.size() > kMaxSlots) return make_error("the answer template has more than {} slots", kMaxSlots);
  }
  if (answer.slots.empty())
    return make_error("the answer template has no slot: write the answers to choose from as [yes|no]");
  return answer;
}

Result<Canvas> make_canvas(const AnswerTemplate& answer, const text::Tokenizer& tokenizer, std::span<const int32_t> prompt,
                           int canvas_length) {
  DGEM_ASSIGN(const Frame frame, find_frame(tokenizer, prompt));
  std::vector<int> choice(answer.slots.size(), 0);
  const std::vector<int32_t> first = encode(answer, tokenizer, choice);

  Canvas canvas;
  canvas.length = static_cast<int>(frame.scaffold.size() + first.size() + 1);
  const size_t width = (static_cast<size_t>(canvas.length) + kCanvasStep - 1) / kCanvasStep * kCanvasStep;
  if (width > static_cast<size_t>(canvas_length)) {
    return make_error(
        "the answer template needs a canvas of {} tokens, but the model takes at most {}: ask fewer questions at a time",
        width, canvas_length);
  }
  std::vector<int32_t> last = first;  // what the answer with all last labels must encode to
  for (size_t i = 0; i < answer.slots.size(); ++i) {
    DGEM_ASSIGN(Canvas::Slot slot, find_slot(answer, i, tokenizer, first));
    last[static_cast<size_t>(slot.position)] = slot.label_ids.back();
    choice[i] = static_cast<int>(slot.labels.size()) - 1;
    slot.position += static_cast<int>(frame.scaffold.size());
    for (const Canvas::Slot& other : canvas.slots) {
      if (other.position == slot.position) {
        return make_error("the slots '{}' and '{}' fall on the same token: put text between them", other.name, slot.name);
      }
    }
    canvas.slots.push_back(std::move(slot));
  }
  if (encode(answer, tokenizer, choice) != last) {
    return make_error(
        "the labels of neighbouring slots merge into common tokens: put text, such as a new line, between the slots");
  }

  canvas.tokens = frame.scaffold;
  canvas.tokens.insert(canvas.tokens.end(), first.begin(), first.end());
  canvas.tokens.push_back(frame.end);
  canvas.tokens.resize(width, frame.pad);
  return canvas;
}

std::vector<int32_t> fill_slots(const Canvas& canvas, uint64_t seed, int draw, int64_t vocab_size) {
  DGEM_CHECK(vocab_size > 0 && vocab_size <= INT32_MAX);
  std::vector<int32_t> tokens = canvas.tokens;
  for (size_t i = 0; i < canvas.slots.size(); ++i) {
    const uint64_t random = mix(mix(seed) ^ (static_cast<uint64_t>(draw) << 32 | i));
    // The upper 32 bits scaled to the vocabulary: a deviation from uniform below vocab_size / 2^32.
    tokens[static_cast<size_t>(canvas.slots[i].position)] =
        static_cast<int32_t>((random >> 32) * static_cast<uint64_t>(vocab_size) >> 32);
  }
  return tokens;
}

uint64_t content_seed(std::span<const int32_t> prompt, const Canvas& canvas) {
  uint64_t seed = 0;
  const auto add = [&seed](int32_t id) { seed = mix(seed ^ static_cast<uint32_t>(id)); };
  for (const int32_t id : prompt) add(id);
  add(-1);
  for (const int32_t id : canvas.tokens) add(id);
  for (const Canvas::Slot& slot : canvas.slots) {
    for (const int32_t id : slot.label_ids) add(id);
  }
  return seed;
}

}  // namespace dgem::decide
