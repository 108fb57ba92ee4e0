#include "ops/cpu/kernels.h"

#include <cstdlib>

namespace dgem::ops::cpu {

namespace {
constexpr size_t kAlignment = 64;
}

Scratch::~Scratch() {
  for (void* p : data_) std::free(p);
}

void* Scratch::get_bytes(int slot, size_t bytes) {
  DGEM_CHECK(slot >= 0 && slot < kSlots, "scratch slot {}", slot);
  if (bytes <= size_[slot]) return data_[slot];
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::free(data_[slot]);
  size_[slot] = 0;
  data_[slot] = std::aligned_alloc(kAlignment, rounded);
  if (data_[slot] == nullptr) throw Fault(fmt::format("out of memory: {} bytes of scratch space for a CPU kernel", rounded));
  size_[slot] = rounded;
  return data_[slot];
}

}  // namespace dgem::ops::cpu
