#include "model/weights.h"

#include "base/numeric.h"
#include "model/dequantize.h"
#include "model/quantize_rows.h"
#include "model/test_checkpoint.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace dgem::model {
namespace {

using ::testing::HasSubstr;

constexpr const char* kQ = "model.decoder.layers.0.self_attn.q_proj";  // [64, 64]
constexpr const char* kEmbed = "model.decoder.embed_tokens.weight";    // [96, 64]

std::vector<float> values(const ops::Matrix& m) {
  std::vector<float> all(static_cast<size_t>(m.rows * m.cols));
  for (int64_t r = 0; r < m.rows; ++r) to_float(m, r, all.data() + r * m.cols);
  return all;
}

Checkpoint load_ok(const std::string& directory) {
  auto checkpoint = load_checkpoint(directory);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return checkpoint ? std::move(*checkpoint) : Checkpoint{};
}

// The tiny checkpoint after one change.
template <class F>
std::string error_after(F change, SynthFormat format = SynthFormat::f32) {
  TinyCheckpoint checkpoint(format);
  change(checkpoint);
  return checkpoint.load_error();
}

TEST(Weights, LoadsTheGoldens) {
  for (const char* golden : {"odd", "sharp", "modelopt", "compressed"}) {
    const Checkpoint c = load_ok(fmt::format("{}/tests/goldens/{}", DGEM_SOURCE_DIR, golden));
    ASSERT_EQ(c.text.layers.size(), std::string(golden) == "odd" ? 7u : 6u);
    const LayerWeights& first = c.text.layers.front();
    EXPECT_EQ(first.expert_gate.size(), static_cast<size_t>(c.config.num_experts));
    EXPECT_TRUE(first.v_proj);
    EXPECT_FALSE(c.text.layers.back().v_proj);
    EXPECT_NE(first.encoder_scalar, first.decoder_scalar);
    EXPECT_EQ(c.generation.max_new_tokens, 256);
    const bool packed = std::string(golden) == "modelopt" || std::string(golden) == "compressed";
    EXPECT_EQ(first.expert_up[1].format, packed ? ops::Format::nvfp4 : ops::Format::f32);
    EXPECT_EQ(first.q_proj.format, std::string(golden) == "compressed" ? ops::Format::nvfp4 : ops::Format::f32);
  }
}

TEST(Weights, FusedExpertsAreCutIntoGateUpAndDown) {
  TinyCheckpoint tiny;
  tiny.save();
  const Checkpoint c = load_ok(tiny.directory());
  const LayerWeights& layer = c.text.layers[1];
  const auto* gate_up = reinterpret_cast<const float*>(c.files.find("model.decoder.layers.1.experts.gate_up_proj")->data);
  const auto* down = reinterpret_cast<const float*>(c.files.find("model.decoder.layers.1.experts.down_proj")->data);
  EXPECT_EQ(layer.expert_gate[3].data, gate_up + 3 * 64 * 64);
  EXPECT_EQ(layer.expert_up[3].data, gate_up + 3 * 64 * 64 + 32 * 64);
  EXPECT_EQ(layer.expert_down[3].data, down + 3 * 64 * 32);
  EXPECT_EQ(layer.expert_down[3].rows, 64);
  EXPECT_EQ(layer.expert_down[3].cols, 32);
}

TEST(Weights, SharedNamesAndLmHead) {
  TinyCheckpoint tiny;
  tiny.rename(kEmbed, "lm_head.weight");
  tiny.rename("model.decoder.norm.weight", "model.encoder.language_model.norm.weight");
  tiny.rename(std::string(kQ) + ".weight", "model.encoder.language_model.layers.0.self_attn.q_proj.weight");
  tiny.rename("model.decoder.layers.1.experts.down_proj", "model.encoder.language_model.layers.1.experts.down_proj");
  EXPECT_EQ(tiny.load_error(), "");
}

TEST(Weights, DecoderNamesComeFirst) {
  TinyCheckpoint tiny;
  tiny.put("lm_head.weight", DType::f32, {3}, std::string(12, '\1'));
  tiny.put("model.encoder.language_model.norm.weight", DType::f32, {3}, std::string(12, '\1'));
  EXPECT_EQ(tiny.load_error(), "");
}

TEST(Weights, OneLayerScalarServesForBoth) {
  TinyCheckpoint tiny;
  tiny.tensors().erase("model.encoder.language_model.layers.0.layer_scalar");
  tiny.tensors().erase("model.decoder.layers.1.layer_scalar");
  tiny.put("model.decoder.layers.0.layer_scalar", DType::f32, {}, bytes_of_float(0.25f));
  tiny.put("model.encoder.language_model.layers.1.layer_scalar", DType::bf16, {1}, std::string("\x40\x3f", 2));
  tiny.save();
  const Checkpoint c = load_ok(tiny.directory());
  EXPECT_EQ(c.text.layers[0].encoder_scalar, 0.25f);
  EXPECT_EQ(c.text.layers[0].decoder_scalar, 0.25f);
  EXPECT_EQ(c.text.layers[1].encoder_scalar, 0.75f);
  EXPECT_EQ(c.text.layers[1].decoder_scalar, 0.75f);
  EXPECT_THAT(error_after([](TinyCheckpoint& t) {
                t.tensors().erase("model.encoder.language_model.layers.0.layer_scalar");
                t.tensors().erase("model.decoder.layers.0.layer_scalar");
              }),
              HasSubstr("tensor model.decoder.layers.0.layer_scalar is missing"));
  EXPECT_THAT(error_after([](TinyCheckpoint& t) {
                t.put("model.decoder.layers.0.layer_scalar", DType::f32, {1}, bytes_of_float(NAN));
              }),
              HasSubstr("expected a finite number"));
}

TEST(Weights, EveryMissingTensorIsNamed) {
  TinyCheckpoint all;
  std::vector<std::string> names;
  for (const auto& [name, raw] : all.tensors()) names.push_back(name);
  for (const std::string& name : names) {
    if (name.ends_with("layer_scalar") || name.find(".experts.") != name.npos) continue;
    const std::string error = error_after([&](TinyCheckpoint& t) { t.tensors().erase(name); });
    EXPECT_THAT(error, HasSubstr(name + " is missing: expected"));
  }
  EXPECT_THAT(error_after([](TinyCheckpoint& t) { t.tensors().erase("model.decoder.layers.0.experts.down_proj"); }),
              HasSubstr("tensor model.decoder.layers.0.experts.down_proj is missing"));
  EXPECT_THAT(error_after([](TinyCheckpoint& t) { t.tensors().erase("model.decoder.layers.0.experts.2.up_proj.weight"); },
                          SynthFormat::nvfp4),
              HasSubstr("tensor model.decoder.layers.0.experts.2.up_proj.weight is missing: expected [32, 64]"));
}

TEST(Weights, WrongShapesAndTypesAreNamed) {
  EXPECT_THAT(error_after([](TinyCheckpoint& t) {
                t.tensors()[kEmbed].spec.shape = {64, 96};
              }),
              HasSubstr("tensor model.decoder.embed_tokens.weight: expected shape [96, 64], found [64, 96]"));
  EXPECT_THAT(
      error_after([](TinyCheckpoint& t) {
        t.tensors()[kEmbed].spec = {kEmbed, DType::i32, {96, 64}};
      }),
      HasSubstr("tensor model.decoder.embed_tokens.weight: expected F32, BF16, F16, F8_E4M3 or U8 (NVFP4), found I32"));
  EXPECT_THAT(error_after([](TinyCheckpoint& t) { t.tensors()["model.decoder.norm.weight"].spec.type = DType::u32; }),
              HasSubstr("tensor model.decoder.norm.weight: expected F32, BF16 or F16, found U32"));
  EXPECT_THAT(error_after([](TinyCheckpoint& t) {
                t.tensors()["model.decoder.norm.weight"].spec.shape = {1, 64};
              }),
              HasSubstr("expected shape [64], found [1, 64]"));
  EXPECT_THAT(error_after([](TinyCheckpoint& t) {
                t.tensors()["model.decoder.layers.0.experts.gate_up_proj"].spec.shape = {4, 32, 128};
              }),
              HasSubstr("experts.gate_up_proj: expected shape [4, 64, 64], found [4, 32, 128]"));
  EXPECT_THAT(error_after([](TinyCheckpoint& t) {
                t.put("model.decoder.layers.0.mlp.up_proj.bias", DType::f32, {1}, bytes_of_float(0));
              }),
              HasSubstr("up_proj.bias: linear layers with a bias are not supported"));
}

TEST(Weights, Fp8NeedsOneScalePerRow) {
  const auto fp8 = [](TinyCheckpoint& t, DType type, std::vector<int64_t> shape, size_t bytes) {
    t.put(std::string(kQ) + ".weight", DType::f8_e4m3, {64, 64}, std::string(64 * 64, '\x38'));  // 1.0
    if (bytes > 0) t.put(std::string(kQ) + ".weight_scale", type, std::move(shape), std::string(bytes, '\x3f'));
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{64}, std::vector<int64_t>{64, 1}}) {
      TinyCheckpoint tiny;
      fp8(tiny, type, shape, 64 * bytes_of(type));
      tiny.save();
      const Checkpoint c = load_ok(tiny.directory());
      const ops::Matrix& q = c.text.layers[0].q_proj;
      ASSERT_EQ(q.format, ops::Format::fp8);
      EXPECT_FLOAT_EQ(values(q)[100], type == DType::f32 ? std::bit_cast<float>(0x3f3f3f3fu) : to_float(bf16{0x3f3f}));
    }
  }
  EXPECT_THAT(error_after([&](TinyCheckpoint& t) { fp8(t, DType::f32, {}, 0); }),
              HasSubstr("q_proj.weight_scale is missing"));
  EXPECT_THAT(error_after([&](TinyCheckpoint& t) { fp8(t, DType::f32, {1}, 4); }),
              HasSubstr("one scale for each row, found [1]"));
  EXPECT_THAT(error_after([&](TinyCheckpoint& t) { fp8(t, DType::u8, {64}, 64); }),
              HasSubstr("expected F32 or BF16, found U8"));
}

