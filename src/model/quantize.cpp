#include "model/quantize.h"

#include "base/terminal.h"
#include "model/dequantize.h"
#include "model/quantize_plan.h"
#include "model/quantize_rows.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

namespace dgem::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRowsPerPart = 64;
constexpr size_t kCopyBytes = size_t{16} << 20;

// Packs modules and writes them.
class Packer {
 public:
  Packer(QuantizePlan& plan, SafetensorsWriter& writer, ThreadPool& pool, Progress* progress)
      : plan_(plan), writer_(writer), pool_(pool), progress_(progress), rows_(static_cast<size_t>(pool.size())) {}

  Status pack_group(const std::vector<PackJob>& group) {
    float largest = 0.0f;
    for (const PackJob& job : group) {
      DGEM_ASSIGN(const float one, measure(job));
      largest = std::max(largest, one);
    }
    for (const PackJob& job : group) {
      if (plan_.modules[job.report].to == ops::Format::fp8) {
        pack_fp8(job);
      } else {
        pack_nvfp4(job, nvfp4_global(largest));
      }
    }
    return {};
  }

  void copy(size_t tensor, const Tensor& from) {
    for (size_t at = 0; at < from.bytes; at += kCopyBytes) {
      write(tensor, static_cast<int64_t>(at), {from.data + at, std::min(kCopyBytes, from.bytes - at)});
    }
  }

 private:
  // Per part of rows; summed in the order of parts, so that reports do not depend on threads.
  struct Sums {
    float largest = 0.0f;
    bool finite = true;
    double squared_norm = 0.0, squared_error = 0.0;
  };

  // Calls f(row index, values, sums) for each row.
  template <class F>
  Sums each_row(const ops::Matrix& m, F f) {
    const int64_t parts = (m.rows + kRowsPerPart - 1) / kRowsPerPart;
    std::vector<Sums> sums(static_cast<size_t>(parts));
    pool_.run(static_cast<int>(parts), [&](int part, int thread) {
      std::vector<float>& row = rows_[static_cast<size_t>(thread)];
      row.resize(static_cast<size_t>(m.cols));
      const int64_t first = part * kRowsPerPart;
      for (int64_t r = first; r < std::min(first + kRowsPerPart, m.rows); ++r) {
        to_float(m, r, row.data());
        f(r, row.data(), sums[static_cast<size_t>(part)]);
      }
    });
    Sums all;
    for (const Sums& s : sums) {
      all.largest = std::max(all.largest, s.largest);
      all.finite = all.finite && s.finite;
      all.squared_norm += s.squared_norm;
      all.squared_error += s.squared_error;
    }
    return all;
  }

  Result<float> measure(const PackJob& job) {
    const ops::Matrix& m = job.source;
    const Sums sums = each_row(m, [&](int64_t, const float* row, Sums& s) {
      for (int64_t c = 0; c < m.cols; ++c) {
        s.largest = std::max(s.largest, std::fabs(row[c]));
        s.finite = s.finite && std::isfinite(row[c]);
        s.squared_norm += static_cast<double>(row[c]) * static_cast<double>(row[c]);
      }
    });
    QuantizedModule& report = plan_.modules[job.report];
    if (!sums.finite) return make_error("{}: holds values that are not finite; the checkpoint is damaged", report.name);
    report.squared_norm = sums.squared_norm;
    return sums.largest;
  }

  void pack_nvfp4(const PackJob& job, float global) {
    const ops::Matrix& m = job.source;
    packed_.resize(static_cast<size_t>(m.rows * m.cols / 2));
    scales_.resize(static_cast<size_t>(m.rows * m.cols / 16));
    const Sums sums = each_row(m, [&](int64_t r, const float* row, Sums& s) {
      s.squared_error +=
          quantize_nvfp4_row(row, m.cols, global, packed_.data() + r * m.cols / 2, scales_.data() + r * m.cols / 16);
    });
    QuantizedModule& report = plan_.modules[job.report];
    report.squared_error = sums.squared_error;
    write_whole(report.name + ".weight", std::as_bytes(std::span(packed_)));
    write_whole(report.name + ".weight_scale", std::as_bytes(std::span(scales_)));
    write_whole(report.name + ".weight_scale_2", std::as_bytes(std::span(&global, 1)));
  }

  // Always the embedding, which is large and has many rows: the packed form needs as many bytes as it has elements.
  void pack_fp8(const PackJob& job) {
    const ops::Matrix& m = job.source;
    packed_.resize(static_cast<size_t>(m.rows * m.cols));
    std::vector<float> row_scales(static_cast<size_t>(m.rows));
    const Sums sums = each_row(m, [&](int64_t r, const float* row, Sums& s) {
      s.squared_error += quantize_fp8_row(row, m.cols, packed_.data() + r * m.cols, &row_scales[static_cast<size_t>(r)]);
    });
    QuantizedModule& report = plan_.modules[job.report];
    report.squared_error = sums.squared_error;
    write_whole(report.name + ".weight", std::as_bytes(std::span(packed_)));
    write_whole(report.name + ".weight_scale", std::as_bytes(std::span(row_scales)));
  }

