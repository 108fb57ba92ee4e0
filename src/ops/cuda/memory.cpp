#include "ops/cuda/memory.h"

#include <algorithm>
#include <cstring>

namespace dgem::ops::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kLargestBlock = size_t{256} << 20;

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report it again
  throw Fault(fmt::format("CUDA: {} failed: {}", what, cudaGetErrorString(status)));
}

Buffer allocate_device(size_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, std::max<size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw Fault(
        fmt::format("out of device memory: {} bytes could not be allocated, {} of {} bytes are free", bytes, free, total));
  }
  check(status, "cudaMalloc");
  return Buffer(static_cast<std::byte*>(p), [](std::byte* q) { cudaFree(q); });
}

Uploader::Uploader(cudaStream_t stream) : stream_(stream) {
  for (Block& block : blocks_) {
    void* p = nullptr;
    check(cudaMallocHost(&p, kBlockBytes), "cudaMallocHost");
    block.data = static_cast<std::byte*>(p);
    check(cudaEventCreateWithFlags(&block.copied, cudaEventDisableTiming), "cudaEventCreate");
  }
}

Uploader::~Uploader() {
  for (const Block& block : blocks_) {
    if (block.copied != nullptr) cudaEventDestroy(block.copied);
    if (block.data != nullptr) cudaFreeHost(block.data);
  }
}

void Uploader::next_block() {
  check(cudaEventRecord(blocks_[block_].copied, stream_), "cudaEventRecord");
  block_ = (block_ + 1) % blocks_.size();
  used_ = 0;
  check(cudaEventSynchronize(blocks_[block_].copied), "an upload");
}

void Uploader::upload(void* device, const void* host, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    if (used_ == kBlockBytes) next_block();
    const size_t n = std::min(bytes - done, kBlockBytes - used_);
    std::byte* pinned = blocks_[block_].data + used_;
    std::memcpy(pinned, static_cast<const std::byte*>(host) + done, n);
    check(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, pinned, n, cudaMemcpyHostToDevice, stream_), "an upload");
    used_ = std::min(kBlockBytes, (used_ + n + 15) / 16 * 16);
    done += n;
  }
}

std::byte* Arena::take(size_t bytes) {
  const size_t size = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (size > left_) {
    if (size >= next_size_ / 4) return blocks_.emplace_back(allocate_device(size)).get();  // large ones by themselves
    at_ = blocks_.emplace_back(allocate_device(next_size_)).get();
    left_ = next_size_;
    next_size_ = std::min(kLargestBlock, 2 * next_size_);
  }
  std::byte* p = at_;
  at_ += size;
  left_ -= size;
  return p;
}

}  // namespace dgem::ops::cuda
