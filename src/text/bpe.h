// Byte-pair encoding of a whole text as one word (model.md 2.1): characters first, then merges in order of rank, the
// leftmost first among equals. Time is n log n in the worst case and close to linear on real text.
#pragma once

#include "text/vocabulary.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace dgem::text {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, which stands for a space inside tokens

// The merge of two tokens; its rank is its place in the list, 0 first.
struct Merge {
  int32_t left = 0, right = 0, result = 0;
};

class Bpe {
 public:
  // byte_ids: the token of each byte, for characters that have no token of their own. `reserved`, one flag per id of
  // the vocabulary: ids that no text may become; merges that lead to them are left out. If a pair comes twice the later
  // merge holds.
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const std::array<int32_t, 256>& byte_ids,
      const std::vector<uint8_t>& reserved);

  // Appends the tokens of a text, which must be valid UTF-8 below 2 GiB. A space becomes U+2581.
  void encode(std::string_view text, std::vector<int32_t>& out) const;

 private:
  struct Entry {
    uint64_t pair = ~uint64_t{0};  // left << 32 | right; all ones: free
    uint32_t rank = 0;
    int32_t result = -1;
  };
  struct Symbol {
    int32_t id = 0;  // -1: merged into an earlier one
    int32_t previous = -1, next = -1;
    uint32_t rank = 0;  // of the merge with the next symbol; kNoRank if there is none
    int32_t result = -1;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // heap of rank << 32 | position, smallest first
  };

  const Entry* find(int32_t left, int32_t right) const;
  void insert(const Merge& merge, uint32_t rank);
  void note_joints(std::string_view token);
  bool may_join(char32_t a, char32_t b) const;
  void append_symbols(char32_t code_point, std::string_view bytes, std::vector<Symbol>& symbols) const;
  void link(std::vector<Symbol>& symbols, int32_t position) const;
  void merge_segment(Scratch& scratch, std::vector<int32_t>& out) const;

  std::vector<Entry> table_;             // open addressing, a power of two, at most half full
  std::vector<uint64_t> joints_;         // bit set over hashes of two characters that stand side by side in some merge
  std::vector<int32_t> low_characters_;  // token of each code point below kLowCharacters, or -1
  std::vector<std::pair<char32_t, int32_t>> high_characters_;  // the others, ascending
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace dgem::text