  void write_whole(const std::string& name, std::span<const std::byte> bytes) { write(plan_.index_of(name), 0, bytes); }

  void write(size_t tensor, int64_t offset, std::span<const std::byte> bytes) {
    writer_.write(tensor, offset, bytes);
    if (progress_ != nullptr) progress_->advance(bytes.size());
  }

  QuantizePlan& plan_;
  SafetensorsWriter& writer_;
  ThreadPool& pool_;
  Progress* progress_;
  std::vector<std::vector<float>> rows_;  // one per thread
  std::vector<uint8_t> packed_, scales_;
};

Status write_config(const Checkpoint& checkpoint, const QuantizePlan& plan, const fs::path& output) {
  DGEM_ASSIGN(json::Value config, json::parse_file((fs::path(checkpoint.directory) / "config.json").string()));
  const bool any_nvfp4 =
      std::any_of(plan.modules.begin(), plan.modules.end(), [](const auto& m) { return m.to == ops::Format::nvfp4; });
  if (any_nvfp4) {
    json::Array ignore = {"lm_head", "*embed_tokens*", "*router*", "*vision_tower*", "*embed_vision*"};
    const bool dense = std::any_of(plan.modules.begin(), plan.modules.end(),
                                   [](const auto& m) { return m.role.starts_with("self_attn."); });
    if (!dense) ignore.insert(ignore.end(), {"*self_attn*", "*.mlp.*", "*self_conditioning*"});
    for (const QuantizedModule& module : plan.modules) {
      if (module.to != ops::Format::nvfp4 && module.to != ops::Format::fp8) ignore.emplace_back(module.name);
    }
    config.set("quantization_config", modelopt_config(std::move(ignore)));
  }
  std::ofstream file(output / "config.json", std::ios::binary);
  file << json::write(config, 2) << '\n';
  file.close();
  if (!file) throw Fault(fmt::format("cannot write {}", (output / "config.json").string()));
  return {};
}

// Tokenizer, chat template, generation settings: all small text files but those that describe the weights.
void copy_side_files(const fs::path& from, const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
    const bool wanted = extension == ".json" || extension == ".jinja" || extension == ".txt" || extension == ".model";
    if (!entry.is_regular_file() || !wanted || name == "config.json" || name == "hf_quant_config.json" ||
        name.ends_with(".index.json")) {
      continue;
    }
    std::error_code code;
    fs::copy_file(entry.path(), output / name, fs::copy_options::overwrite_existing, code);
    if (code) throw Fault(fmt::format("cannot copy {}: {}", entry.path().string(), code.message()));
  }
}

}  // namespace

double QuantizedModule::relative_error() const { return squared_norm > 0.0 ? std::sqrt(squared_error / squared_norm) : 0.0; }

Result<QuantizeReport> quantize(const Checkpoint& checkpoint, const QuantizeOptions& options, const std::string& output,
                                ThreadPool& pool) {
  DGEM_ASSIGN(QuantizePlan plan, plan_quantize(checkpoint, options));
  DGEM_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(output, plan.tensors, {.stop = options.stop}));
  std::optional<Progress> progress;
  if (options.show_progress)
    progress.emplace("packing weights", static_cast<uint64_t>(writer.total_bytes()), ProgressUnit::kBytes);

  Packer packer(plan, writer, pool, progress ? &*progress : nullptr);
  for (const auto& group : plan.groups) {
    DGEM_RETURN_IF_ERROR(packer.pack_group(group));
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.copies[i] != nullptr) packer.copy(i, *plan.copies[i]);
  }
  copy_side_files(checkpoint.directory, output);
  DGEM_RETURN_IF_ERROR(write_config(checkpoint, plan, output));
  writer.finish();

  QuantizeReport report{.modules = std::move(plan.modules), .bytes_before = 0, .bytes_after = writer.total_bytes()};
  for (const auto& [name, tensor] : checkpoint.files.tensors()) report.bytes_before += static_cast<int64_t>(tensor.bytes);
  return report;
}

json::Value modelopt_config(json::Array ignore) {
  json::Object config;
  config.emplace_back("quant_method", "modelopt");
  config.emplace_back("quant_algo", "NVFP4");
  config.emplace_back("group_size", 16);
  config.emplace_back("producer", json::Object{{"name", "dgem"}, {"version", DGEM_VERSION}});
  config.emplace_back("ignore", std::move(ignore));
  return config;
}

}  // namespace dgem::model
