#include "model/quantize_plan.h"

#include "model/weights_finder.h"

#include <algorithm>
#include <set>

namespace dgem::model {
namespace {

// Every tensor that a module may consist of, whatever its format.
constexpr std::string_view kModuleSuffixes[] = {
    ".weight",        ".weight_scale",        ".weight_scale_2",    ".input_scale",
    ".weight_packed", ".weight_global_scale", ".input_global_scale"};

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const QuantizeOptions& options) : checkpoint_(checkpoint), options_(options) {}

  Result<QuantizePlan> plan() {
    const TextWeights& text = checkpoint_.text;
    if (options_.fp8_embedding) add_embedding();
    if (options_.dense) {
      add_group("self_conditioning.",
                {{"gate_proj", &text.self_conditioning_gate}, {"up_proj", &text.self_conditioning_up}});
      add_group("self_conditioning.", {{"down_proj", &text.self_conditioning_down}});
    }
    for (size_t l = 0; l < text.layers.size(); ++l) add_layer(fmt::format("layers.{}.", l), text.layers[l]);
    if (plan_.groups.empty()) {
      return make_error("nothing to pack: {}", plan_.modules.empty() ? "no module was chosen" : plan_.modules.front().kept);
    }
    declare_copies();
    sort_tensors();
    return std::move(plan_);
  }

 private:
  struct Named {
    const char* name;
    const ops::Matrix* matrix;
  };

  void add_layer(const std::string& prefix, const LayerWeights& layer) {
    if (options_.dense) {
      std::vector<Named> qkv = {{"q_proj", &layer.q_proj}, {"k_proj", &layer.k_proj}};
      if (layer.v_proj) qkv.push_back({"v_proj", &layer.v_proj});
      add_group(prefix + "self_attn.", qkv);
      add_group(prefix + "self_attn.", {{"o_proj", &layer.o_proj}});
      add_group(prefix + "mlp.", {{"gate_proj", &layer.mlp_gate}, {"up_proj", &layer.mlp_up}});
      add_group(prefix + "mlp.", {{"down_proj", &layer.mlp_down}});
    }
    const std::string base = prefix + "experts.";
    // Fused tensors hold all experts, so all of a layer are packed or none.
    std::string why;
    if (is_there(base + "gate_up_proj")) {
      why = std::max(reason_to_keep(layer.expert_gate[0]), reason_to_keep(layer.expert_down[0]));
    }
    for (size_t e = 0; e < layer.expert_gate.size(); ++e) {
      const std::string expert = fmt::format("{}{}.", base, e);
      add_group(expert, {{"gate_proj", &layer.expert_gate[e]}, {"up_proj", &layer.expert_up[e]}}, why);
      add_group(expert, {{"down_proj", &layer.expert_down[e]}}, why);
    }
    if (why.empty()) {
      drop(base + "gate_up_proj");
      drop(base + "down_proj");
    }
  }

  bool is_there(const std::string& name) const {
    const TensorFiles& files = checkpoint_.files;
    return files.find(std::string(kDecoder) + name) != nullptr || files.find(std::string(kEncoder) + name) != nullptr;
  }

  static std::string reason_to_keep(const ops::Matrix& m) {
    if (m.format == ops::Format::nvfp4) return "NVFP4 already";
    if (m.rows % 16 != 0 || m.cols % 16 != 0) {
      return fmt::format("NVFP4 needs sizes that are multiples of 16, and it is [{}, {}]", m.rows, m.cols);
    }
    return "";
  }

  // "layers.3.experts.7.gate_proj" -> "experts.gate_proj"
  static std::string role_of(std::string_view prefix, const char* name) {
    std::string role;
    while (!prefix.empty()) {
      const std::string_view part = prefix.substr(0, prefix.find('.'));
      prefix.remove_prefix(part.size() + 1);
      const bool is_index = part.find_first_not_of("0123456789") == part.npos;
      if (!is_index && part != "layers") role += std::string(part) + ".";
    }
    return role + name;
  }

