// Finds the tensors of a checkpoint by role, in any of the formats that a module may have, and checks them.
#pragma once

#include "base/result.h"
#include "model/safetensors.h"
#include "ops/views.h"

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dgem::model {

// save_pretrained may write the weights that decoder and encoder share under either name (model.md 7.1).
constexpr std::string_view kDecoder = "model.decoder.";
constexpr std::string_view kEncoder = "model.encoder.language_model.";
constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kEmbedding = "embed_tokens";

class WeightFinder {
 public:
  explicit WeightFinder(const TensorFiles& files) : files_(files) {}

  // `name` follows kDecoder or kEncoder. A 1-D weight: F32, BF16 or F16.
  Result<ops::Vector> vector(const std::string& name, int64_t size) const;
  // `module` without ".weight". The format goes by what is there (model.md 7):
  //   weight F32, BF16, F16                            as it is
  //   weight F8_E4M3, weight_scale [rows] or [rows, 1] one scale per row
  //   weight U8, weight_scale, weight_scale_2          NVFP4 as modelopt writes it
  //   weight_packed, weight_scale, weight_global_scale NVFP4 as compressed-tensors writes it
  Result<ops::Matrix> matrix(const std::string& module, int64_t rows, int64_t cols) const;
  // The tied embedding, which may also be stored as lm_head.
  Result<ops::Matrix> embedding(int64_t rows, int64_t cols) const;
  // A plain tensor of this shape (the fused experts); nullptr if neither name is there.
  Result<const Tensor*> plain(const std::string& name, std::initializer_list<int64_t> shape) const;
  // One finite number of shape [] or [1] by its full name; nullopt if absent.
  Result<std::optional<float>> scalar(const std::string& full_name) const;

 private:
  const Tensor* find_shared(const std::string& name) const;
  Result<ops::Matrix> matrix_at(const std::string& module, int64_t rows, int64_t cols) const;
  Result<ops::Matrix> fp8_matrix(const std::string& module, const Tensor& weight, int64_t rows, int64_t cols) const;
  // `inverse`: the global factor divides.
  Result<ops::Matrix> nvfp4_matrix(const std::string& module, const Tensor& packed, const char* global_name, bool inverse,
                                   int64_t rows, int64_t cols) const;

  const TensorFiles& files_;
};

// The view format of F32, BF16 and F16; nullopt for other types.
std::optional<ops::Format> plain_format(DType type);

}  // namespace dgem::model