// A linear layer in both NVFP4 conventions, packed from the same values.
struct Packed {
  std::string codes, scales;
  float global = 1.0f;
};

Packed pack(const ops::Matrix& m) {
  Packed packed;
  packed.codes.resize(static_cast<size_t>(m.rows * m.cols / 2));
  packed.scales.resize(static_cast<size_t>(m.rows * m.cols / 16));
  const std::vector<float> all = values(m);
  float largest = 0.0f;
  for (const float v : all) largest = std::max(largest, std::fabs(v));
  packed.global = nvfp4_global(largest);
  for (int64_t r = 0; r < m.rows; ++r) {
    quantize_nvfp4_row(all.data() + r * m.cols, m.cols, packed.global,
                       reinterpret_cast<uint8_t*>(packed.codes.data()) + r * m.cols / 2,
                       reinterpret_cast<uint8_t*>(packed.scales.data()) + r * m.cols / 16);
  }
  return packed;
}

void put_modelopt(TinyCheckpoint& t, const std::string& module, const Packed& p) {
  t.put(module + ".weight", DType::u8, {64, 32}, p.codes);
  t.put(module + ".weight_scale", DType::f8_e4m3, {64, 4}, p.scales);
  t.put(module + ".weight_scale_2", DType::f32, {}, bytes_of_float(p.global));
}

