// Any bytes as a safetensors file: parse_safetensors() returns an error or tensors that lie within the file. The data of
// every tensor is read, so that the sanitizer sees a view that leaves the file.
#include "model/safetensors.h"

#include <algorithm>
#include <memory>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of the exact size, on the heap: one byte too far is an error.
  const auto copy = std::make_unique<std::byte[]>(size);
  std::copy_n(reinterpret_cast<const std::byte*>(data), size, copy.get());
  const auto header = dgem::model::parse_safetensors({copy.get(), size});
  if (!header) {
    DGEM_CHECK(!header.error().message.empty());
    return 0;
  }
  size_t total = 0;
  for (const auto& tensor : header->tensors) {
    DGEM_CHECK(tensor.elements() >= 0);
    DGEM_CHECK(static_cast<size_t>(tensor.elements()) * dgem::model::bytes_of(tensor.type) == tensor.bytes);
    const auto end = std::find(tensor.data, tensor.data + tensor.bytes, std::byte{0x5a});
    DGEM_CHECK(end <= tensor.data + tensor.bytes);
    total += tensor.bytes;
  }
  DGEM_CHECK(total < size);
  return 0;
}
