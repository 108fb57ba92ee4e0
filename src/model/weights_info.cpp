#include "model/weights_info.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace dgem::model {
namespace {

constexpr const char* kExperts = "experts";
constexpr const char* kEmbedding = "embedding and head";
constexpr const char* kSelfConditioning = "self-conditioning";

// Adds up one role.
class RoleCounter {
 public:
  explicit RoleCounter(const char* role) { info_.role = role; }

  RoleCounter& add(const ops::Matrix& m) {
    if (!m) return *this;
    count(m.format, m.rows * m.cols, m.bytes());
    return *this;
  }
  RoleCounter& add(const ops::Vector& v) {
    count(v.format, v.size, v.size * (v.format == ops::Format::f32 ? 4 : 2));
    return *this;
  }
  RoleCounter& add(const std::vector<ops::Matrix>& matrices) {
    for (const ops::Matrix& m : matrices) add(m);
    return *this;
  }

  RoleInfo finish() {
    info_.active = info_.parameters;
    for (const ops::Format format : formats_)
      info_.formats += (info_.formats.empty() ? "" : ", ") + std::string(ops::name_of(format));
    return info_;
  }

 private:
  void count(ops::Format format, int64_t parameters, int64_t bytes) {
    ++info_.modules;
    info_.parameters += parameters;
    info_.bytes += bytes;
    formats_.insert(format);
  }

  RoleInfo info_;
  std::set<ops::Format> formats_;
};

std::vector<RoleInfo> count_roles(const Checkpoint& checkpoint) {
  const TextWeights& text = checkpoint.text;
  RoleCounter embedding(kEmbedding), attention("attention"), dense("dense MLP"), router("router"), experts(kExperts),
      norms("norms and scales"), conditioning(kSelfConditioning);
  embedding.add(text.embedding);
  norms.add(text.final_norm).add(text.self_conditioning_norm);
  conditioning.add(text.self_conditioning_gate).add(text.self_conditioning_up).add(text.self_conditioning_down);
  for (const LayerWeights& l : text.layers) {
    attention.add(l.q_proj).add(l.k_proj).add(l.v_proj).add(l.o_proj);
    dense.add(l.mlp_gate).add(l.mlp_up).add(l.mlp_down);
    router.add(l.router).add(l.router_scale).add(l.per_expert_scale);
    experts.add(l.expert_gate).add(l.expert_up).add(l.expert_down);
    for (const ops::Vector& norm :
         {l.input_norm, l.post_attention_norm, l.pre_feedforward_norm, l.pre_feedforward_norm_2, l.post_feedforward_norm,
          l.post_feedforward_norm_1, l.post_feedforward_norm_2, l.q_norm, l.k_norm}) {
      norms.add(norm);
    }
  }
  return {embedding.finish(), conditioning.finish(), attention.finish(), dense.finish(),
          router.finish(),    experts.finish(),      norms.finish()};
}

}  // namespace

CheckpointInfo describe(const Checkpoint& checkpoint) {
  CheckpointInfo info;
  info.roles = count_roles(checkpoint);
  const Config& config = checkpoint.config;
  for (RoleInfo& role : info.roles) {
    if (role.role == kSelfConditioning) role.active = 0;
    if (role.role == kExperts) role.active = role.parameters / config.num_experts * config.top_k_experts;
    info.parameters += role.parameters;
    info.active += role.active;
    info.text_bytes += role.bytes;
  }
  info.file_bytes = static_cast<int64_t>(checkpoint.files.mapped_bytes());
  int64_t all_bytes = 0;
  for (const auto& [name, tensor] : checkpoint.files.tensors()) {
    all_bytes += static_cast<int64_t>(tensor.bytes);
    if (name.find("vision") != name.npos) info.vision_parameters += tensor.elements();
  }
  info.other_bytes = std::max<int64_t>(0, all_bytes - info.text_bytes);
  return info;
}

double expected_expert_share(const Config& config, int64_t rows) {
  const double missed = 1.0 - static_cast<double>(config.top_k_experts) / config.num_experts;
  return 1.0 - std::pow(missed, static_cast<double>(rows));
}

int64_t bytes_per_pass(const Config& config, const CheckpointInfo& info, int64_t rows) {
  double bytes = 0.0;
  for (const RoleInfo& role : info.roles) {
    if (role.role == kEmbedding || role.role == kSelfConditioning) continue;
    bytes += static_cast<double>(role.bytes) * (role.role == kExperts ? expected_expert_share(config, rows) : 1.0);
  }
  return std::llround(bytes);
}

}  // namespace dgem::model
