// The tokens of a tokenizer by id and by text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dgem::text {

class Vocabulary {
 public:
  enum class Outcome { added, token_taken, id_taken };

  static constexpr int32_t kMaxTokens = 1 << 21;  // ids are below this

  // Adds a token under an id in [0, kMaxTokens). `token_taken` if the text already has an id, `id_taken` if the id
  // already has a text; neither changes anything. All texts together must stay below 4 GiB.
  Outcome add(std::string_view token, int32_t id);

  int32_t find(std::string_view token) const;  // -1 if there is none
  std::string_view token(int32_t id) const;    // empty for an id without a token; the id may be anything
  bool has(int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(spans_.size()); }  // highest id + 1

 private:
  struct Span {
    uint32_t offset = 0;
    uint32_t length = 0;
    bool used = false;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  void grow();

  std::string texts_;
  std::vector<Span> spans_;  // by id
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace dgem::text
