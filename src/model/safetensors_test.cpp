#include "model/safetensors.h"

#include "base/json.h"
#include "model/test_checkpoint.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace dgem::model {
namespace {

using ::testing::HasSubstr;

std::string file_of(const std::string& header, size_t data_bytes, uint64_t claimed) {
  std::string file(reinterpret_cast<const char*>(&claimed), sizeof(claimed));
  return file + header + std::string(data_bytes, '\0');
}
std::string file_of(const std::string& header, size_t data_bytes) { return file_of(header, data_bytes, header.size()); }

std::string error_of(const std::string& file) {
  const auto header = parse_safetensors(std::as_bytes(std::span(file)));
  return header ? "" : header.error().message;
}
std::string error_of(const std::string& header, size_t data_bytes) { return error_of(file_of(header, data_bytes)); }

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string file =
      file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
              R"("a":{"dtype":"U8","shape":[],"data_offsets":[24,25]},)"
              R"("none":{"dtype":"BF16","shape":[0,7],"data_offsets":[24,24]}}   )",
              25);
  const auto header = parse_safetensors(std::as_bytes(std::span(file)));
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "b");
  EXPECT_EQ(header->tensors[0].shape_text(), "[2, 3]");
  EXPECT_EQ(header->tensors[0].elements(), 6);
  EXPECT_EQ(header->tensors[1].bytes, 1u);
  EXPECT_EQ(reinterpret_cast<const char*>(header->tensors[1].data), file.data() + file.size() - 1);
  EXPECT_EQ(header->tensors[2].bytes, 0u);
  EXPECT_EQ(header->metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
}

TEST(Safetensors, RefusesBrokenHeaders) {
  EXPECT_THAT(error_of(std::string("abc")), HasSubstr("only 3 bytes"));
  EXPECT_THAT(error_of(file_of("{}", 0, 100)), HasSubstr("cut off: expected 100 bytes, found 2"));
  EXPECT_THAT(error_of(file_of("{}", 0, 100'000'000)), HasSubstr("would take 100000000 bytes"));
  EXPECT_THAT(error_of(file_of("{}", 0, UINT64_MAX)), HasSubstr("at most"));
  EXPECT_THAT(error_of("{\"a\":", 0), HasSubstr("no valid JSON"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("expected the header to be an object, found a list"));
  EXPECT_THAT(error_of(R"({"a":1})", 0), HasSubstr("tensor a: expected an object, found a number"));
  EXPECT_THAT(error_of(R"({"a":{},"a":{}})", 0), HasSubstr("no valid JSON"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"x":1}})", 0), HasSubstr("to be strings"));
  EXPECT_THAT(error_of(R"({"__metadata__":[]})", 0), HasSubstr("found a list"));
}

TEST(Safetensors, RefusesWrongTypesAndShapes) {
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F33","shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("tensor a: unknown dtype \"F33\""));
  EXPECT_THAT(error_of(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4), HasSubstr("\"dtype\" to be a string"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1), HasSubstr("found -1"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1), HasSubstr("found 1.5"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1),
              HasSubstr("63 bits"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":3,"data_offsets":[0,1]}})", 1), HasSubstr("list of sizes"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1),
              HasSubstr("at most 8 dimensions"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("F32 [2] takes 8 bytes, but its data offsets hold 4"));
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0]}})", 0),
              HasSubstr("too large"));
  // A size of zero does not hide the overflow of the others.
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[9223372036854775807,2,0],"data_offsets":[0,0]}})", 0),
              HasSubstr("too large"));
}

TEST(Safetensors, RefusesBadOffsets) {
  const auto two = [](const char* a, const char* b) {
    return fmt::format(
        R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})", a,
        b);
  };
  EXPECT_EQ(error_of(two("[4,8]", "[0,4]"), 8), "");
  EXPECT_THAT(error_of(two("[0,4]", "[5,9]"), 8),
              HasSubstr("tensor b: its data lies at [5, 9), outside the file's 8 bytes"));
  EXPECT_THAT(error_of(two("[0,4]", "[-4,0]"), 8), HasSubstr("tensor b"));
  EXPECT_THAT(error_of(two("[0,4]", "[8,4]"), 8), HasSubstr("tensor b"));
  EXPECT_THAT(error_of(two("[0,4]", "[2,6]"), 8), HasSubstr("tensor b: its data begins at 2, inside another tensor's"));
  EXPECT_THAT(error_of(two("[0,4]", "[5,9]"), 9), HasSubstr("tensor b: its data begins at 5, 1 bytes after"));
  EXPECT_THAT(error_of(two("[0,4]", "[4,8]"), 9), HasSubstr("9 bytes of data, but its tensors end at 8"));
  EXPECT_THAT(error_of(two("[0,4]", "[4]"), 8), HasSubstr("[begin, end]"));
  EXPECT_THAT(error_of(two("[0,4]", "[4,9223372036854775808]"), 8), HasSubstr("[begin, end]"));
}

TEST(Safetensors, LongNamesAreCutInMessages) {
  const std::string error =
      error_of("{\"" + std::string(5000, 'n') + R"(":{"dtype":"?","shape":[],"data_offsets":[0,0]}})", 0);
  EXPECT_LT(error.size(), 300u);
  EXPECT_THAT(error, HasSubstr("nnn...: unknown dtype"));
}

std::string one_tensor(const std::string& name) {
  return file_of(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})", name), 1);
}

std::string open_error(const TestFolder& folder) {
  const auto files = TensorFiles::open(folder.path());
  return files ? "" : files.error().message;
}

TEST(TensorFiles, ReadsShardsByTheirIndex) {
  const TestFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  folder.write("two.safetensors", one_tensor("b"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto files = TensorFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->tensors().size(), 2u);
  ASSERT_NE(files->find("b"), nullptr);
  EXPECT_EQ(files->find("c"), nullptr);
  EXPECT_EQ(files->mapped_bytes(), 2 * one_tensor("a").size());
}

TEST(TensorFiles, SaysWhichShardOrTensorIsMissing) {
  const TestFolder folder;
  EXPECT_THAT(open_error(folder), HasSubstr("expected model.safetensors or model.safetensors.index.json"));
  folder.write("one.safetensors", one_tensor("a"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(open_error(folder), HasSubstr("two.safetensors: missing; the index says that it holds tensor b"));
  folder.write("two.safetensors", one_tensor("c"));
  EXPECT_THAT(open_error(folder), HasSubstr("two.safetensors: tensor b is missing"));
  folder.write("two.safetensors", one_tensor("a"));
  EXPECT_THAT(open_error(folder), HasSubstr("tensor a is also in another file"));
  folder.write("two.safetensors", one_tensor("b").substr(0, 30));
  EXPECT_THAT(open_error(folder), HasSubstr("two.safetensors: the header is cut off"));
}

TEST(TensorFiles, RefusesIndexesThatLeaveTheDirectory) {
  for (const char* file : {"../one.safetensors", "/etc/passwd", "..", "", "a\\\\b", "x\\u0000"}) {
    const TestFolder folder;
    folder.write("model.safetensors.index.json", fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", file));
    EXPECT_THAT(open_error(folder), HasSubstr("expected the name of a file in the same directory")) << file;
  }
  const TestFolder folder;
  folder.write("model.safetensors.index.json", R"({"weight_map":[]})");
  EXPECT_THAT(open_error(folder), HasSubstr("expected an object of tensor -> file name"));
}

}  // namespace
}  // namespace dgem::model
