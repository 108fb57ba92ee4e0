#include "model/golden.h"

#include "base/test_files.h"
#include "model/golden_checks.h"
#include "model/golden_test_models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

namespace dgem::model {
namespace {

constexpr double kTolerance = 1e-4;

std::string recorded(const std::string& name) { return golden_folder(name) + "/golden.safetensors"; }

GoldenReport report_of(Model& model, const std::string& path, double tolerance = kTolerance) {
  return golden_value(run_golden(model, golden_value(TensorFiles::open_file(path)), tolerance));
}

// The checks that failed, as "kind (where: error)".
std::string failures(const GoldenReport& report) {
  std::string text;
  for (const GoldenCheck& c : report.checks) {
    if (!c.ok) text += fmt::format("{} ({}: {:.2e}) ", c.kind, c.where, c.worst);
  }
  return text;
}

bool ok(const GoldenReport& report, const std::string& kind) {
  for (const GoldenCheck& c : report.checks) {
    if (c.kind == kind) return c.ok;
  }
  ADD_FAILURE() << "no check is called " << kind;
  return false;
}

class GoldenCase : public testing::TestWithParam<const char*> {
 protected:
  // One report for each instruction set that this processor has.
  void run(ops::Precision precision, double tolerance, double least_agreement) {
    const std::string name = GetParam();
    const auto checkpoint = golden_checkpoint(name);
    for (const ops::cpu::Isa isa : ops::cpu::available()) {
      Model model(checkpoint, golden_device(ops::cpu::name_of(isa), 1, precision));
      const GoldenReport report = report_of(model, recorded(name), tolerance);
      EXPECT_EQ(failures(report), "") << name << " on " << model.device().name();
      EXPECT_EQ(report.checks.size(), 20u);
      EXPECT_GE(report.top_agreement, least_agreement);
    }
  }
};

TEST_P(GoldenCase, IsReproducedInF32) { run(ops::Precision::f32, kTolerance, 1.0); }
TEST_P(GoldenCase, IsReproducedInBf16) { run(ops::Precision::bf16, 2e-2, 0.9); }

INSTANTIATE_TEST_SUITE_P(, GoldenCase, testing::Values("odd", "sharp", "modelopt", "compressed"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Golden, SameBitsOnAnyNumberOfThreads) {
  const auto checkpoint = golden_checkpoint("odd");
  const std::vector<int32_t> prompt = golden_prompt("odd", "c"), canvas = golden_prompt("odd", "b");
  for (const ops::cpu::Isa isa : ops::cpu::available()) {
    for (const ops::Precision precision : {ops::Precision::f32, ops::Precision::bf16}) {
      std::vector<float> expected;
      for (const int threads : {1, 3}) {
        Model model(checkpoint, golden_device(ops::cpu::name_of(isa), threads, precision));
        const std::vector<float> logits = read_canvas(model, canvas, prefill(model, prompt, nullptr));
        if (expected.empty()) expected = logits;
        ASSERT_EQ(logits.size(), expected.size());
        EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0) << model.device().name();
      }
    }
  }
}

// A wrong model must fail, and only where it is wrong.
TEST(Golden, NoticesAWrongModel) {
  Checkpoint checkpoint = golden_value(load_checkpoint(golden_folder("odd")));
  checkpoint.text.layers[2].decoder_scalar *= 1.001f;
  Model model(std::make_shared<const Checkpoint>(std::move(checkpoint)), golden_device());
  const GoldenReport report = report_of(model, recorded("odd"));
  EXPECT_FALSE(report.ok());
  for (const char* kind : {"read.hidden", "read.last", "read.logits", "read2.logits", "gen.logits"}) {
    EXPECT_FALSE(ok(report, kind)) << kind;
  }
  for (const char* kind : {"encoder.hidden", "encoder.last", "cache.k", "cache.v", "gen.accepted", "bits: tree"}) {
    EXPECT_TRUE(ok(report, kind)) << kind;
  }
}

// golden.safetensors of a case, to be changed and written elsewhere.
class Recording {
 public:
  explicit Recording(const std::string& name) {
    std::ifstream in(recorded(name), std::ios::binary);
    file_.assign(std::istreambuf_iterator<char>(in), {});
    header_ = golden_value(parse_safetensors(std::as_bytes(std::span(file_))));
  }
  // Adds `by` to the first element of the tensor.
  template <class T>
  void shift(const std::string& tensor, T by) {
    char* at = bytes_of_tensor(tensor);
    T value;
    std::memcpy(&value, at, sizeof value);
    value = static_cast<T>(value + by);
    std::memcpy(at, &value, sizeof value);
  }
  // Renames the tensor, so that it is missing; the name keeps its length.
  void hide(const std::string& tensor) {
    const size_t at = file_.find('"' + tensor + '"');
    ASSERT_NE(at, std::string::npos);
    file_[at + 1] = '_';
  }
  std::string write(const TestFolder& folder) const { return folder.write("golden.safetensors", file_); }

