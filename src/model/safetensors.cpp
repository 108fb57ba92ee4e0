#include "model/safetensors.h"

#include "base/json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>

namespace dgem::model {
namespace {

struct DTypeRow {
  DType type;
  const char* name;
  size_t bytes;
};

constexpr std::array<DTypeRow, 15> kDTypes = {{{DType::f64, "F64", 8},
                                               {DType::f32, "F32", 4},
                                               {DType::f16, "F16", 2},
                                               {DType::bf16, "BF16", 2},
                                               {DType::f8_e4m3, "F8_E4M3", 1},
                                               {DType::f8_e5m2, "F8_E5M2", 1},
                                               {DType::i64, "I64", 8},
                                               {DType::i32, "I32", 4},
                                               {DType::i16, "I16", 2},
                                               {DType::i8, "I8", 1},
                                               {DType::u64, "U64", 8},
                                               {DType::u32, "U32", 4},
                                               {DType::u16, "U16", 2},
                                               {DType::u8, "U8", 1},
                                               {DType::boolean, "BOOL", 1}}};

constexpr size_t kMaxRank = 8;

// Where a tensor lies in the data part, to find overlaps and gaps.
struct Extent {
  int64_t begin = 0, end = 0;
  size_t tensor = 0;
};

Error tensor_error(std::string_view name, const std::string& what) {
  // Names come from the file: a very long one would bury the message.
  constexpr size_t kShown = 200;
  const std::string_view shown = name.substr(0, kShown);
  return make_error("tensor {}{}: {}", shown, name.size() > kShown ? "..." : "", what);
}

Result<DType> parse_dtype(const std::string& name, const json::Value* value) {
  if (value == nullptr || !value->is_string()) return tensor_error(name, "expected \"dtype\" to be a string");
  for (const DTypeRow& row : kDTypes) {
    if (value->string() == row.name) return row.type;
  }
  return tensor_error(name, fmt::format("unknown dtype \"{}\"", value->string().substr(0, 40)));
}

Result<std::vector<int64_t>> parse_shape(const std::string& name, const json::Value* value) {
  if (value == nullptr || !value->is_array()) return tensor_error(name, "expected \"shape\" to be a list of sizes");
  if (value->array().size() > kMaxRank) {
    return tensor_error(name, fmt::format("expected at most {} dimensions, found {}", kMaxRank, value->array().size()));
  }
  std::vector<int64_t> shape;
  for (const json::Value& size : value->array()) {
    if (!size.is_integer() || size.integer() < 0) {
      return tensor_error(name, fmt::format("expected sizes of at least 0 that fit in 63 bits in its shape, found {}",
                                            json::write(size).substr(0, 40)));
    }
    shape.push_back(size.integer());
  }
  return shape;
}

// Bytes of a shape. Sizes of 0 do not excuse an overflow of the others, so that any order of multiplying is safe.
Result<int64_t> count_bytes(const Tensor& tensor) {
  int64_t bytes = static_cast<int64_t>(bytes_of(tensor.type));
  bool empty = false;
  for (const int64_t size : tensor.shape) {
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return tensor_error(tensor.name, fmt::format("its shape {} is too large", tensor.shape_text()));
    }
  }
  return empty ? 0 : bytes;
}

Result<Extent> parse_extent(const Tensor& tensor, const json::Value* value, int64_t data_bytes) {
  if (value == nullptr || !value->is_array() || value->array().size() != 2 || !value->array()[0].is_integer() ||
      !value->array()[1].is_integer()) {
    return tensor_error(tensor.name, "expected \"data_offsets\" to be [begin, end]");
  }
  const Extent extent{value->array()[0].integer(), value->array()[1].integer(), 0};
  if (extent.begin < 0 || extent.end < extent.begin || extent.end > data_bytes) {
    return tensor_error(tensor.name,
                        fmt::format("its data lies at [{}, {}), outside the file's {} bytes of data; the file is "
                                    "damaged or was cut off",
                                    extent.begin, extent.end, data_bytes));
  }
  DGEM_ASSIGN(const int64_t expected, count_bytes(tensor));
  if (extent.end - extent.begin != expected) {
    return tensor_error(tensor.name, fmt::format("{} {} takes {} bytes, but its data offsets hold {}", name_of(tensor.type),
                                                 tensor.shape_text(), expected, extent.end - extent.begin));
  }
  return extent;
}

Status parse_metadata(const json::Value& value, Header& header) {
  if (!value.is_object()) return make_error("expected \"__metadata__\" to be an object, found {}", value.kind());
  for (const auto& [key, text] : value.object()) {
    if (!text.is_string()) return make_error("expected the entries of \"__metadata__\" to be strings");
    header.metadata.emplace_back(key, text.string());
  }
  return {};
}

// Every byte of the data part must belong to exactly one tensor.
Status check_cover(std::vector<Extent>& extents, const Header& header, int64_t data_bytes) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  int64_t end = 0;
  for (const Extent& extent : extents) {
    const std::string& name = header.tensors[extent.tensor].name;
    if (extent.begin < end) {
      return tensor_error(
          name, fmt::format("its data begins at {}, inside another tensor's (which ends at {})", extent.begin, end));
    }
    if (extent.begin > end) {
      return tensor_error(name, fmt::format("its data begins at {}, {} bytes after the tensor before it ends", extent.begin,
                                            extent.begin - end));
    }
    end = extent.end;
  }
  if (end != data_bytes) return make_error("the file has {} bytes of data, but its tensors end at {}", data_bytes, end);
  return {};
}

