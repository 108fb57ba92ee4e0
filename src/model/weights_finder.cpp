#include "model/weights_finder.h"

#include "base/numeric.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dgem::model {
namespace {

constexpr const char* kPlainTypes = "F32, BF16 or F16";

bool has_shape(const Tensor& tensor, std::initializer_list<int64_t> shape) {
  return std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end());
}

Status check_shape(const Tensor& tensor, std::initializer_list<int64_t> shape) {
  if (has_shape(tensor, shape)) return {};
  return make_error("tensor {}: expected shape {}, found {}", tensor.name, shape_text({shape.begin(), shape.size()}),
                    tensor.shape_text());
}

Error wrong_type(const Tensor& tensor, const char* expected) {
  return make_error("tensor {}: expected {}, found {}", tensor.name, expected, name_of(tensor.type));
}

// Kernels read values of their own size from these addresses. Writers align to 8 bytes, so this refuses nothing in
// practice, but the file decides where its data lies.
Status check_aligned(const Tensor& tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.data) % bytes_of(tensor.type) == 0) return {};
  return make_error(
      "tensor {}: its {} data does not begin at a multiple of {} bytes in the file; save the checkpoint again with "
      "safetensors, which aligns tensors",
      tensor.name, name_of(tensor.type), bytes_of(tensor.type));
}

Result<ops::Format> check_plain(const Tensor& tensor, std::initializer_list<int64_t> shape) {
  const std::optional<ops::Format> format = plain_format(tensor.type);
  if (!format) return wrong_type(tensor, kPlainTypes);
  DGEM_RETURN_IF_ERROR(check_shape(tensor, shape));
  DGEM_RETURN_IF_ERROR(check_aligned(tensor));
  return *format;
}

float first_value(const Tensor& tensor) {
  if (tensor.type == DType::f32) {
    float value;
    std::memcpy(&value, tensor.data, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, tensor.data, sizeof(bits));
  return tensor.type == DType::bf16 ? to_float(bf16{bits}) : f16_to_float(bits);
}

}  // namespace

std::optional<ops::Format> plain_format(DType type) {
  switch (type) {
    case DType::f32: return ops::Format::f32;
    case DType::bf16: return ops::Format::bf16;
    case DType::f16: return ops::Format::f16;
    default: return std::nullopt;
  }
}

const Tensor* WeightFinder::find_shared(const std::string& name) const {
  const Tensor* tensor = files_.find(std::string(kDecoder) + name);
  return tensor != nullptr ? tensor : files_.find(std::string(kEncoder) + name);
}

Result<ops::Vector> WeightFinder::vector(const std::string& name, int64_t size) const {
  const Tensor* tensor = find_shared(name);
  if (tensor == nullptr) return make_error("tensor {}{} is missing: expected {} [{}]", kDecoder, name, kPlainTypes, size);
  DGEM_ASSIGN(const ops::Format format, check_plain(*tensor, {size}));
  return ops::Vector{tensor->data, format, size};
}

Result<ops::Matrix> WeightFinder::matrix(const std::string& module, int64_t rows, int64_t cols) const {
  DGEM_ASSIGN(ops::Matrix found, matrix_at(std::string(kDecoder) + module, rows, cols));
  if (!found) {
    DGEM_ASSIGN(found, matrix_at(std::string(kEncoder) + module, rows, cols));
  }
  if (found) return found;
  return make_error("tensor {}{}.weight is missing: expected [{}, {}] in {}, F8_E4M3 or NVFP4", kDecoder, module, rows, cols,
                    kPlainTypes);
}

Result<ops::Matrix> WeightFinder::embedding(int64_t rows, int64_t cols) const {
  const std::string name(kEmbedding);
  if (find_shared(name + ".weight") == nullptr && find_shared(name + ".weight_packed") == nullptr) {
    DGEM_ASSIGN(const ops::Matrix head, matrix_at(std::string(kHead), rows, cols));
    if (head) return head;
  }
  return matrix(name, rows, cols);
}

Result<const Tensor*> WeightFinder::plain(const std::string& name, std::initializer_list<int64_t> shape) const {
  const Tensor* tensor = find_shared(name);
  if (tensor != nullptr) {
    DGEM_RETURN_IF_ERROR(check_plain(*tensor, shape));
  }
  return tensor;
}