  void add_group(const std::string& prefix, const std::vector<Named>& modules, const std::string& why = "") {
    std::vector<PackJob> group;
    for (const auto& [name, matrix] : modules) {
      QuantizedModule report{.role = role_of(prefix, name),
                             .name = std::string(kDecoder) + prefix + name,
                             .from = matrix->format,
                             .to = matrix->format,
                             .elements = matrix->rows * matrix->cols,
                             .kept = why.empty() ? reason_to_keep(*matrix) : why};
      if (report.kept.empty()) {
        report.to = ops::Format::nvfp4;
        declare_nvfp4(report.name, *matrix);
        drop_module(prefix + name);
        group.push_back({*matrix, plan_.modules.size()});
      }
      plan_.modules.push_back(std::move(report));
    }
    if (!group.empty()) plan_.groups.push_back(std::move(group));
  }

  void add_embedding() {
    const ops::Matrix& matrix = checkpoint_.text.embedding;
    const std::string name(kEmbedding);
    QuantizedModule report{.role = name,
                           .name = std::string(kDecoder) + name,
                           .from = matrix.format,
                           .to = ops::Format::fp8,
                           .elements = matrix.rows * matrix.cols,
                           .kept = {}};
    if (matrix.row_bytes() <= matrix.cols) {
      report.to = matrix.format;
      report.kept = fmt::format("{} already", ops::name_of(matrix.format));
    } else {
      declare(report.name + ".weight", DType::f8_e4m3, {matrix.rows, matrix.cols});
      declare(report.name + ".weight_scale", DType::f32, {matrix.rows, 1});
      drop_module(name);
      for (const std::string_view suffix : kModuleSuffixes) dropped_.insert(std::string(kHead) + std::string(suffix));
      plan_.groups.push_back({{matrix, plan_.modules.size()}});
    }
    plan_.modules.push_back(std::move(report));
  }

  void declare(std::string name, DType type, std::vector<int64_t> shape) {
    plan_.tensors.push_back({std::move(name), type, std::move(shape)});
    plan_.copies.push_back(nullptr);
  }

  void declare_nvfp4(const std::string& module, const ops::Matrix& m) {
    declare(module + ".weight", DType::u8, {m.rows, m.cols / 2});
    declare(module + ".weight_scale", DType::f8_e4m3, {m.rows, m.cols / 16});
    declare(module + ".weight_scale_2", DType::f32, {});
  }

  // Both names that a shared weight may have.
  void drop(const std::string& name) {
    dropped_.insert(std::string(kDecoder) + name);
    dropped_.insert(std::string(kEncoder) + name);
  }
  void drop_module(const std::string& module) {
    for (const std::string_view suffix : kModuleSuffixes) drop(module + std::string(suffix));
  }

  // A second copy of a weight that is also there under the decoder's name.
  bool is_tied_copy(const std::string& name) const {
    const TensorFiles& files = checkpoint_.files;
    if (name.ends_with(".layer_scalar")) return false;
    if (name.starts_with(kEncoder)) return files.find(std::string(kDecoder) + name.substr(kEncoder.size())) != nullptr;
    return name == std::string(kHead) + ".weight" && files.find(fmt::format("{}{}.weight", kDecoder, kEmbedding)) != nullptr;
  }

  void declare_copies() {
    for (const auto& [name, tensor] : checkpoint_.files.tensors()) {
      if (dropped_.contains(name) || is_tied_copy(name)) continue;
      plan_.tensors.push_back({name, tensor.type, tensor.shape});
      plan_.copies.push_back(&tensor);
    }
  }

  void sort_tensors() {
    std::vector<size_t> order(plan_.tensors.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return plan_.tensors[a].name < plan_.tensors[b].name; });
    std::vector<TensorSpec> tensors;
    std::vector<const Tensor*> copies;
    for (const size_t i : order) {
      tensors.push_back(std::move(plan_.tensors[i]));
      copies.push_back(plan_.copies[i]);
    }
    plan_.tensors = std::move(tensors);
    plan_.copies = std::move(copies);
  }

  const Checkpoint& checkpoint_;
  const QuantizeOptions& options_;
  QuantizePlan plan_;
  std::set<std::string, std::less<>> dropped_;
};

}  // namespace

size_t QuantizePlan::index_of(const std::string& name) const {
  const auto it = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const TensorSpec& tensor, const std::string& key) { return tensor.name < key; });
  DGEM_CHECK(it != tensors.end() && it->name == name, "{}", name);
  return static_cast<size_t>(it - tensors.begin());
}

Result<QuantizePlan> plan_quantize(const Checkpoint& checkpoint, const QuantizeOptions& options) {
  return Planner(checkpoint, options).plan();
}

}  // namespace dgem::model
