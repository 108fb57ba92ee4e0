#include "model/quantize.h"

#include "base/numeric.h"
#include "model/dequantize.h"
#include "model/quantize_rows.h"
#include "model/test_checkpoint.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace dgem::model {
namespace {

using ::testing::HasSubstr;

std::vector<float> normal_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

struct PackedRow {
  std::vector<uint8_t> codes, scales;
  float global = 1.0f;
  double error = 0.0;
  std::vector<float> back;
};

PackedRow pack(const std::vector<float>& row) {
  PackedRow p;
  p.codes.resize(row.size() / 2);
  p.scales.resize(row.size() / 16);
  float largest = 0.0f;
  for (const float x : row) largest = std::max(largest, std::fabs(x));
  p.global = nvfp4_global(largest);
  const auto cols = static_cast<int64_t>(row.size());
  p.error = quantize_nvfp4_row(row.data(), cols, p.global, p.codes.data(), p.scales.data());
  p.back.resize(row.size());
  to_float(ops::Matrix{.data = p.codes.data(),
                       .format = ops::Format::nvfp4,
                       .rows = 1,
                       .cols = cols,
                       .block_scales = p.scales.data(),
                       .scale = p.global,
                       .row_scales = {}},
           0, p.back.data());
  return p;
}

double squared_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return sum;
}

// What the plain rule (block scale = largest / 6, rounded) would give.
double plain_error(const std::vector<float>& row, float global) {
  double sum = 0.0;
  for (size_t b = 0; b < row.size(); b += 16) {
    float largest = 0.0f;
    for (size_t i = b; i < b + 16; ++i) largest = std::max(largest, std::fabs(row[i]));
    const float unit = e4m3_to_float(float_to_e4m3(largest / (6.0f * global))) * global;
    for (size_t i = b; i < b + 16; ++i) sum += std::pow(row[i] - e2m1_to_float(float_to_e2m1(row[i] / unit)) * unit, 2);
  }
  return sum;
}

TEST(QuantizeRows, ReportsTheErrorThatReadingBackShows) {
  const std::vector<float> row = normal_values(1600, 1);
  const PackedRow p = pack(row);
  EXPECT_NEAR(p.error, squared_distance(row, p.back), 1e-6 * p.error);
  double norm = 0.0;
  for (const float x : row) norm += static_cast<double>(x) * x;
  EXPECT_LT(std::sqrt(p.error / norm), 0.1);
}

TEST(QuantizeRows, TheSearchBeatsThePlainScale) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<float> row = normal_values(256, seed);
    const PackedRow p = pack(row);
    EXPECT_LE(p.error, plain_error(row, p.global) * (1 + 1e-6));
  }
  const std::vector<float> row = normal_values(16000, 99);
  const PackedRow p = pack(row);
  EXPECT_LT(p.error, 0.9 * plain_error(row, p.global));
}

TEST(QuantizeRows, ValuesOnTheGridStay) {
  std::vector<float> row;
  for (int code = 0; code < 16; ++code) row.push_back(e2m1_to_float(static_cast<uint8_t>(code)) * 0.25f);
  for (int i = 0; i < 16; ++i) row.push_back(i == 3 ? 448.0f * 0.25f : 0.0f);
  const PackedRow p = pack(row);
  EXPECT_LT(p.error, 1e-9);
}

TEST(QuantizeRows, RoundsAsTheScalarConversionDoes) {
  // With 6 as the largest, units are near 1, so that multiples of 1/4 meet every midpoint.
  std::vector<float> row;
  for (int i = 0; i < 16 * 8; ++i) row.push_back(i % 16 == 0 ? 6.0f : static_cast<float>(i % 49 - 24) / 4.0f);
  const PackedRow p = pack(row);
  for (size_t i = 0; i < row.size(); ++i) {
    const float unit = e4m3_to_float(p.scales[i / 16]) * p.global;
    const auto code = static_cast<uint8_t>(i % 2 == 0 ? p.codes[i / 2] & 15 : p.codes[i / 2] >> 4);
    EXPECT_EQ(code, float_to_e2m1(row[i] / unit)) << row[i] << " in units of " << unit;
  }
}

TEST(QuantizeRows, ZerosAndExtremes) {
  EXPECT_EQ(pack(std::vector<float>(32, 0.0f)).back, std::vector<float>(32, 0.0f));
  std::vector<float> row(32, 0.0f);
  row[0] = 3e38f;
  row[17] = 1e-30f;
  const PackedRow p = pack(row);
  EXPECT_NEAR(p.back[0] / 3e38f, 1.0f, 1e-3f);
  EXPECT_EQ(p.back[17], 0.0f);
  std::vector<float> tiny(16, 1e-44f);
  for (const float x : pack(tiny).back) EXPECT_TRUE(std::isfinite(x));
}