Error in_file(const std::string& path, Error error) { return {path + ": " + error.message, std::move(error.pointer)}; }

// File names in an index are untrusted: a shard lies beside its index.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

}  // namespace

const char* name_of(DType type) { return kDTypes[static_cast<size_t>(type)].name; }
size_t bytes_of(DType type) { return kDTypes[static_cast<size_t>(type)].bytes; }

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

Result<Header> parse_safetensors(std::span<const std::byte> file) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) return make_error("no safetensors file: it has only {} bytes", file.size());
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes) {
    return make_error("no safetensors file: its header would take {} bytes; at most {} are read", header_bytes,
                      kMaxHeaderBytes);
  }
  const std::span<const std::byte> rest = file.subspan(sizeof(header_bytes));
  if (header_bytes > rest.size()) {
    return make_error("the header is cut off: expected {} bytes, found {}; download the file again", header_bytes,
                      rest.size());
  }
  const std::span<const std::byte> data = rest.subspan(header_bytes);
  const auto data_bytes = static_cast<int64_t>(data.size());

  auto parsed =
      json::parse({reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(header_bytes)}, {.max_depth = 8});
  if (!parsed) return make_error("the header is no valid JSON: {}", parsed.error().message);
  if (!parsed->is_object()) return make_error("expected the header to be an object, found {}", parsed->kind());

  Header header;
  header.tensors.reserve(parsed->object().size());
  std::vector<Extent> extents;
  extents.reserve(parsed->object().size());
  for (auto& [name, entry] : parsed->object()) {
    if (name == "__metadata__") {
      DGEM_RETURN_IF_ERROR(parse_metadata(entry, header));
      continue;
    }
    if (!entry.is_object()) return tensor_error(name, fmt::format("expected an object, found {}", entry.kind()));
    Tensor tensor;
    tensor.name = name;
    DGEM_ASSIGN(tensor.type, parse_dtype(name, entry.find("dtype")));
    DGEM_ASSIGN(tensor.shape, parse_shape(name, entry.find("shape")));
    DGEM_ASSIGN(Extent extent, parse_extent(tensor, entry.find("data_offsets"), data_bytes));
    extent.tensor = header.tensors.size();
    extents.push_back(extent);
    tensor.data = data.data() + extent.begin;
    tensor.bytes = static_cast<size_t>(extent.end - extent.begin);
    header.tensors.push_back(std::move(tensor));
  }
  DGEM_RETURN_IF_ERROR(check_cover(extents, header, data_bytes));
  return header;
}

Result<TensorFiles> TensorFiles::open_file(const std::string& path) {
  TensorFiles all;
  DGEM_RETURN_IF_ERROR(all.add(path));
  return all;
}

Result<TensorFiles> TensorFiles::open(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path root(directory);
  if (!fs::is_directory(root, ignored)) return make_error("{}: expected a checkpoint directory", directory);
  if (fs::exists(root / kSingleName, ignored)) return open_file((root / kSingleName).string());
  const std::string index_path = (root / kIndexName).string();
  if (!fs::exists(index_path, ignored)) {
    return make_error("{}: expected {} or {} in it, found neither", directory, kSingleName, kIndexName);
  }
  DGEM_ASSIGN(const json::Value index, json::parse_file(index_path));
  const json::Value* map = index.find("weight_map");
  if (map == nullptr || !map->is_object())
    return Error{index_path + ": expected an object of tensor -> file name", "/weight_map"};

  TensorFiles all;
  std::set<std::string, std::less<>> opened;
  for (const auto& [name, file] : map->object()) {
    if (!file.is_string() || !is_plain_file_name(file.string())) {
      return Error{index_path + ": expected the name of a file in the same directory",
                   "/weight_map/" + json::pointer_token(name)};
    }
    if (opened.insert(file.string()).second) {
      const std::string path = (root / file.string()).string();
      if (!fs::exists(path, ignored)) {
        return make_error("{}: missing; the index says that it holds tensor {}. Download it again", path, name);
      }
      DGEM_RETURN_IF_ERROR(all.add(path));
    }
    if (all.find(name) == nullptr) {
      return make_error("{}: tensor {} is missing; the index says that it is there", (root / file.string()).string(), name);
    }
  }
  return all;
}

Status TensorFiles::add(const std::string& path) {
  DGEM_ASSIGN(MappedFile file, MappedFile::open(path));
  auto parsed = parse_safetensors(file.bytes());
  if (!parsed) return in_file(path, std::move(parsed).error());
  for (Tensor& tensor : parsed->tensors) {
    std::string name = tensor.name;
    const auto [it, added] = tensors_.try_emplace(std::move(name), std::move(tensor));
    if (!added) return make_error("{}: tensor {} is also in another file of this checkpoint", path, it->first);
  }
  std::move(parsed->metadata.begin(), parsed->metadata.end(), std::back_inserter(metadata_));
  files_.push_back(std::move(file));
  return {};
}

const Tensor* TensorFiles::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

size_t TensorFiles::mapped_bytes() const {
  size_t bytes = 0;
  for (const MappedFile& file : files_) bytes += file.bytes().size();
  return bytes;
}

void TensorFiles::will_need() const {
  for (const MappedFile& file : files_) file.will_need();
}

}  // namespace dgem::model