 private:
  char* bytes_of_tensor(const std::string& name) {
    for (const Tensor& t : header_.tensors) {
      if (t.name == name) return file_.data() + (t.data - std::as_bytes(std::span(file_)).data());
    }
    throw std::runtime_error("no tensor " + name);
  }
  std::string file_;
  Header header_;
};

TEST(Golden, NoticesAWrongValueOfEveryKind) {
  Model model(golden_checkpoint("compressed"), golden_device());
  const TestFolder folder;
  const auto fails = [&](const std::string& kind, const std::string& tensor, auto by) {
    Recording recording("compressed");
    recording.shift(tensor, by);
    const GoldenReport report = report_of(model, recording.write(folder));
    EXPECT_FALSE(ok(report, kind)) << kind;
    EXPECT_FALSE(report.ok());
  };
  fails("encoder.hidden", "a.encoder.hidden.1", 0.1f);
  fails("encoder.last", "a.encoder.last", 0.1f);
  fails("cache.k", "b.cache.k.0", 0.1f);
  fails("cache.v", "b.cache.v.5", 0.1f);
  fails("read.hidden", "b.read.hidden.2", 0.1f);
  fails("read.last", "a.read.last", 0.1f);
  fails("read.logits", "a.read.logits", 0.1f);
  fails("read2.logits", "a.read2.logits", 0.1f);
  fails("gen.canvas", "b.gen.init", 1);
  fails("gen.canvas", "b.gen.renoise.0.1", 1);
  fails("gen.logits", "b.gen.logits.2.5", 0.5f);
  fails("gen.temperature", "a.gen.temperature.0.3", 0.01f);
  fails("gen.entropy", "a.gen.entropy.0.3", 0.01f);
  fails("gen.accepted", "a.gen.accepted.0.3", uint8_t{1});
  fails("gen.steps", "a.gen.steps", -1);
  fails("gen.sequences", "b.gen.sequences", 1);
}

TEST(Golden, SaysWhatIsMissingOrMalformed) {
  Model model(golden_checkpoint("compressed"), golden_device());
  const TestFolder folder;
  const auto error_of = [&](const Recording& recording) {
    const auto result = run_golden(model, golden_value(TensorFiles::open_file(recording.write(folder))), kTolerance);
    return result.ok() ? std::string() : result.error().message;
  };
  Recording missing("compressed");
  missing.hide("b.read2.logits");
  EXPECT_EQ(error_of(missing), "tensor b.read2.logits is missing");
  Recording outside("compressed");
  outside.shift("a.canvas_ids", 100000);
  EXPECT_NE(error_of(outside).find("tensor a.canvas_ids holds"), std::string::npos);
  Recording steps("compressed");
  steps.shift("a.gen.steps", -6);
  EXPECT_NE(error_of(steps).find("expected at least 1"), std::string::npos);
  const auto weights = golden_value(TensorFiles::open_file(golden_folder("odd") + "/model.safetensors"));
  EXPECT_FALSE(run_golden(model, weights, kTolerance).ok());
}

TEST(Golden, TallyTakesNoNonsense) {
  const std::vector<float> one = {1.0f}, two = {1.0f, 2.0f}, none = {std::nanf("")}, zero = {0.0f}, minus_zero = {-0.0f};
  GoldenTally tally(1.0, false);
  tally.close_inner("size", "", one, two, 1);
  tally.close_inner("nan", "first", none, one, 1);
  tally.close_inner("nan", "second", one, one, 1);
  tally.close_final("from zero", "", one, zero, 1);
  tally.near("near size", "", one, two, 9.0);
  tally.near("near nan", "", none, one, 9.0);
  tally.near("far", "", std::vector<float>{1.0f, 2.5f}, two, 0.4);
  tally.same_bits("sign", "", zero, minus_zero);
  tally.same_bits("length", "", one, two);
  tally.close_final("fine", "", two, two, 2);
  const GoldenReport report = std::move(tally).finish();
  EXPECT_EQ(report.checks.size(), 9u);
  for (const GoldenCheck& c : report.checks) EXPECT_EQ(c.ok, c.kind == "fine") << c.kind;
  EXPECT_EQ(report.checks[1].where, "first");
}

// With bf16 activations the median over all rows of a kind counts, and behind the last layer only the shape.
TEST(Golden, TallyByRow) {
  const std::vector<float> rows = {1.0f, 1.0f, 1.0f}, one_off = {9.0f, 1.0f, 1.0f}, two_off = {9.0f, 9.0f, 1.0f};
  GoldenTally tally(0.5, true);
  tally.close_inner("one row", "", one_off, rows, 1);
  tally.close_inner("two rows", "", two_off, rows, 1);
  tally.close_inner("outweighed", "", two_off, rows, 1);
  tally.close_inner("outweighed", "", rows, rows, 1);
  tally.close_final("final", "", two_off, rows, 1);
  tally.close_final("size", "", rows, std::vector<float>{1.0f}, 1);
  tally.close_final("nan", "", std::vector<float>{std::nanf(""), 1.0f, 1.0f}, rows, 1);
  const std::vector<bool> expected = {true, false, true, true, false, false};
  const GoldenReport report = std::move(tally).finish();
  ASSERT_EQ(report.checks.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(report.checks[i].ok, expected[i]) << report.checks[i].kind;
  EXPECT_FALSE(report.checks[3].judged);
}

}  // namespace
}  // namespace dgem::model