void put_compressed(TinyCheckpoint& t, const std::string& module, const Packed& p) {
  t.tensors().erase(module + ".weight");
  t.put(module + ".weight_packed", DType::u8, {64, 32}, p.codes);
  t.put(module + ".weight_scale", DType::f8_e4m3, {64, 4}, p.scales);
  t.put(module + ".weight_global_scale", DType::f32, {1}, bytes_of_float(1.0f / p.global));
}

Packed packed_q() {
  TinyCheckpoint tiny;
  tiny.save();
  return pack(load_ok(tiny.directory()).text.layers[0].q_proj);
}

TEST(Weights, BothNvfp4ConventionsGiveTheSameWeights) {
  const Packed packed = packed_q();
  TinyCheckpoint modelopt, compressed;
  put_modelopt(modelopt, kQ, packed);
  put_compressed(compressed, kQ, packed);
  modelopt.save();
  compressed.save();
  const Checkpoint a = load_ok(modelopt.directory()), b = load_ok(compressed.directory());
  const std::vector<float> from_a = values(a.text.layers[0].q_proj), from_b = values(b.text.layers[0].q_proj);
  ASSERT_EQ(a.text.layers[0].q_proj.format, ops::Format::nvfp4);
  ASSERT_EQ(b.text.layers[0].q_proj.format, ops::Format::nvfp4);
  for (size_t i = 0; i < from_a.size(); ++i) EXPECT_NEAR(from_a[i], from_b[i], 1e-6f * std::fabs(from_a[i]));
}