Result<std::optional<float>> WeightFinder::scalar(const std::string& full_name) const {
  const Tensor* tensor = files_.find(full_name);
  if (tensor == nullptr) return std::optional<float>();
  if (!plain_format(tensor->type)) return wrong_type(*tensor, kPlainTypes);
  if (!has_shape(*tensor, {}) && !has_shape(*tensor, {1})) {
    return make_error("tensor {}: expected one number of shape [] or [1], found {}", full_name, tensor->shape_text());
  }
  const float value = first_value(*tensor);
  if (!std::isfinite(value)) return make_error("tensor {}: expected a finite number, found {}", full_name, value);
  return std::optional<float>(value);
}

// No matrix if neither .weight nor .weight_packed is there.
Result<ops::Matrix> WeightFinder::matrix_at(const std::string& module, int64_t rows, int64_t cols) const {
  if (const Tensor* packed = files_.find(module + ".weight_packed"); packed != nullptr) {
    return nvfp4_matrix(module, *packed, ".weight_global_scale", true, rows, cols);
  }
  const Tensor* weight = files_.find(module + ".weight");
  if (weight == nullptr) return ops::Matrix{};
  if (weight->type == DType::u8) return nvfp4_matrix(module, *weight, ".weight_scale_2", false, rows, cols);
  if (weight->type == DType::f8_e4m3) return fp8_matrix(module, *weight, rows, cols);
  if (!plain_format(weight->type)) return wrong_type(*weight, "F32, BF16, F16, F8_E4M3 or U8 (NVFP4)");
  DGEM_ASSIGN(const ops::Format format, check_plain(*weight, {rows, cols}));
  return ops::Matrix{.data = weight->data, .format = format, .rows = rows, .cols = cols, .row_scales = {}};
}

Result<ops::Matrix> WeightFinder::fp8_matrix(const std::string& module, const Tensor& weight, int64_t rows,
                                             int64_t cols) const {
  DGEM_RETURN_IF_ERROR(check_shape(weight, {rows, cols}));
  const Tensor* scale = files_.find(module + ".weight_scale");
  if (scale == nullptr) {
    return make_error("tensor {}.weight_scale is missing: expected F32 or BF16 [{}], one for each row of the F8_E4M3 weight",
                      module, rows);
  }
  if (scale->type != DType::f32 && scale->type != DType::bf16) return wrong_type(*scale, "F32 or BF16");
  if (!has_shape(*scale, {rows}) && !has_shape(*scale, {rows, 1})) {
    return make_error("tensor {}: expected shape [{}] or [{}, 1], one scale for each row, found {}", scale->name, rows, rows,
                      scale->shape_text());
  }
  DGEM_RETURN_IF_ERROR(check_aligned(*scale));
  return ops::Matrix{.data = weight.data,
                     .format = ops::Format::fp8,
                     .rows = rows,
                     .cols = cols,
                     .row_scales = {scale->data, *plain_format(scale->type), rows}};
}

Result<ops::Matrix> WeightFinder::nvfp4_matrix(const std::string& module, const Tensor& packed, const char* global_name,
                                               bool inverse, int64_t rows, int64_t cols) const {
  if (cols % 16 != 0) {
    return make_error("tensor {}: NVFP4 needs rows of a multiple of 16 elements, but this weight is [{}, {}]", packed.name,
                      rows, cols);
  }
  if (packed.type != DType::u8) return wrong_type(packed, "U8, two FP4 values in a byte");
  DGEM_RETURN_IF_ERROR(check_shape(packed, {rows, cols / 2}));
  const Tensor* blocks = files_.find(module + ".weight_scale");
  if (blocks == nullptr) {
    return make_error("tensor {}.weight_scale is missing: expected F8_E4M3 [{}, {}]", module, rows, cols / 16);
  }
  if (blocks->type != DType::f8_e4m3) return wrong_type(*blocks, "F8_E4M3, one scale for 16 elements");
  DGEM_RETURN_IF_ERROR(check_shape(*blocks, {rows, cols / 16}));

  const std::string full_name = module + global_name;
  DGEM_ASSIGN(const std::optional<float> global, scalar(full_name));
  if (!global) return make_error("tensor {} is missing: expected one F32 number", full_name);
  const float scale = inverse ? 1.0f / *global : *global;
  if (!(*global > 0.0f) || !std::isfinite(scale)) {
    return make_error("tensor {}: expected a number above 0, found {}", full_name, *global);
  }
  return ops::Matrix{.data = packed.data,
                     .format = ops::Format::nvfp4,
                     .rows = rows,
                     .cols = cols,
                     .block_scales = reinterpret_cast<const uint8_t*>(blocks->data),
                     .scale = scale,
                     .row_scales = {}};
}

}  // namespace dgem::model
