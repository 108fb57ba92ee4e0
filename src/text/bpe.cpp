#include "text/bpe.h"

#include "base/result.h"
#include "base/utf8.h"

#include <algorithm>
#include <functional>

namespace dgem::text {

namespace {

constexpr uint32_t kNoRank = ~uint32_t{0};
constexpr char32_t kLowCharacters = 0x10000;
constexpr int kJointBits = 22;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t pair_hash(uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(pair ^ (pair >> 32));
}

size_t joint_bit(char32_t a, char32_t b) { return ((uint64_t{a} << 21 | b) * 0x9e3779b97f4a7c15u) >> (64 - kJointBits); }

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const std::array<int32_t, 256>& byte_ids,
         const std::vector<uint8_t>& reserved)
    : joints_((size_t{1} << kJointBits) / 64), low_characters_(kLowCharacters, -1), byte_ids_(byte_ids) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    if (token.empty() || token.size() > 4 || reserved[static_cast<size_t>(id)] != 0) continue;
    const utf8::Decoded first = utf8::decode(token);
    if (!first.valid || first.length != token.size()) continue;
    if (first.code_point < kLowCharacters) {
      low_characters_[first.code_point] = id;
    } else {
      high_characters_.emplace_back(first.code_point, id);
    }
  }
  std::sort(high_characters_.begin(), high_characters_.end());

  size_t slots = 16;
  while (slots < merges.size() * 2) slots *= 2;
  table_.resize(slots);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    if (reserved[static_cast<size_t>(merges[rank].result)] != 0) continue;
    insert(merges[rank], static_cast<uint32_t>(rank));
    note_joints(vocabulary.token(merges[rank].result));
  }
}

void Bpe::insert(const Merge& merge, uint32_t rank) {
  const uint64_t pair = pair_key(merge.left, merge.right);
  const size_t mask = table_.size() - 1;
  size_t i = pair_hash(pair) & mask;
  while (table_[i].result >= 0 && table_[i].pair != pair) i = (i + 1) & mask;
  table_[i] = {pair, rank, merge.result};
}

const Bpe::Entry* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = table_.size() - 1;
  for (size_t i = pair_hash(pair) & mask; table_[i].result >= 0; i = (i + 1) & mask) {
    if (table_[i].pair == pair) return &table_[i];
  }
  return nullptr;
}

// A merge can only cross the border between two characters if its result holds them side by side. So the text may be
// cut wherever no merge does, and each part encoded by itself with a small queue; the tokens are the same. The set may
// say yes too often (hash collisions), never no wrongly.
void Bpe::note_joints(std::string_view token) {
  utf8::Decoded a = utf8::decode(token);
  for (token.remove_prefix(a.length); !token.empty();) {
    const utf8::Decoded b = utf8::decode(token);
    const size_t bit = joint_bit(a.code_point, b.code_point);
    joints_[bit / 64] |= uint64_t{1} << (bit % 64);
    token.remove_prefix(b.length);
    a = b;
  }
}

bool Bpe::may_join(char32_t a, char32_t b) const {
  const size_t bit = joint_bit(a, b);
  return (joints_[bit / 64] >> (bit % 64) & 1) != 0;
}

void Bpe::append_symbols(char32_t code_point, std::string_view bytes, std::vector<Symbol>& symbols) const {
  int32_t id = -1;
  if (code_point < kLowCharacters) {
    id = low_characters_[code_point];
  } else {
    const auto it = std::lower_bound(high_characters_.begin(), high_characters_.end(), std::pair(code_point, 0));
    if (it != high_characters_.end() && it->first == code_point) id = it->second;
  }
  if (id >= 0) {
    symbols.push_back({.id = id});
    return;
  }
  for (const char byte : bytes) symbols.push_back({.id = byte_ids_[static_cast<uint8_t>(byte)]});
}

void Bpe::encode(std::string_view text, std::vector<int32_t>& out) const {
  DGEM_CHECK(text.size() < (uint64_t{1} << 31));
  Scratch scratch;
  char32_t before = 0;
  while (!text.empty()) {
    utf8::Decoded c{static_cast<unsigned char>(text[0]), 1, true};
    if (c.code_point >= 0x80) c = utf8::decode(text);
    std::string_view bytes = text.substr(0, c.length);
    text.remove_prefix(c.length);
    if (c.code_point == U' ') {
      c.code_point = U'\u2581';
      bytes = kSpaceMark;
    }
    if (!scratch.symbols.empty() && !may_join(before, c.code_point)) merge_segment(scratch, out);
    append_symbols(c.code_point, bytes, scratch.symbols);
    before = c.code_point;
  }
  merge_segment(scratch, out);
}

// Looks up the merge of a symbol with the one after it.
void Bpe::link(std::vector<Symbol>& symbols, int32_t position) const {
  Symbol& symbol = symbols[static_cast<size_t>(position)];
  const Entry* entry = symbol.next < 0 ? nullptr : find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
  symbol.rank = entry == nullptr ? kNoRank : entry->rank;
  symbol.result = entry == nullptr ? -1 : entry->result;
}

// Merges the symbols, appends what is left of them to `out` and empties the scratch.
void Bpe::merge_segment(Scratch& scratch, std::vector<int32_t>& out) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& queue = scratch.queue;
  const auto key = [&](int32_t i) {
    return uint64_t{symbols[static_cast<size_t>(i)].rank} << 32 | static_cast<uint32_t>(i);
  };
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i) {
    link(symbols, i);
    if (symbols[static_cast<size_t>(i)].rank != kNoRank) queue.push_back(key(i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  const auto relink = [&](int32_t i) {
    link(symbols, i);
    if (symbols[static_cast<size_t>(i)].rank == kNoRank) return;
    queue.push_back(key(i));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t top = queue.back();
    queue.pop_back();
    const auto i = static_cast<int32_t>(top & 0xffffffffu);
    Symbol& symbol = symbols[static_cast<size_t>(i)];
    if (symbol.id < 0 || symbol.rank != top >> 32) continue;  // one of the two has been merged since
    Symbol& right = symbols[static_cast<size_t>(symbol.next)];
    symbol.id = symbol.result;
    symbol.next = right.next;
    right.id = -1;
    if (symbol.next >= 0) symbols[static_cast<size_t>(symbol.next)].previous = i;
    relink(i);
    if (symbol.previous >= 0) relink(symbol.previous);
  }

  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) out.push_back(symbol.id);
  }
  symbols.clear();
}

}  // namespace dgem::text