TEST(Weights, TheLowNibbleIsTheEvenColumn) {
  Packed packed{std::string(64 * 32, '\0'), std::string(64 * 4, '\x38'), 0.5f};
  packed.codes[0] = '\x72';   // element 0: 1.0, element 1: 6.0
  packed.codes[8] = '\x09';   // element 16: -0.5
  packed.scales[1] = '\x40';  // 2.0 for elements 16..31
  TinyCheckpoint tiny;
  put_modelopt(tiny, kQ, packed);
  tiny.save();
  const std::vector<float> q = values(load_ok(tiny.directory()).text.layers[0].q_proj);
  EXPECT_EQ(q[0], 0.5f);
  EXPECT_EQ(q[1], 3.0f);
  EXPECT_EQ(q[16], -0.5f);
  EXPECT_EQ(q[17], 0.0f);
}

TEST(Weights, BrokenNvfp4IsRefused) {
  const Packed packed = packed_q();
  const auto with_global = [&](float global, bool compressed) {
    return error_after([&](TinyCheckpoint& t) {
      compressed ? put_compressed(t, kQ, packed) : put_modelopt(t, kQ, packed);
      const std::string name = std::string(kQ) + (compressed ? ".weight_global_scale" : ".weight_scale_2");
      t.tensors()[name].bytes = bytes_of_float(global);
    });
  };
  for (const bool compressed : {false, true}) {
    EXPECT_THAT(with_global(0.0f, compressed), HasSubstr("expected a number above 0, found 0"));
    EXPECT_THAT(with_global(-1.0f, compressed), HasSubstr("expected a number above 0, found -1"));
    EXPECT_THAT(with_global(NAN, compressed), HasSubstr("expected a finite number, found nan"));
    EXPECT_THAT(with_global(INFINITY, compressed), HasSubstr("expected a finite number, found inf"));
  }
  EXPECT_THAT(with_global(1e-44f, true), HasSubstr("expected a number above 0"));  // its inverse overflows

  const auto without = [&](const char* suffix) {
    return error_after([&](TinyCheckpoint& t) {
      put_modelopt(t, kQ, packed);
      t.tensors().erase(std::string(kQ) + suffix);
    });
  };
  EXPECT_THAT(without(".weight_scale"), HasSubstr("q_proj.weight_scale is missing: expected F8_E4M3 [64, 4]"));
  EXPECT_THAT(without(".weight_scale_2"), HasSubstr("q_proj.weight_scale_2 is missing: expected one F32 number"));

  const auto with_shape = [&](const char* suffix, DType type, std::vector<int64_t> shape, size_t bytes) {
    return error_after([&](TinyCheckpoint& t) {
      put_modelopt(t, kQ, packed);
      t.put(std::string(kQ) + suffix, type, std::move(shape), std::string(bytes, '\1'));
    });
  };
  EXPECT_THAT(with_shape(".weight", DType::u8, {64, 64}, 64 * 64),
              HasSubstr("q_proj.weight: expected shape [64, 32], found [64, 64]"));
  EXPECT_THAT(with_shape(".weight_scale", DType::f8_e4m3, {64, 2}, 128), HasSubstr("expected shape [64, 4], found [64, 2]"));
  EXPECT_THAT(with_shape(".weight_scale", DType::bf16, {64, 4}, 512), HasSubstr("expected F8_E4M3"));
  EXPECT_THAT(with_shape(".weight_scale_2", DType::f32, {2}, 8),
              HasSubstr("expected one number of shape [] or [1], found [2]"));
}