TEST(QuantizeRows, Fp8) {
  const std::vector<float> row = normal_values(64, 3);
  std::vector<uint8_t> out(64);
  float scale = 0.0f;
  const double error = quantize_fp8_row(row.data(), 64, out.data(), &scale);
  std::vector<float> back;
  for (const uint8_t v : out) back.push_back(e4m3_to_float(v) * scale);
  EXPECT_NEAR(error, squared_distance(row, back), 1e-6 * error + 1e-15);
  for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(back[i], row[i], std::fabs(row[i]) / 16 + scale * 0x1p-9f);
  const std::vector<float> zeros(16, 0.0f);
  quantize_fp8_row(zeros.data(), 16, out.data(), &scale);
  EXPECT_EQ(scale, 1.0f);
}

// Quantizes a checkpoint and loads the result.
struct Outcome {
  QuantizeReport report;
  std::unique_ptr<Checkpoint> before, after;
  std::string error;
};

Outcome run(const TestFolder& folder, const std::string& from, const QuantizeOptions& options, int threads = 2) {
  Outcome outcome;
  auto before = load_checkpoint(from);
  if (!before) return {{}, nullptr, nullptr, before.error().message};
  ThreadPool pool(threads);
  auto report = quantize(*before, options, folder.path() + "/out", pool);
  if (!report) return {{}, nullptr, nullptr, report.error().message};
  auto after = load_checkpoint(folder.path() + "/out");
  if (!after) return {{}, nullptr, nullptr, after.error().message};
  outcome.report = std::move(*report);
  outcome.before = std::make_unique<Checkpoint>(std::move(*before));
  outcome.after = std::make_unique<Checkpoint>(std::move(*after));
  return outcome;
}

double distance(const ops::Matrix& a, const ops::Matrix& b) {
  std::vector<float> x(static_cast<size_t>(a.cols)), y(static_cast<size_t>(b.cols));
  double difference = 0.0, norm = 0.0;
  for (int64_t r = 0; r < a.rows; ++r) {
    to_float(a, r, x.data());
    to_float(b, r, y.data());
    difference += squared_distance(x, y);
    for (const float v : x) norm += static_cast<double>(v) * v;
  }
  return std::sqrt(difference / norm);
}

TEST(Quantize, ExpertsOnly) {
  TinyCheckpoint tiny(SynthFormat::bf16);
  tiny.save();
  const TestFolder folder;
  const Outcome o = run(folder, tiny.directory(), {});
  ASSERT_TRUE(o.after) << o.error;
  const LayerWeights &before = o.before->text.layers[1], &after = o.after->text.layers[1];
  for (size_t e = 0; e < 4; ++e) {
    EXPECT_EQ(after.expert_gate[e].format, ops::Format::nvfp4);
    EXPECT_EQ(after.expert_gate[e].scale, after.expert_up[e].scale);
    EXPECT_LT(distance(before.expert_gate[e], after.expert_gate[e]), 0.1);
    EXPECT_LT(distance(before.expert_up[e], after.expert_up[e]), 0.1);
    EXPECT_LT(distance(before.expert_down[e], after.expert_down[e]), 0.1);
  }
  EXPECT_EQ(after.q_proj.format, ops::Format::bf16);
  EXPECT_EQ(distance(before.q_proj, after.q_proj), 0.0);
  EXPECT_EQ(after.encoder_scalar, before.encoder_scalar);
  EXPECT_EQ(o.after->config.quant_method, "modelopt");
  ASSERT_EQ(o.report.modules.size(), 2u * 4 * 3);
  EXPECT_NEAR(o.report.modules[0].relative_error(),
              distance(o.before->text.layers[0].expert_gate[0], o.after->text.layers[0].expert_gate[0]), 1e-6);
  EXPECT_EQ(o.report.modules[0].role, "experts.gate_proj");
  EXPECT_EQ(o.report.modules[0].name, "model.decoder.layers.0.experts.0.gate_proj");
  EXPECT_LT(o.report.bytes_after, o.report.bytes_before);
}

TEST(Quantize, AllAndTheEmbedding) {
  TinyCheckpoint tiny(SynthFormat::f32);
  tiny.save();
  const TestFolder folder;
  const Outcome o = run(folder, tiny.directory(), {.dense = true, .fp8_embedding = true});
  ASSERT_TRUE(o.after) << o.error;
  EXPECT_EQ(o.after->text.embedding.format, ops::Format::fp8);
  EXPECT_LT(distance(o.before->text.embedding, o.after->text.embedding), 0.04);
  const TextWeights& text = o.after->text;
  const LayerWeights& layer = text.layers[0];
  for (const ops::Matrix* m : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj, &layer.mlp_gate, &layer.mlp_down,
                               &text.self_conditioning_down}) {
    EXPECT_EQ(m->format, ops::Format::nvfp4);
  }
  EXPECT_EQ(layer.router.format, ops::Format::f32);
  EXPECT_LT(distance(o.before->text.layers[1].o_proj, o.after->text.layers[1].o_proj), 0.1);
  for (const QuantizedModule& m : o.report.modules) EXPECT_EQ(m.kept, "") << m.name;
}

