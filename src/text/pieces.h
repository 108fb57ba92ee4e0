// Builds the pieces of a prompt. Neighbours of the same trust are joined.
#pragma once

#include "text/tokenizer.h"

#include <string_view>
#include <utility>
#include <vector>

namespace dgem::text {

class PieceWriter {
 public:
  void trusted(std::string_view text) { add(text, true); }  // the template's own words and control tokens
  void data(std::string_view text) { add(text, false); }    // from the caller: never a control token
  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  void add(std::string_view text, bool trusted) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().trusted != trusted) pieces_.push_back({{}, trusted});
    pieces_.back().text += text;
  }
  std::vector<Piece> pieces_;
};

}  // namespace dgem::text
