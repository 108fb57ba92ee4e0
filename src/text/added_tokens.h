// Finds the added tokens of a tokenizer (control strings such as <|turn>, and in some vocabularies runs of newlines) in
// raw text: the longest one that begins at a position.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dgem::text {

class AddedTokens {
 public:
  static constexpr size_t kMaxLength = 256;  // bytes of one token: bounds the work at each position of a text

  struct Match {
    int32_t id = -1;  // -1: none
    size_t length = 0;
  };

  // A control token is only found where find() is told that the text may hold one.
  void add(std::string_view content, int32_t id, bool control);

  // The longest added token at the start of `text`; a control token only within the first `trusted` bytes.
  Match find(std::string_view text, size_t trusted) const;

 private:
  struct Node {
    int32_t id = -1;
    bool control = false;
  };
  std::vector<Node> nodes_{1};                       // a trie; node 0 is the root
  std::unordered_map<uint64_t, uint32_t> children_;  // node << 8 | byte -> node
  std::array<uint32_t, 256> first_{};                // children of the root; 0: none
};

}  // namespace dgem::text
