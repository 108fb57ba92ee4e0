// Any JSON as config.json and as generation_config.json: an error, or a configuration whose sizes hold together.
#include "model/config.h"

namespace {

void check(const dgem::model::Config& config) {
  DGEM_CHECK(config.num_layers() >= 1);
  DGEM_CHECK(config.top_k_experts >= 1 && config.top_k_experts <= config.num_experts);
  DGEM_CHECK(config.vocab_size * config.hidden_size <= int64_t{1} << 40);
  DGEM_CHECK(config.bos_token_id < config.vocab_size && config.pad_token_id < config.vocab_size);
  DGEM_CHECK(!config.eos_token_ids.empty());
  for (const auto& layer : config.layers) {
    DGEM_CHECK(layer.kv_heads >= 1 && config.num_attention_heads % layer.kv_heads == 0);
    DGEM_CHECK(layer.head_dim >= 2 && layer.head_dim % 2 == 0);
    const int angles = (layer.sliding ? config.sliding_rope : config.full_rope).angles(layer.head_dim);
    DGEM_CHECK(angles >= 0 && angles <= layer.head_dim / 2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto root = dgem::json::parse({reinterpret_cast<const char*>(data), size});
  if (!root) return 0;
  const auto config = dgem::model::parse_config(*root);
  if (config) {
    check(*config);
  } else {
    DGEM_CHECK(!config.error().message.empty());
  }
  const auto generation = dgem::model::parse_generation_config(*root);
  DGEM_CHECK(generation.ok() ? generation->max_denoising_steps >= 1 : !generation.error().message.empty());
  return 0;
}
