// The golden cases of tests/goldens as models, for tests.
#pragma once

#include "model/model.h"
#include "model/safetensors.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace dgem::model {

inline std::string golden_folder(const std::string& name) { return std::string(DGEM_SOURCE_DIR) + "/tests/goldens/" + name; }

// The value, or fails the test.
template <class T>
T golden_value(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

inline std::shared_ptr<ops::Ops> golden_device(const std::string& isa = "", int threads = 1,
                                               ops::Precision precision = ops::Precision::f32) {
  return golden_value(ops::cpu::make_cpu_ops({threads, precision, isa}));
}

inline std::shared_ptr<const Checkpoint> golden_checkpoint(const std::string& name) {
  return std::make_shared<const Checkpoint>(golden_value(load_checkpoint(golden_folder(name))));
}

inline std::vector<int32_t> golden_prompt(const std::string& name, const std::string& tag) {
  const TensorFiles files = golden_value(TensorFiles::open_file(golden_folder(name) + "/golden.safetensors"));
  const Tensor* ids = files.find(tag + ".input_ids");
  if (ids == nullptr) throw std::runtime_error("no prompt " + tag + " in " + name);
  std::vector<int32_t> out(ids->elements());
  std::memcpy(out.data(), ids->data, ids->bytes);
  return out;
}

}  // namespace dgem::model
