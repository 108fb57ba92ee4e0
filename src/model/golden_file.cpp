#include "model/golden_file.h"

#include "base/json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace dgem::model {
namespace {

bool fits(const std::vector<int64_t>& shape, std::span<const int64_t> expected) {
  return std::equal(shape.begin(), shape.end(), expected.begin(), expected.end(),
                    [](int64_t size, int64_t wanted) { return wanted == -1 ? size > 0 : size == wanted; });
}

}  // namespace

Result<GoldenFile> GoldenFile::open(const TensorFiles& tensors, const Config& config) {
  GoldenFile file;
  file.tensors_ = &tensors;
  file.vocab_ = config.vocab_size;
  constexpr std::string_view kInput = ".input_ids";
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (name.ends_with(kInput)) file.tags_.push_back(name.substr(0, name.size() - kInput.size()));
  }
  if (file.tags_.empty()) return make_error("no tensor is called TAG.input_ids: this is no file of recorded values");
  const auto& metadata = tensors.metadata();
  const auto settings = std::find_if(metadata.begin(), metadata.end(), [](const auto& m) { return m.first == "generate"; });
  if (settings == metadata.end()) return make_error("the metadata has no \"generate\" with the settings of the generation");
  DGEM_ASSIGN(const json::Value value, json::parse(settings->second));
  DGEM_ASSIGN(file.generation_, parse_generation_config(value));
  if (file.generation_.eos_token_ids.empty()) file.generation_.eos_token_ids = config.eos_token_ids;
  return file;
}

template <class T>
Result<std::vector<T>> GoldenFile::values(const std::string& name, DType type, std::span<const int64_t> shape) const {
  const Tensor* tensor = tensors_->find(name);
  if (tensor == nullptr) return make_error("tensor {} is missing", name);
  if (tensor->type != type || !fits(tensor->shape, shape)) {
    return make_error("tensor {} is {} {}, expected {} [{}] (-1: any size)", name, name_of(tensor->type),
                      tensor->shape_text(), name_of(type), fmt::join(shape, ", "));
  }
  std::vector<T> out(tensor->elements());
  std::memcpy(out.data(), tensor->data, out.size() * sizeof(T));
  return out;
}

Result<std::vector<float>> GoldenFile::floats(const std::string& name, std::initializer_list<int64_t> shape) const {
  return values<float>(name, DType::f32, shape);
}

Result<std::vector<int32_t>> GoldenFile::integers(const std::string& name, std::initializer_list<int64_t> shape) const {
  return values<int32_t>(name, DType::i32, shape);
}

Result<std::vector<uint8_t>> GoldenFile::bytes(const std::string& name, std::initializer_list<int64_t> shape) const {
  return values<uint8_t>(name, DType::u8, shape);
}

Result<std::vector<int32_t>> GoldenFile::tokens(const std::string& name, std::initializer_list<int64_t> shape) const {
  DGEM_ASSIGN(auto ids, integers(name, shape));
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_) return make_error("tensor {} holds {}, expected token ids below {}", name, id, vocab_);
  }
  return ids;
}

}  // namespace dgem::model