TEST(Quantize, SizesThatDoNotFitStayAsTheyAre) {
  std::string config = kTinyConfig;
  config.replace(config.find("\"intermediate_size\": 48"), 23, "\"intermediate_size\": 40");
  TinyCheckpoint tiny(SynthFormat::f32, 1, config);
  tiny.save();
  const TestFolder folder;
  const Outcome o = run(folder, tiny.directory(), {.dense = true});
  ASSERT_TRUE(o.after) << o.error;
  EXPECT_EQ(o.after->text.layers[0].mlp_gate.format, ops::Format::f32);
  EXPECT_EQ(o.after->text.layers[0].q_proj.format, ops::Format::nvfp4);
  const auto gate = std::find_if(o.report.modules.begin(), o.report.modules.end(),
                                 [](const auto& m) { return m.role == "mlp.gate_proj"; });
  ASSERT_NE(gate, o.report.modules.end());
  EXPECT_THAT(gate->kept, HasSubstr("multiples of 16, and it is [40, 64]"));

  const TestFolder other;
  EXPECT_THAT(run(other, DGEM_SOURCE_DIR "/tests/goldens/odd", {}).error, HasSubstr("nothing to pack: NVFP4 needs sizes"));
}

TEST(Quantize, PackedModulesAreCopied) {
  const TestFolder folder;
  const Outcome o = run(folder, DGEM_SOURCE_DIR "/tests/goldens/modelopt", {.dense = true});
  ASSERT_TRUE(o.after) << o.error;
  EXPECT_EQ(distance(o.before->text.layers[2].expert_up[5], o.after->text.layers[2].expert_up[5]), 0.0);
  EXPECT_EQ(o.after->text.layers[2].q_proj.format, ops::Format::nvfp4);
  EXPECT_TRUE(o.after->files.find("model.encoder.vision_tower.patch_embedder.input_proj.weight"));
  EXPECT_EQ(o.after->config.has_vision, o.before->config.has_vision);
  EXPECT_EQ(o.after->config.image_token_id, 316);
}

TEST(Quantize, KeepsSideFilesAndUnknownKeysAndDropsSecondCopies) {
  TinyCheckpoint tiny(SynthFormat::f32);
  tiny.put("lm_head.weight", DType::f32, {96, 64}, tiny.tensors()["model.decoder.embed_tokens.weight"].bytes);
  tiny.put("model.encoder.language_model.norm.weight", DType::f32, {64}, tiny.tensors()["model.decoder.norm.weight"].bytes);
  tiny.put("model.encoder.vision_tower.std_bias", DType::f32, {1}, bytes_of_float(3.0f));
  tiny.save();
  json::Value config = *json::parse_file(tiny.directory() + "/config.json");
  config.set("something_else", json::Array{1, "x"});
  std::ofstream(tiny.directory() + "/config.json") << json::write(config);
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "picture.png"})
    std::ofstream(tiny.directory() + "/" + name) << "x";
  const TestFolder folder;
  const Outcome o = run(folder, tiny.directory(), {.fp8_embedding = true});
  ASSERT_TRUE(o.after) << o.error;
  EXPECT_FALSE(o.after->files.find("lm_head.weight"));
  EXPECT_FALSE(o.after->files.find("model.encoder.language_model.norm.weight"));
  EXPECT_TRUE(o.after->files.find("model.encoder.language_model.layers.0.layer_scalar"));
  EXPECT_TRUE(o.after->files.find("model.encoder.vision_tower.std_bias"));
  const auto written = json::parse_file(folder.path() + "/out/config.json");
  ASSERT_TRUE(written);
  ASSERT_TRUE(written->find("something_else"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/out/tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/out/chat_template.jinja"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/out/picture.png"));
}

TEST(Quantize, TheSameBytesOnAnyNumberOfThreads) {
  TinyCheckpoint tiny(SynthFormat::f32);
  tiny.save();
  const TestFolder a, b;
  const Outcome one = run(a, tiny.directory(), {.dense = true}, 1), four = run(b, tiny.directory(), {.dense = true}, 4);
  ASSERT_TRUE(one.after && four.after) << one.error << four.error;
  for (const auto& [name, tensor] : one.after->files.tensors()) {
    const Tensor* other = four.after->files.find(name);
    ASSERT_TRUE(other) << name;
    EXPECT_TRUE(std::equal(tensor.data, tensor.data + tensor.bytes, other->data, other->data + other->bytes)) << name;
  }
  for (size_t i = 0; i < one.report.modules.size(); ++i) {
    EXPECT_EQ(one.report.modules[i].squared_error, four.report.modules[i].squared_error);
  }
}

TEST(Quantize, WeightsThatAreNotFiniteAreRefused) {
  TinyCheckpoint tiny(SynthFormat::f32);
  tiny.tensors()["model.decoder.layers.0.experts.down_proj"].bytes.replace(0, 4, bytes_of_float(NAN));
  tiny.save();
  const TestFolder folder;
  EXPECT_THAT(run(folder, tiny.directory(), {}).error,
              HasSubstr("layers.0.experts.0.down_proj: holds values that are not finite"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/out"));
}

}  // namespace
}  // namespace dgem::model
