// dgem model: what a checkpoint holds.
#include "cli/commands.h"

#include "base/json.h"
#include "base/terminal.h"
#include "model/weights.h"
#include "model/weights_info.h"

#include <memory>
#include <string>
#include <vector>

namespace dgem::cli {
namespace {

constexpr const char* kFooter =
    "Bytes per pass: weights that one forward pass reads, without embedding, head and self-conditioning (which a read in\n"
    "one step does not use). Few rows touch only some of the experts; the numbers assume that the\n"
    "router spreads them evenly.\n"
    "Example:\n"
    "  dgem model info CHECKPOINT --rows 320";

constexpr int64_t kDefaultRows[] = {1, 16, 64, 256};

struct Options {
  std::string directory;
  std::vector<int64_t> rows;
  bool as_json = false;
};

std::string size(int64_t bytes) { return human_size(static_cast<uint64_t>(bytes)); }

std::string count(int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.2f} M", n / 1e6);
  return fmt::format("{:.1f} k", n / 1e3);
}

// "s" for sliding and "F" for full attention, in the order of layers.
std::string kinds(const model::Config& config) {
  std::string text;
  for (const model::LayerConfig& layer : config.layers) text += layer.sliding ? 's' : 'F';
  return text;
}

std::string id_text(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return text;
}

std::string or_none(const std::string& text) { return text.empty() ? "not given" : text; }

// The heads of the first layer of a kind: "8 key-value heads of 256".
std::string heads_of(const model::Config& config, bool sliding) {
  for (const model::LayerConfig& layer : config.layers) {
    if (layer.sliding == sliding) return fmt::format("{} key-value heads of {}", layer.kv_heads, layer.head_dim);
  }
  return "none";
}

void print_text(const model::Checkpoint& checkpoint, const model::CheckpointInfo& info, const std::vector<int64_t>& rows) {
  const model::Config& c = checkpoint.config;
  const auto line = [](const char* name, const std::string& value) { fmt::print("{:<18} {}\n", name, value); };
  line("checkpoint", checkpoint.directory);
  line("layers", fmt::format("{}: {} (s sliding, F full attention)", c.num_layers(), kinds(c)));
  line("sizes", fmt::format("hidden {}, dense MLP {}, vocabulary {}", c.hidden_size, c.intermediate_size, c.vocab_size));
  line("sliding layers", fmt::format("{} heads, {}, window {}", c.num_attention_heads, heads_of(c, true), c.sliding_window));
  line("full layers", fmt::format("{} heads, {}", c.num_attention_heads, heads_of(c, false)));
  line("experts", fmt::format("{} of {}, {} at a time", c.num_experts, c.moe_intermediate_size, c.top_k_experts));
  line("positions", fmt::format("{}, canvas {}", c.max_position_embeddings, c.canvas_length));
  line("end tokens", id_text(c.eos_token_ids));
  line("vision",
       c.has_vision ? (info.vision_parameters > 0 ? count(info.vision_parameters) + " parameters" : "configured, no weights")
                    : "none");
  line("quantization", or_none(c.quant_method));
  line("prompt version", or_none(c.prompt_version));
  line("parameters", fmt::format("{} text, {} active per token with the head", count(info.parameters), count(info.active)));
  line("files", fmt::format("{} in {} tensors", size(info.file_bytes), checkpoint.files.tensors().size()));

  fmt::print("\n{:<20} {:<14} {:>8} {:>12} {:>12} {:>10}\n", "role", "format", "modules", "parameters", "active", "bytes");
  for (const model::RoleInfo& role : info.roles) {
    fmt::print("{:<20} {:<14} {:>8} {:>12} {:>12} {:>10}\n", role.role, role.formats, role.modules, count(role.parameters),
               count(role.active), size(role.bytes));
  }
  fmt::print("\nbytes per pass\n");
  for (const int64_t n : rows) {
    fmt::print("{:>6} rows  {:>9}  {:.1f} % of the experts\n", n, size(model::bytes_per_pass(c, info, n)),
               100.0 * model::expected_expert_share(c, n));
  }
}

json::Value layers_json(const model::Config& config) {
  json::Array layers;
  for (const model::LayerConfig& layer : config.layers) {
    json::Object object;
    object.emplace_back("kind", layer.sliding ? "sliding_attention" : "full_attention");
    object.emplace_back("head_dim", layer.head_dim);
    object.emplace_back("key_value_heads", layer.kv_heads);
    layers.emplace_back(std::move(object));
  }
  return layers;
}

json::Value roles_json(const model::CheckpointInfo& info) {
  json::Array roles;
  for (const model::RoleInfo& role : info.roles) {
    json::Object object;
    object.emplace_back("role", role.role);
    object.emplace_back("formats", role.formats);
    object.emplace_back("modules", role.modules);
    object.emplace_back("parameters", role.parameters);
    object.emplace_back("active_parameters", role.active);
    object.emplace_back("bytes", role.bytes);
    roles.emplace_back(std::move(object));
  }
  return roles;
}

void print_json(const model::Checkpoint& checkpoint, const model::CheckpointInfo& info, const std::vector<int64_t>& rows) {
  const model::Config& c = checkpoint.config;
  json::Array passes;
  for (const int64_t n : rows) {
    json::Object pass;
    pass.emplace_back("rows", n);
    pass.emplace_back("bytes", model::bytes_per_pass(c, info, n));
    pass.emplace_back("expert_share", model::expected_expert_share(c, n));
    passes.emplace_back(std::move(pass));
  }
  json::Object root;
  root.emplace_back("directory", checkpoint.directory);
  root.emplace_back("vocab_size", c.vocab_size);
  root.emplace_back("hidden_size", c.hidden_size);
  root.emplace_back("intermediate_size", c.intermediate_size);
  root.emplace_back("attention_heads", c.num_attention_heads);
  root.emplace_back("experts", c.num_experts);
  root.emplace_back("experts_per_token", c.top_k_experts);
  root.emplace_back("expert_size", c.moe_intermediate_size);
  root.emplace_back("sliding_window", c.sliding_window);
  root.emplace_back("max_positions", c.max_position_embeddings);
  root.emplace_back("canvas_length", c.canvas_length);
  root.emplace_back("eos_token_ids", json::Array(c.eos_token_ids.begin(), c.eos_token_ids.end()));
  root.emplace_back("layers", layers_json(c));
  root.emplace_back("vision_parameters", info.vision_parameters);
  root.emplace_back("quant_method", c.quant_method);
  root.emplace_back("prompt_version", c.prompt_version);
  root.emplace_back("parameters", info.parameters);
  root.emplace_back("active_parameters", info.active);
  root.emplace_back("tensors", static_cast<int64_t>(checkpoint.files.tensors().size()));
  root.emplace_back("file_bytes", info.file_bytes);
  root.emplace_back("text_bytes", info.text_bytes);
  root.emplace_back("other_bytes", info.other_bytes);
  root.emplace_back("roles", roles_json(info));
  root.emplace_back("bytes_per_pass", std::move(passes));
  fmt::print("{}\n", json::write(std::move(root), 2));
}

void run(const Options& options) {
  const auto checkpoint = model::load_checkpoint(options.directory);
  if (!checkpoint) throw Exit(2, checkpoint.error().message);
  const model::CheckpointInfo info = model::describe(*checkpoint);
  const std::vector<int64_t> rows =
      options.rows.empty() ? std::vector<int64_t>(std::begin(kDefaultRows), std::end(kDefaultRows)) : options.rows;
  options.as_json ? print_json(*checkpoint, info, rows) : print_text(*checkpoint, info, rows);
}

}  // namespace

void add_model(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* model = app.add_subcommand("model", "Look at checkpoints");
  model->require_subcommand(1);
  CLI::App* info = model->add_subcommand("info", "Sizes, formats and bytes of a checkpoint");
  info->footer(kFooter);
  info->add_option("DIR", options->directory, "Checkpoint directory")->required();
  info->add_option("--rows", options->rows, "Rows of a pass, to tell the bytes that it reads (may be repeated)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  info->add_flag("--json", options->as_json, "Print as JSON");
  info->callback([options] { run(*options); });
}

}  // namespace dgem::cli
