// Device memory and the way into it: checked calls, arenas for weights, and uploads through pinned memory.
#pragma once

#include "base/result.h"
#include "ops/ops.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace dgem::ops::cuda {

// Throws Fault with the name of what failed and the driver's reason.
void check(cudaError_t status, const char* what);

// Device memory of its own. Throws Fault with sizes where there is not enough.
Buffer allocate_device(size_t bytes);

// Copies from host memory to the device in the order of a stream without waiting for it: the data goes through a ring of
// pinned blocks, each of which is used again only when its copies have been made.
class Uploader {
 public:
  explicit Uploader(cudaStream_t stream);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // `host` may be changed or freed when the call returns.
  void upload(void* device, const void* host, size_t bytes);

 private:
  static constexpr size_t kBlockBytes = size_t{4} << 20;
  struct Block {
    std::byte* data = nullptr;
    cudaEvent_t copied = nullptr;
  };
  void next_block();

  cudaStream_t stream_;
  std::array<Block, 4> blocks_;
  size_t block_ = 0, used_ = 0;  // the block in use and its bytes
};

// Memory for weights, cut from few large allocations and kept to the end.
class Arena {
 public:
  std::byte* take(size_t bytes);  // aligned to 256 bytes

 private:
  std::vector<Buffer> blocks_;
  size_t next_size_ = size_t{4} << 20;
  std::byte* at_ = nullptr;
  size_t left_ = 0;
};

}  // namespace dgem::ops::cuda
