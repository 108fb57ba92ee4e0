// safetensors files, mapped: a header of names, types, shapes and offsets, then the bytes. The header is untrusted:
// every number is checked before it is used.
#pragma once

#include "base/mapped_file.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dgem::model {

enum class DType : uint8_t { f64, f32, f16, bf16, f8_e4m3, f8_e5m2, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

const char* name_of(DType type);  // as the header writes it: "F32", "BF16", "F8_E4M3", ...
size_t bytes_of(DType type);

std::string shape_text(std::span<const int64_t> shape);  // "[2816, 704]"

struct Tensor {
  std::string name;
  DType type = DType::f32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;

  int64_t elements() const;
  std::string shape_text() const { return model::shape_text(shape); }
};

struct Header {
  std::vector<Tensor> tensors;  // in file order; data points into the given bytes
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Largest header that is read; real ones are at most a few MB (47,067 tensors: 6 MB). Parsed JSON takes up to about 30
// times its text, so the limit also bounds the memory that a hostile header can claim.
constexpr size_t kMaxHeaderBytes = size_t{32} << 20;

// Parses a whole file's bytes. Refuses: short files, headers that are too large, cut off or no JSON, unknown types,
// negative or overflowing shapes, a byte count that is not that of shape and type, offsets out of range, overlapping
// or leaving gaps. Errors name the tensor.
Result<Header> parse_safetensors(std::span<const std::byte> file);

// All tensors of a directory: model.safetensors, or the shards of model.safetensors.index.json.
class TensorFiles {
 public:
  static Result<TensorFiles> open(const std::string& directory);
  // A single file.
  static Result<TensorFiles> open_file(const std::string& path);

  const Tensor* find(std::string_view name) const;
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
  size_t mapped_bytes() const;
  void will_need() const;

 private:
  Status add(const std::string& path);

  std::vector<MappedFile> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace dgem::model