TEST(Weights, Nvfp4NeedsRowsOfWholeBlocks) {
  std::string config = kTinyConfig;
  config.replace(config.find("\"intermediate_size\": 48"), 23, "\"intermediate_size\": 40");
  TinyCheckpoint tiny(SynthFormat::f32, 1, config);
  tiny.put("model.decoder.layers.0.mlp.down_proj.weight", DType::u8, {64, 20}, std::string(64 * 20, '\0'));
  EXPECT_THAT(tiny.load_error(),
              HasSubstr("down_proj.weight: NVFP4 needs rows of a multiple of 16 elements, but this weight is [64, 40]"));
}

TEST(Weights, MisalignedDataIsRefused) {
  TinyCheckpoint tiny;
  tiny.save();
  // One byte less of padding in the header moves all data by a byte.
  const std::string path = tiny.directory() + "/model.safetensors";
  std::ifstream in(path, std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(in)), {});
  uint64_t header;
  std::memcpy(&header, file.data(), 8);
  file.insert(8 + header, 1, ' ');
  ++header;
  std::memcpy(file.data(), &header, 8);
  std::ofstream(path, std::ios::binary) << file;
  const auto checkpoint = load_checkpoint(tiny.directory());
  ASSERT_FALSE(checkpoint);
  EXPECT_THAT(checkpoint.error().message, HasSubstr("does not begin at a multiple of 4 bytes"));
}

TEST(Weights, BadDirectoriesAndConfigs) {
  const TestFolder folder;
  const auto error = [](const std::string& directory) {
    const auto checkpoint = load_checkpoint(directory);
    return checkpoint ? "" : checkpoint.error().message;
  };
  EXPECT_THAT(error(folder.path() + "/none"), HasSubstr("expected a checkpoint directory"));
  EXPECT_THAT(error(folder.path()), HasSubstr("config.json"));
  folder.write("config.json", "{\"model_type\": \"llama\"}");
  EXPECT_THAT(error(folder.path()), HasSubstr("config.json: expected model_type"));
  folder.write("config.json", kTinyConfig);
  EXPECT_THAT(error(folder.path()), HasSubstr("expected model.safetensors"));
  folder.write("generation_config.json", "{\"t_min\": -1}");
  EXPECT_THAT(error(folder.path()), HasSubstr("generation_config.json: t_min"));
}

TEST(Weights, MoreThanTheMemoryIsRefused) {
  TinyCheckpoint tiny;
  tiny.save();
  const auto checkpoint = load_checkpoint(tiny.directory());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const uint64_t bytes = checkpoint->files.mapped_bytes();
  EXPECT_TRUE(check_fits(*checkpoint, bytes));
  const Status refused = check_fits(*checkpoint, bytes - 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the largest tensor is model.decoder.layers.0.experts.gate_up_proj"));
}

}  // namespace
}  // namespace dgem::model
