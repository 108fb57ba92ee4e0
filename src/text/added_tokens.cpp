#include "text/added_tokens.h"

#include "base/result.h"

namespace dgem::text {

void AddedTokens::add(std::string_view content, int32_t id, bool control) {
  DGEM_CHECK(!content.empty() && content.size() <= kMaxLength);
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t& child = node == 0 ? first_[byte] : children_[uint64_t{node} << 8 | byte];
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node = child;
  }
  nodes_[node] = {id, control};
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t trusted) const {
  Match best;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (node == 0) {
      node = first_[byte];
      if (node == 0) break;
    } else {
      const auto it = children_.find(uint64_t{node} << 8 | byte);
      if (it == children_.end()) break;
      node = it->second;
    }
    const Node& here = nodes_[node];
    if (here.id >= 0 && (!here.control || i < trusted)) best = {here.id, i + 1};
  }
  return best;
}

}  // namespace dgem::text
