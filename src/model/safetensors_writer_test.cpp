#include "model/safetensors_writer.h"

#include "base/test_files.h"
#include "base/thread_pool.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace dgem::model {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string content(const Tensor& tensor) { return {reinterpret_cast<const char*>(tensor.data), tensor.bytes}; }

// Sizes that would leave float32 data unaligned in the order given.
const std::vector<TensorSpec> kMixed = {
    {"codes", DType::u8, {3}}, {"scale", DType::f32, {}}, {"norm", DType::bf16, {1}}, {"none", DType::f32, {0}}};

TEST(SafetensorsWriter, AlignsAndReadsBack) {
  const TestFolder folder;
  auto writer = SafetensorsWriter::create(folder.path() + "/new/deep", kMixed);
  ASSERT_TRUE(writer) << writer.error().message;
  EXPECT_EQ(writer->total_bytes(), 9);
  writer->write(2, 0, bytes("no"));
  writer->write(0, 2, bytes("c"));
  writer->write(1, 0, bytes("1234"));
  writer->write(0, 0, bytes("ab"));
  writer->finish();
  EXPECT_EQ(names_in(folder.path() + "/new/deep"), std::vector<std::string>{"model.safetensors"});
  const auto files = TensorFiles::open(folder.path() + "/new/deep");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(content(*files->find("codes")), "abc");
  EXPECT_EQ(content(*files->find("scale")), "1234");
  EXPECT_EQ(content(*files->find("norm")), "no");
  EXPECT_EQ(files->find("none")->shape_text(), "[0]");
  for (const auto& [name, tensor] : files->tensors())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % bytes_of(tensor.type), 0u) << name;
  EXPECT_EQ(files->metadata().at(0).second, "pt");
}

TEST(SafetensorsWriter, CutsShardsWithAnIndex) {
  const TestFolder folder;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 5; ++i) specs.push_back({fmt::format("t{}", i), DType::u8, {i == 2 ? 25 : 4}});
  auto writer = SafetensorsWriter::create(folder.path(), specs, {.max_shard_bytes = 10});
  ASSERT_TRUE(writer) << writer.error().message;
  ThreadPool pool(3);
  pool.run(5, [&](int i, int) {
    writer->write(static_cast<size_t>(i), 0, bytes(std::string(i == 2 ? 25 : 4, static_cast<char>('a' + i))));
  });
  writer->finish();
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  const auto files = TensorFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->tensors().size(), 5u);
  EXPECT_EQ(content(*files->find("t2")), std::string(25, 'c'));
  EXPECT_EQ(content(*files->find("t4")), "eeee");
}

TEST(SafetensorsWriter, LeavesNothingBehindWithoutFinish) {
  const TestFolder folder;
  {
    auto writer = SafetensorsWriter::create(folder.path(), kMixed);
    ASSERT_TRUE(writer);
    writer->write(0, 0, bytes("abc"));
    EXPECT_EQ(names_in(folder.path()).size(), 1u);
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(SafetensorsWriter, StopEndsTheWriting) {
  const TestFolder folder;
  std::atomic<bool> stop{false};
  {
    auto writer = SafetensorsWriter::create(folder.path(), kMixed, {.stop = &stop});
    ASSERT_TRUE(writer);
    writer->write(0, 0, bytes("ab"));
    stop = true;
    EXPECT_THROW(writer->write(0, 2, bytes("c")), Fault);
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(SafetensorsWriter, RefusesWhatCannotBeWritten) {
  const TestFolder folder;
  const auto error = [](const std::string& directory, std::vector<TensorSpec> specs) {
    const auto writer = SafetensorsWriter::create(directory, std::move(specs));
    return writer ? "" : writer.error().message;
  };
  EXPECT_THAT(error(folder.path(), {{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}),
              HasSubstr("tensor a would be written twice"));
  folder.write("file", "x");
  EXPECT_THAT(error(folder.path() + "/file", kMixed), HasSubstr("cannot create the directory"));
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    const TestFolder taken;
    taken.write(name, "x");
    EXPECT_THAT(error(taken.path(), kMixed), HasSubstr(std::string(name) + " already"));
    EXPECT_EQ(names_in(taken.path()).size(), 1u);
  }
}

TEST(SafetensorsWriter, FullDisksAreRefusedBeforehand) {
  const TestFolder folder;
  const auto writer = SafetensorsWriter::create(
      folder.path(), {{"small", DType::u8, {16}}, {"huge", DType::f32, {int64_t{1} << 40, 1 << 10}}});
  ASSERT_FALSE(writer);
  EXPECT_THAT(writer.error().message, HasSubstr("not enough disk space"));
  EXPECT_THAT(writer.error().message, HasSubstr("too little; the first tensor that does not fit is huge"));
  EXPECT_TRUE(names_in(folder.path()).empty());
  EXPECT_THAT(SafetensorsWriter::create(folder.path(), {{"a", DType::u8, {INT64_MAX}}, {"b", DType::u8, {INT64_MAX}}})
                  .error()
                  .message,
              HasSubstr("tensor b: the checkpoint is too large"));
}

TEST(SafetensorsWriterDeathTest, MissingBytesAreABug) {
  const TestFolder folder;
  auto writer = SafetensorsWriter::create(folder.path(), kMixed);
  ASSERT_TRUE(writer);
  EXPECT_DEATH(writer->finish(), "0 of 9 bytes written");
  EXPECT_DEATH(writer->write(0, 2, bytes("ab")), "tensor 0");
}

}  // namespace
}  // namespace dgem::model
