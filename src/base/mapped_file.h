// A file mapped read-only. The mapping lives as long as the object; pages come in when they are touched.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <span>
#include <string>

namespace dgem {

class MappedFile {
 public:
  // Refuses what cannot be opened, is a directory, or is empty; the message names the path and the system's reason.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Asks the kernel to read the file ahead in the background.
  void will_need() const;

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace dgem
