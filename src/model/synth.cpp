#include "model/synth.h"

#include "base/terminal.h"
#include "model/safetensors_writer.h"
#include "model/synth_random.h"
#include "model/weights_finder.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>

namespace dgem::model {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;
static_assert(kPieceBytes % kDrawAlignment == 0);

// The tensors of a checkpoint and how each is drawn.
class Plan {
 public:
  Plan(const Config& config, SynthFormat format, uint64_t seed) : config_(config), format_(format), seed_(seed) {
    add_shared();
    for (size_t l = 0; l < config.layers.size(); ++l) add_layer(l);
  }

  std::vector<TensorSpec> specs;
  std::vector<Draw> draws;

 private:
  void add(const std::string& name, DType type, std::vector<int64_t> shape, Draw draw) {
    specs.push_back({name, type, std::move(shape)});
    draws.push_back(draw);
  }

  bool wide() const { return format_ == SynthFormat::f32; }
  DType type() const { return wide() ? DType::f32 : DType::bf16; }

  void uniform(const std::string& name, int64_t size, float low, float high) {
    add(name, type(), {size},
        {wide() ? DrawKind::uniform_f32 : DrawKind::uniform_bf16, low, high - low, draw_key(seed_, name)});
  }
  void norm(const std::string& name, int64_t size) { uniform(name, size, 0.4f, 1.7f); }
  // A branch that is small beside the residual stream.
  void branch_norm(const std::string& name) { uniform(name, config_.hidden_size, 0.15f, 0.5f); }

  void normal(const std::string& name, std::vector<int64_t> shape, float deviation) {
    add(name, type(), std::move(shape),
        {wide() ? DrawKind::normal_f32 : DrawKind::normal_bf16, 0.0f, deviation, draw_key(seed_, name)});
  }
  static float by_fan_in(int64_t cols) { return 1.2f / std::sqrt(static_cast<float>(cols)); }
  void linear(const std::string& module, int64_t rows, int64_t cols, float factor = 1.0f) {
    normal(module + ".weight", {rows, cols}, by_fan_in(cols) * factor);
  }

  void nvfp4(const std::string& module, int64_t rows, int64_t cols) {
    const uint64_t key = draw_key(seed_, module);
    add(module + ".weight", DType::u8, {rows, cols / 2}, {DrawKind::nvfp4_codes, 0.0f, 0.0f, key});
    add(module + ".weight_scale", DType::f8_e4m3, {rows, cols / 16}, {DrawKind::nvfp4_scales, 0.0f, 0.0f, key});
    add(module + ".weight_scale_2", DType::f32, {}, {DrawKind::constant_f32, nvfp4_global_scale(by_fan_in(cols)), 0.0f, 0});
  }

  void add_shared() {
    const std::string base(kDecoder);
    const int64_t h = config_.hidden_size, i = config_.intermediate_size;
    linear(base + "embed_tokens", config_.vocab_size, h);
    norm(base + "norm.weight", h);
    norm(base + "self_conditioning.pre_norm.weight", h);
    linear(base + "self_conditioning.gate_proj", i, h);
    linear(base + "self_conditioning.up_proj", i, h);
    linear(base + "self_conditioning.down_proj", h, i, 0.15f);
  }

  void add_layer(size_t index) {
    const std::string name = fmt::format("layers.{}.", index);
    const std::string base = std::string(kDecoder) + name;
    const int64_t h = config_.hidden_size, i = config_.intermediate_size;
    uniform(base + "layer_scalar", 1, 0.7f, 1.1f);
    uniform(std::string(kEncoder) + name + "layer_scalar", 1, 0.7f, 1.1f);
    norm(base + "input_layernorm.weight", h);
    branch_norm(base + "post_attention_layernorm.weight");
    norm(base + "pre_feedforward_layernorm.weight", h);
    norm(base + "pre_feedforward_layernorm_2.weight", h);
    branch_norm(base + "post_feedforward_layernorm.weight");
    norm(base + "post_feedforward_layernorm_1.weight", h);
    norm(base + "post_feedforward_layernorm_2.weight", h);
    add_attention(base + "self_attn.", config_.layers[index]);
    linear(base + "mlp.gate_proj", i, h);
    linear(base + "mlp.up_proj", i, h);
    linear(base + "mlp.down_proj", h, i);
    normal(base + "router.proj.weight", {config_.num_experts, h}, 1.5f);
    uniform(base + "router.scale", h, 0.5f, 1.6f);
    uniform(base + "router.per_expert_scale", config_.num_experts, 0.5f, 1.6f);
    add_experts(base + "experts.");
  }

