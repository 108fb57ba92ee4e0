#include "model/safetensors_writer.h"

#include "base/json.h"
#include "base/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>

namespace dgem::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeaderAlignment = 8;

std::string size_text(int64_t bytes) { return human_size(static_cast<uint64_t>(bytes)); }

[[noreturn]] void throw_fault(const std::string& doing, const std::string& path) {
  throw Fault(fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

void write_at(int file, const std::string& path, std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_fault("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

// A file under a temporary name, removed unless it is given its own.
class PartialFile {
 public:
  PartialFile() = default;
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (file_ >= 0) ::close(file_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  // Takes up its whole size on disk at once, so that a full disk shows here.
  Status create(const std::string& path, int64_t bytes) {
    path_ = path;
    const std::string temporary = path + ".partial";
    file_ = ::open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (file_ < 0) return make_error("cannot write {}: {}", temporary, std::strerror(errno));
    temporary_ = temporary;
    if (bytes > 0 && ::fallocate(file_, 0, 0, bytes) != 0 && errno == ENOSPC) {
      return make_error("cannot write {}: not enough space for its {}", temporary, size_text(bytes));
    }
    return {};
  }

  void write(std::span<const std::byte> bytes, int64_t offset) const { write_at(file_, temporary_, bytes, offset); }

  void close() {
    const int file = std::exchange(file_, -1);
    if (::close(file) != 0) throw_fault("write", temporary_);
  }

  void rename() {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_fault("rename", temporary_);
    temporary_.clear();
  }

 private:
  std::string path_, temporary_;
  int file_ = -1;
};

// Where a tensor goes.
struct Place {
  size_t shard = 0;
  int64_t offset = 0;  // within the file
};

// Consecutive tensors share a file while they fit.
std::vector<std::vector<size_t>> cut_into_shards(const std::vector<TensorSpec>& tensors, int64_t max_bytes) {
  std::vector<std::vector<size_t>> shards(1);
  int64_t used = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!shards.back().empty() && used + tensors[i].bytes() > max_bytes) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(i);
    used += tensors[i].bytes();
  }
  return shards;
}

// The header of one file; sets the places of its tensors. Data is ordered by falling element size, which aligns every
// tensor without gaps (the format allows none).
std::string make_header(const std::vector<TensorSpec>& tensors, std::vector<size_t>& shard, const WriterOptions& options,
                        std::vector<Place>& places) {
  std::stable_sort(shard.begin(), shard.end(),
                   [&](size_t a, size_t b) { return bytes_of(tensors[a].type) > bytes_of(tensors[b].type); });
  json::Object header, metadata;
  for (const auto& [key, value] : options.metadata) metadata.emplace_back(key, value);
  header.emplace_back("__metadata__", std::move(metadata));
  int64_t offset = 0;
  for (const size_t i : shard) {
    const TensorSpec& tensor = tensors[i];
    places[i].offset = offset;
    offset += tensor.bytes();
    json::Object entry;
    entry.emplace_back("dtype", name_of(tensor.type));
    entry.emplace_back("shape", json::Array(tensor.shape.begin(), tensor.shape.end()));
    entry.emplace_back("data_offsets", json::Array{places[i].offset, offset});
    header.emplace_back(tensor.name, std::move(entry));
  }
  std::string text = json::write(std::move(header));
  text.append(static_cast<size_t>(-static_cast<int64_t>(text.size()) & (kHeaderAlignment - 1)), ' ');
  const uint64_t size = text.size();
  text.insert(0, reinterpret_cast<const char*>(&size), sizeof(size));
  for (const size_t i : shard) places[i].offset += static_cast<int64_t>(text.size());
  return text;
}

Status check_names(const std::vector<TensorSpec>& tensors) {
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) return make_error("tensor {} would be written twice", tensor.name);
  }
  return {};
}

// Names the first tensor that would not fit, and what is missing.
Status check_space(const std::string& directory, const std::vector<TensorSpec>& tensors) {
  std::error_code code;
  const fs::space_info space = fs::space(directory, code);
  if (code) return make_error("cannot write to {}: {}", directory, code.message());
  const auto free = static_cast<int64_t>(std::min<uintmax_t>(space.available, std::numeric_limits<int64_t>::max()));
  int64_t needed = 0;
  const TensorSpec* first = nullptr;
  for (const TensorSpec& tensor : tensors) {
    if (__builtin_add_overflow(needed, tensor.bytes(), &needed))
      return make_error("tensor {}: the checkpoint is too large", tensor.name);
    if (needed > free && first == nullptr) first = &tensor;
  }
  if (first == nullptr) return {};
  return make_error(
      "not enough disk space at {}: expected {}, found {} free, {} too little; the first tensor that does not fit is {}",
      directory, size_text(needed), size_text(free), size_text(needed - free), first->name);
}

Status check_free_of_models(const std::string& directory) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"))) {
      return make_error("{} holds {} already; remove it or choose another directory", directory, name);
    }
  }
  if (code) return make_error("cannot read {}: {}", directory, code.message());
  return {};
}

