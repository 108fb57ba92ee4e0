// The answer of a read as a text with slots (model.md 5.2 to 5.4): "team: [A|B|C]\nurgent: [yes|no]" has two slots, and
// each slot one token on the canvas. The model fills all slots in one pass.
#pragma once

#include "base/result.h"
#include "text/tokenizer.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dgem::decide {

inline constexpr int kMaxSlots = 256;
inline constexpr int kMaxLabels = 256;  // of one slot

// A template taken apart: literals[0], slots[0], literals[1], ..., literals.back().
struct AnswerTemplate {
  struct Slot {
    std::string name;  // the text before it on its line, without the colon; "slot 3" if there is none
    std::vector<std::string> labels;
  };
  std::vector<std::string> literals;  // slots.size() + 1
  std::vector<Slot> slots;

  // The answer in which slot i has the label `choice[i]`.
  std::string text(std::span<const int> choice) const;
};

// A slot is [LABEL|LABEL|...] with at least two labels. Elsewhere a backslash keeps the special meaning from '[', ']',
// '|' and itself. Line ends at the end of the template are dropped.
Result<AnswerTemplate> parse_answer_template(std::string_view text);

// A canvas that is ready but for its slots.
struct Canvas {
  struct Slot {
    std::string name;
    int position = 0;  // on the canvas
    std::vector<std::string> labels;
    std::vector<int32_t> label_ids;  // the token of each label; all different
  };
  std::vector<int32_t> tokens;  // a multiple of 16: scaffold, answer, <turn|>, <pad>...; slots hold their first label
  int length = 0;               // tokens before the padding
  std::vector<Slot> slots;
};

// Lays an answer out. The scaffold (an empty thought block) comes first unless the prompt ends with it. Each label must
// change exactly one token, at the same position for all labels of its slot; otherwise the error names the label.
// `canvas_length` is the largest canvas that the model takes.
Result<Canvas> make_canvas(const AnswerTemplate& answer, const text::Tokenizer& tokenizer, std::span<const int32_t> prompt,
                           int canvas_length);

// The canvas tokens with an independent, uniformly random id of [0, vocab_size) in each slot. The same arguments give
// the same tokens; draws of the same seed are independent of each other.
std::vector<int32_t> fill_slots(const Canvas& canvas, uint64_t seed, int draw, int64_t vocab_size);

// A seed that follows from what is asked, for callers that give none: the same prompt and answer template always get
// the same slot noise.
uint64_t content_seed(std::span<const int32_t> prompt, const Canvas& canvas);

}  // namespace dgem::decide
