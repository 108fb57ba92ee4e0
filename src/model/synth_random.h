// Random weights by counter: the bytes of an element depend on the seed, the tensor's name and the element's index only,
// so tensors can be made in pieces, in any order, on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace dgem::model {

enum class DrawKind : uint8_t {
  uniform_f32,  // [low, low + width)
  uniform_bf16,
  normal_f32,  // mean 0, deviation `width`
  normal_bf16,
  constant_f32,  // low
  nvfp4_codes,   // two FP4 values a byte, as if normal values of deviation 1 had been quantized in blocks of 16 ...
  nvfp4_scales,  // ... and their E4M3 block scales; both of a module must have the same key
};

struct Draw {
  DrawKind kind = DrawKind::constant_f32;
  float low = 0.0f;
  float width = 0.0f;
  uint64_t key = 0;
};

// Pieces of a tensor begin at multiples of this many bytes.
constexpr int64_t kDrawAlignment = 64;

uint64_t draw_key(uint64_t seed, std::string_view name);

// Bytes [offset, offset + out.size()) of a tensor.
void fill(const Draw& draw, int64_t offset, std::span<std::byte> out);

// The global factor that gives weights of nvfp4_codes and nvfp4_scales this deviation.
float nvfp4_global_scale(float deviation);

}  // namespace dgem::model