std::string shard_name(size_t shard, size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

}  // namespace

int64_t TensorSpec::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), static_cast<int64_t>(bytes_of(type)), std::multiplies<>());
}

struct SafetensorsWriter::State {
  std::string directory;
  std::vector<TensorSpec> tensors;
  WriterOptions options;
  std::vector<Place> places;
  std::vector<std::unique_ptr<PartialFile>> files;
  int64_t total = 0;
  std::atomic<int64_t> written{0};

  void write_index() const;
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

const std::vector<TensorSpec>& SafetensorsWriter::tensors() const { return state_->tensors; }
int64_t SafetensorsWriter::total_bytes() const { return state_->total; }

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& directory, std::vector<TensorSpec> tensors,
                                                    WriterOptions options) {
  DGEM_RETURN_IF_ERROR(check_names(tensors));
  std::error_code code;
  fs::create_directories(directory, code);
  if (!fs::is_directory(directory)) return make_error("cannot create the directory {}: {}", directory, code.message());
  DGEM_RETURN_IF_ERROR(check_free_of_models(directory));
  DGEM_RETURN_IF_ERROR(check_space(directory, tensors));

  auto state = std::make_unique<State>();
  state->directory = directory;
  state->tensors = std::move(tensors);
  state->options = std::move(options);
  state->places.resize(state->tensors.size());
  auto shards = cut_into_shards(state->tensors, state->options.max_shard_bytes);
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string header = make_header(state->tensors, shards[s], state->options, state->places);
    auto size = static_cast<int64_t>(header.size());
    for (const size_t i : shards[s]) {
      state->places[i].shard = s;
      size += state->tensors[i].bytes();
    }
    auto file = std::make_unique<PartialFile>();
    DGEM_RETURN_IF_ERROR(file->create((fs::path(directory) / shard_name(s, shards.size())).string(), size));
    file->write(std::as_bytes(std::span(header)), 0);
    state->total += size - static_cast<int64_t>(header.size());
    state->files.push_back(std::move(file));
  }
  return SafetensorsWriter(std::move(state));
}

void SafetensorsWriter::write(size_t tensor, int64_t offset, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  DGEM_CHECK(tensor < state_->tensors.size() && offset >= 0 && offset + size <= state_->tensors[tensor].bytes(),
             "[{}, {}) of tensor {}", offset, offset + size, tensor);
  if (state_->options.stop != nullptr && state_->options.stop->load(std::memory_order_relaxed)) throw Fault("stopped");
  const Place& place = state_->places[tensor];
  state_->files[place.shard]->write(bytes, place.offset + offset);
  state_->written.fetch_add(size, std::memory_order_relaxed);
}

void SafetensorsWriter::finish() {
  DGEM_CHECK(state_->written == state_->total, "{} of {} bytes written", state_->written.load(), state_->total);
  // The index comes last: without it several files are no checkpoint yet.
  for (const auto& file : state_->files) file->close();
  for (const auto& file : state_->files) file->rename();
  if (state_->files.size() > 1) state_->write_index();
}

void SafetensorsWriter::State::write_index() const {
  json::Object map;
  map.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) map.emplace_back(tensors[i].name, shard_name(places[i].shard, files.size()));
  json::Object index;
  index.emplace_back("metadata", json::Object{{"total_size", total}});
  index.emplace_back("weight_map", std::move(map));
  const std::string text = json::write(std::move(index), 2) + "\n";
  PartialFile file;
  if (auto made = file.create((fs::path(directory) / "model.safetensors.index.json").string(), 0); !made) {
    throw Fault(made.error().message);
  }
  file.write(std::as_bytes(std::span(text)), 0);
  file.close();
  file.rename();
}

}  // namespace dgem::model
