#include "base/mapped_file.h"

#include "base/test_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace dgem {
namespace {

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ReadsTheFile) {
  const TestFolder folder;
  std::string content(100'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  const auto file = MappedFile::open(folder.write("data", content));
  ASSERT_TRUE(file);
  file->will_need();
  EXPECT_EQ(text_of(*file), content);
  EXPECT_EQ(file->path(), folder.path() + "/data");
}

TEST(MappedFile, MovesKeepTheMapping) {
  const TestFolder folder;
  auto a = MappedFile::open(folder.write("a", "first"));
  auto b = MappedFile::open(folder.write("b", "second"));
  ASSERT_TRUE(a && b);
  const std::byte* data = b->bytes().data();
  MappedFile moved = std::move(*b);
  EXPECT_EQ(moved.bytes().data(), data);
  moved = std::move(*a);
  EXPECT_EQ(text_of(moved), "first");
}

TEST(MappedFile, RefusalsNamePathAndReason) {
  const TestFolder folder;
  const auto message = [](const std::string& path) { return MappedFile::open(path).error().message; };
  EXPECT_EQ(message(folder.path() + "/none"), "cannot read " + folder.path() + "/none: No such file or directory");
  EXPECT_EQ(message(folder.path()), "cannot read " + folder.path() + ": it is a folder; name a file in it");
  EXPECT_EQ(message("/dev/null"), "cannot read /dev/null: it is not a regular file");
  const std::string empty = folder.write("empty", "");
  EXPECT_EQ(message(empty), "cannot read " + empty + ": the file is empty");
}

}  // namespace
}  // namespace dgem
