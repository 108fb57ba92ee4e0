// golden.safetensors, read with checks: it is a file like any other and may hold anything.
#pragma once

#include "base/result.h"
#include "model/config.h"
#include "model/safetensors.h"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace dgem::model {

class GoldenFile {
 public:
  // `tensors` must live as long as the object.
  static Result<GoldenFile> open(const TensorFiles& tensors, const Config& config);

  const std::vector<std::string>& tags() const { return tags_; }  // the prompts, ascending
  const GenerationConfig& generation() const { return generation_; }
  bool has(const std::string& name) const { return tensors_->find(name) != nullptr; }

  // Values of the tensor, which must exist with this type and shape; -1 stands for any size from 1 on.
  Result<std::vector<float>> floats(const std::string& name, std::initializer_list<int64_t> shape) const;
  Result<std::vector<int32_t>> integers(const std::string& name, std::initializer_list<int64_t> shape) const;
  Result<std::vector<uint8_t>> bytes(const std::string& name, std::initializer_list<int64_t> shape) const;
  // Integers that are token ids of the model.
  Result<std::vector<int32_t>> tokens(const std::string& name, std::initializer_list<int64_t> shape) const;

 private:
  template <class T>
  Result<std::vector<T>> values(const std::string& name, DType type, std::span<const int64_t> shape) const;

  const TensorFiles* tensors_ = nullptr;
  std::vector<std::string> tags_;
  GenerationConfig generation_;
  int64_t vocab_ = 0;
};

}  // namespace dgem::model
