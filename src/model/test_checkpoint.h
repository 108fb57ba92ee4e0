// Small checkpoints for tests, whose tensors can be changed one by one.
#pragma once

#include "base/test_files.h"
#include "base/thread_pool.h"
#include "model/safetensors_writer.h"
#include "model/synth.h"
#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace dgem::model {

inline constexpr const char* kTinyConfig = R"({
  "model_type": "diffusion_gemma", "canvas_length": 16,
  "text_config": {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "num_global_key_value_heads": 1,
    "sliding_window": 8, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32,
    "max_position_embeddings": 128,
    "rope_parameters": {
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
      "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}}})";

inline json::Value parse_json(std::string_view text) {
  auto value = json::parse(text);
  if (!value) ADD_FAILURE() << value.error().message;
  return value ? *value : json::Value();
}

// A checkpoint in a folder of its own.
class TinyCheckpoint {
 public:
  explicit TinyCheckpoint(SynthFormat format = SynthFormat::f32, uint64_t seed = 1,
                          const std::string& config = kTinyConfig) {
    ThreadPool pool(1);
    const std::string made = folder_.path() + "/made";
    const auto status = synthesize(parse_json(config), {.format = format, .seed = seed}, made, pool);
    if (!status) ADD_FAILURE() << status.error().message;
    std::filesystem::create_directory(directory());
    std::filesystem::copy_file(made + "/config.json", directory() + "/config.json");
    const auto files = TensorFiles::open(made);
    if (!files) ADD_FAILURE() << files.error().message;
    for (const auto& [name, tensor] : files->tensors()) {
      tensors_[name] = {{name, tensor.type, tensor.shape},
                        std::string(reinterpret_cast<const char*>(tensor.data), tensor.bytes)};
    }
  }

  std::string directory() const { return folder_.path() + "/checkpoint"; }

  struct Raw {
    TensorSpec spec;
    std::string bytes;
  };
  std::map<std::string, Raw>& tensors() { return tensors_; }
  void put(const std::string& name, DType type, std::vector<int64_t> shape, std::string bytes) {
    tensors_[name] = {{name, type, std::move(shape)}, std::move(bytes)};
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = tensors_.extract(from);
    ASSERT_FALSE(node.empty()) << from;
    node.key() = to;
    node.mapped().spec.name = to;
    tensors_.insert(std::move(node));
  }

  // Writes the tensors as they are now.
  void save(int64_t max_shard_bytes = int64_t{1} << 40) {
    std::vector<TensorSpec> specs;
    for (const auto& [name, raw] : tensors_) specs.push_back(raw.spec);
    auto writer = SafetensorsWriter::create(directory(), specs, {.max_shard_bytes = max_shard_bytes});
    ASSERT_TRUE(writer) << writer.error().message;
    size_t i = 0;
    for (const auto& [name, raw] : tensors_) writer->write(i++, 0, std::as_bytes(std::span(raw.bytes)));
    writer->finish();
  }

  // Saves and loads; the error's message, or "" if it loads.
  std::string load_error() {
    save();
    const auto checkpoint = load_checkpoint(directory());
    return checkpoint ? "" : checkpoint.error().message;
  }

 private:
  TestFolder folder_;
  std::map<std::string, Raw> tensors_;
};

inline std::string bytes_of_float(float value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); }

}  // namespace dgem::model
