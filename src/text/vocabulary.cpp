#include "text/vocabulary.h"

#include "base/result.h"

#include <cstring>

namespace dgem::text {

namespace {

uint32_t hash_of(std::string_view s) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;
  uint64_t h = (s.size() + 1) * kMultiplier;
  const auto mix = [&h](uint64_t word) {
    h = (h ^ word) * kMultiplier;
    h ^= h >> 29;
  };
  while (s.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, s.data(), 8);
    mix(word);
    s.remove_prefix(8);
  }
  uint64_t tail = 0;
  if (!s.empty()) std::memcpy(&tail, s.data(), s.size());
  mix(tail);
  return static_cast<uint32_t>(h >> 32);
}

}  // namespace

void Vocabulary::grow() {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 1024 : old.size() * 2, Slot{});
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    size_t i = slot.hash & mask;
    while (slots_[i].id >= 0) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

Vocabulary::Outcome Vocabulary::add(std::string_view token, int32_t id) {
  DGEM_CHECK(id >= 0 && id < kMaxTokens && texts_.size() + token.size() < (uint64_t{1} << 32));
  if (count_ * 2 >= slots_.size()) grow();
  const uint32_t hash = hash_of(token);
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].hash == hash && this->token(slots_[i].id) == token) return Outcome::token_taken;
  }
  if (has(id)) return Outcome::id_taken;
  if (id >= size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = {static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(token.size()), true};
  texts_.append(token);
  slots_[i] = {hash, id};
  ++count_;
  return Outcome::added;
}

int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const uint32_t hash = hash_of(token);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].hash == hash && this->token(slots_[i].id) == token) return slots_[i].id;
  }
  return -1;
}

bool Vocabulary::has(int32_t id) const { return id >= 0 && id < size() && spans_[static_cast<size_t>(id)].used; }

std::string_view Vocabulary::token(int32_t id) const {
  if (!has(id)) return {};
  const Span& span = spans_[static_cast<size_t>(id)];
  return std::string_view(texts_).substr(span.offset, span.length);
}

}  // namespace dgem::text