  void add_attention(const std::string& base, const LayerConfig& sizes) {
    const int64_t h = config_.hidden_size;
    const int64_t q = int64_t{config_.num_attention_heads} * sizes.head_dim, kv = int64_t{sizes.kv_heads} * sizes.head_dim;
    norm(base + "q_norm.weight", sizes.head_dim);
    norm(base + "k_norm.weight", sizes.head_dim);
    linear(base + "q_proj", q, h);
    linear(base + "k_proj", kv, h);
    if (sizes.sliding) linear(base + "v_proj", kv, h);
    linear(base + "o_proj", h, q);
  }

  void add_experts(const std::string& base) {
    const int64_t h = config_.hidden_size, m = config_.moe_intermediate_size, experts = config_.num_experts;
    if (format_ != SynthFormat::nvfp4) {
      normal(base + "gate_up_proj", {experts, 2 * m, h}, by_fan_in(h));
      normal(base + "down_proj", {experts, h, m}, by_fan_in(m));
      return;
    }
    for (int64_t e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}{}.", base, e);
      nvfp4(expert + "gate_proj", m, h);
      nvfp4(expert + "up_proj", m, h);
      nvfp4(expert + "down_proj", h, m);
    }
  }

  const Config& config_;
  const SynthFormat format_;
  const uint64_t seed_;
};

struct Piece {
  size_t tensor = 0;
  int64_t offset = 0, bytes = 0;
};

std::vector<Piece> cut_into_pieces(const std::vector<TensorSpec>& specs) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < specs.size(); ++t) {
    const int64_t bytes = specs[t].bytes();
    for (int64_t at = 0; at < bytes; at += kPieceBytes) pieces.push_back({t, at, std::min(kPieceBytes, bytes - at)});
  }
  return pieces;
}

// Makes all pieces on the pool's threads. The first failure ends the rest and is thrown here.
void write_pieces(const Plan& plan, SafetensorsWriter& writer, const SynthOptions& options, ThreadPool& pool) {
  const std::vector<Piece> pieces = cut_into_pieces(plan.specs);
  std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(pool.size()));
  std::optional<Progress> progress;
  if (options.show_progress)
    progress.emplace("writing weights", static_cast<uint64_t>(writer.total_bytes()), ProgressUnit::kBytes);
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr failure;
  DGEM_CHECK(pieces.size() <= INT32_MAX);
  pool.run(static_cast<int>(pieces.size()), [&](int part, int thread) {
    if (failed.load(std::memory_order_relaxed)) return;
    const Piece& piece = pieces[static_cast<size_t>(part)];
    auto& buffer = buffers[static_cast<size_t>(thread)];
    try {
      buffer.resize(static_cast<size_t>(piece.bytes));
      fill(plan.draws[piece.tensor], piece.offset, buffer);
      writer.write(piece.tensor, piece.offset, buffer);
      if (progress) progress->advance(static_cast<uint64_t>(piece.bytes));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

json::Value generation_config(const Config& config) {
  json::Object root;
  json::Array eos(config.eos_token_ids.begin(), config.eos_token_ids.end());
  root.emplace_back("eos_token_id", std::move(eos));
  root.emplace_back("max_new_tokens", 256);
  root.emplace_back("max_denoising_steps", 48);
  root.emplace_back("t_min", 0.4);
  root.emplace_back("t_max", 0.8);
  root.emplace_back("sampler_config", json::Object{{"_cls_name", "EntropyBoundSamplerConfig"}, {"entropy_bound", 0.1}});
  root.emplace_back("stability_threshold", 1);
  root.emplace_back("confidence_threshold", 0.005);
  root.emplace_back("pad_token_id", config.pad_token_id);
  return root;
}

void write_text(const std::string& directory, const char* name, const std::string& text) {
  const std::string path = (std::filesystem::path(directory) / name).string();
  std::ofstream file(path, std::ios::binary);
  file << text << '\n';
  file.close();
  if (!file) throw Fault("cannot write " + path);
}

}  // namespace

Status synthesize(const json::Value& root, const SynthOptions& options, const std::string& directory, ThreadPool& pool) {
  DGEM_ASSIGN(const json::Value config_json, synth_config(root, options));
  DGEM_ASSIGN(const Config config, parse_config(config_json));
  const Plan plan(config, options.format, options.seed);
  DGEM_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(directory, plan.specs, {.stop = options.stop}));
  write_pieces(plan, writer, options, pool);
  write_text(directory, "config.json", json::write(config_json, 2));
  write_text(directory, "generation_config.json", json::write(generation_config(config), 2));
  writer.finish();
  return {};
}

}  // namespace dgem::model
