// Writes checkpoints: the tensors are declared first, then their bytes arrive in any order and from any thread, so that
// nothing larger than a piece of a tensor needs memory. Files carry a temporary name until all of them are complete.
#pragma once

#include "base/result.h"
#include "model/safetensors.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dgem::model {

struct TensorSpec {
  std::string name;
  DType type = DType::f32;
  std::vector<int64_t> shape;

  int64_t bytes() const;
};

struct WriterOptions {
  // A file holds at most this much data (one larger tensor has a file of its own). More files get an index.
  int64_t max_shard_bytes = 5'000'000'000;
  std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
  // Set to end the writing: the next write throws Fault. Must outlive the writer.
  const std::atomic<bool>* stop = nullptr;
};

class SafetensorsWriter {
 public:
  // Creates the directory if need be and reserves the space. Refuses repeated names, sizes that overflow, a directory
  // that holds model files already, and too little free disk space; then nothing is left behind.
  static Result<SafetensorsWriter> create(const std::string& directory, std::vector<TensorSpec> tensors,
                                          WriterOptions options = {});

  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();  // without finish(): removes what was written

  const std::vector<TensorSpec>& tensors() const;
  int64_t total_bytes() const;  // of data

  // Writes bytes of tensors()[tensor] from `offset` on. Each byte must be written once. Thread-safe.
  // Throws Fault if the disk fails or is full, and when stopped.
  void write(size_t tensor, int64_t offset, std::span<const std::byte> bytes);

  // Gives the files their names, and writes the index if there are several. All bytes must have been written
  // (DGEM_CHECK). Throws Fault.
  void finish();

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dgem::model
