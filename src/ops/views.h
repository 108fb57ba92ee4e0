// Plain views that the kernels take: weights as the checkpoint stores them, activations as the model makes them.
// A view owns nothing. All matrices are row-major; a weight is [out, in] and multiplies as y = x · Wᵀ.
#pragma once

#include <cstdint>

namespace dgem::ops {

enum class Format : uint8_t {
  f32,
  bf16,
  f16,
  fp8,    // E4M3fn with one scale per row: w = value · row_scales[row]
  nvfp4,  // E2M1, two per byte (element 2j in the low nibble), with an E4M3 scale per 16 elements of a row and one
          // global factor: w = value · block_scales[row, k/16] · scale
};

inline const char* name_of(Format f) {
  constexpr const char* kNames[] = {"F32", "BF16", "F16", "FP8", "NVFP4"};
  return kNames[static_cast<int>(f)];
}

// A 1-D weight (a norm, a scale): f32, bf16 or f16. data == nullptr: no weight, i.e. all ones.
struct Vector {
  const void* data = nullptr;
  Format format = Format::f32;
  int64_t size = 0;
};

// A 2-D weight [rows = out, cols = in].
struct Matrix {
  const void* data = nullptr;
  Format format = Format::f32;
  int64_t rows = 0, cols = 0;
  const uint8_t* block_scales = nullptr;  // nvfp4: [rows, cols/16]
  float scale = 1.0f;                     // nvfp4
  Vector row_scales;                      // fp8: [rows]

  // Bytes of one row of `data`.
  [[gnu::always_inline]] int64_t row_bytes() const {
    switch (format) {
      case Format::f32: return cols * 4;
      case Format::bf16:
      case Format::f16: return cols * 2;
      case Format::fp8: return cols;
      case Format::nvfp4: return cols / 2;
    }
    return 0;
  }
  // All bytes that multiplying by this matrix reads.
  int64_t bytes() const {
    int64_t b = rows * row_bytes();
    if (format == Format::nvfp4) b += rows * (cols / 16) + 4;
    if (format == Format::fp8) b += rows * (row_scales.format == Format::f32 ? 4 : 2);
    return b;
  }
  explicit operator bool() const { return data != nullptr; }
};

// The precision of activations where they enter a matrix product and in the KV cache. Everything between (residual
// stream, norms, softmax, router) is float32 in both.
enum class Precision : uint8_t { f32, bf16 };

inline int64_t bytes_of(Precision p) { return p == Precision::f32 ? 4 : 2; }
inline const char* name_of(Precision p) { return p == Precision::f32 ? "f32" : "bf16"; }

// An activation matrix [rows, cols] without gaps, in the device's activation precision.
struct Act {
  void* data = nullptr;
  Precision precision = Precision::f32;
  int64_t rows = 0, cols = 0;
};

}  // namespace dgem::ops
