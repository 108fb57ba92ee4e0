#include "model/generate.h"

#include "model/golden_test_models.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dgem::model {
namespace {

constexpr int32_t kNever = -1;  // an end token that no model writes

GenerateOptions options_of(int max_new_tokens, int steps, uint64_t seed, std::vector<int32_t> end_tokens = {kNever}) {
  GenerateOptions options;
  options.config.max_new_tokens = max_new_tokens;
  options.config.max_denoising_steps = steps;
  options.end_tokens = std::move(end_tokens);
  options.seed = seed;
  return options;
}

class Generate : public testing::Test {
 protected:
  Model odd{golden_checkpoint("odd"), golden_device()};  // canvas of 24
  std::vector<int32_t> prompt = golden_prompt("odd", "b");
};

TEST_F(Generate, SameSeedSameText) {
  const GenerateResult first = generate(odd, prompt, options_of(48, 4, 1));
  EXPECT_EQ(first.tokens, generate(odd, prompt, options_of(48, 4, 1)).tokens);
  EXPECT_NE(first.tokens, generate(odd, prompt, options_of(48, 4, 2)).tokens);
}

TEST_F(Generate, SameTextOnAnyNumberOfThreads) {
  const GenerateResult expected = generate(odd, prompt, options_of(48, 4, 5));
  for (const int threads : {1, 3}) {
    Model model(golden_checkpoint("odd"), golden_device("", threads));
    EXPECT_EQ(generate(model, prompt, options_of(48, 4, 5)).tokens, expected.tokens) << threads;
  }
}

TEST_F(Generate, RoundsUpToWholeCanvases) {
  for (const auto& [wanted, blocks] : {std::pair{0, 0}, {1, 1}, {24, 1}, {25, 2}, {49, 3}}) {
    const GenerateResult result = generate(odd, prompt, options_of(wanted, 2, 1));
    EXPECT_EQ(result.tokens.size(), static_cast<size_t>(24 * blocks)) << wanted;
    EXPECT_EQ(result.steps, std::vector<int>(blocks, 2)) << wanted;
    EXPECT_FALSE(result.ended);
    EXPECT_FALSE(result.stopped);
  }
}

// The same generation one pass at a time: the prompt, each step, each finished block on its own.
std::vector<int32_t> generate_plainly(Model& model, std::span<const int32_t> prompt, const GenerateOptions& options,
                                      int blocks) {
  const int length = model.config().canvas_length, vocab = static_cast<int>(model.config().vocab_size);
  const CounterRandom random(options.seed);
  const auto encode = [&](std::span<const int32_t> tokens, Kv cached) {
    Segment segment;
    segment.tokens = tokens;
    segment.cached = std::move(cached);
    segment.keep = true;
    Batch batch;
    batch.segments.push_back(segment);
    return model.forward(batch).kept[0];
  };
  Kv context = encode(prompt, nullptr);
  std::vector<int32_t> text;
  for (int b = 0; b < blocks; ++b) {
    std::vector<int32_t> canvas, argmax;
    for (int i = 0; i < length; ++i) canvas.push_back(random.below(vocab, b, 0, i, CounterRandom::Use::init));
    std::vector<float> logits;
    StopRule stop(options.config);
    for (int step = 0; step < options.config.max_denoising_steps; ++step) {
      Segment segment;
      segment.canvas = true;
      segment.tokens = canvas;
      segment.cached = context;
      segment.self_conditioning = logits;
      Batch batch;
      batch.segments.push_back(segment);
      for (int i = 0; i < length; ++i) batch.asks.push_back({0, i, {}});
      const Output output = model.forward(batch);
      logits.clear();
      const float t = static_cast<float>(temperature(options.config, options.config.max_denoising_steps - step));
      for (const auto& row : output.logits) {
        for (const float z : row) logits.push_back(z / t);
      }
      const TokenStatistics statistics = token_statistics(logits, length);
      argmax = statistics.argmax;
      if (stop.step(argmax, statistics.entropy)) break;
      std::vector<double> uniform;
      std::vector<int32_t> renoise;
      for (int i = 0; i < length; ++i) {
        uniform.push_back(random.uniform(b, step, i, CounterRandom::Use::sample));
        renoise.push_back(random.below(vocab, b, step, i, CounterRandom::Use::renoise));
      }
      const std::vector<uint8_t> accepted = accept(statistics.entropy, options.config.entropy_bound);
      canvas = next_canvas(accepted, sample_tokens(logits, uniform), renoise);
    }
    text.insert(text.end(), argmax.begin(), argmax.end());
    context = encode(argmax, context);
  }
  return text;
}

TEST_F(Generate, IsThePlainLoop) {
  GenerateOptions options = options_of(60, 5, 11);
  EXPECT_EQ(generate(odd, prompt, options).tokens, generate_plainly(odd, prompt, options, 3));
  // Peaked distributions, where tokens are accepted and blocks stop early.
  Model sharp(golden_checkpoint("sharp"), golden_device());
  options = options_of(48, 12, 3);
  options.config.confidence_threshold = 2.0;
  const std::vector<int32_t> other = golden_prompt("sharp", "b");
  EXPECT_EQ(generate(sharp, other, options).tokens, generate_plainly(sharp, other, options, 3));
}

TEST_F(Generate, StopsABlockWhenItsCanvasIsSettled) {
  GenerateOptions options = options_of(48, 6, 1);
  options.config.confidence_threshold = 1e9;
  options.config.stability_threshold = 0;
  EXPECT_EQ(generate(odd, prompt, options).steps, (std::vector<int>{1, 1}));
}

TEST_F(Generate, CutsBehindTheFirstEndToken) {
  const std::vector<int32_t> whole = generate(odd, prompt, options_of(72, 3, 9)).tokens;
  ASSERT_EQ(whole.size(), 72u);
  // An end token met first in the second block.
  const auto second = whole.begin() + 24;
  const auto is_new = [&](int32_t id) { return std::find(whole.begin(), second, id) == second; };
  const auto end = std::find_if(second, second + 24, is_new);
  ASSERT_NE(end, whole.begin() + 48);
  GenerateOptions options = options_of(72, 3, 9, {kNever, *end});
  const GenerateResult result = generate(odd, prompt, options);
  EXPECT_EQ(result.tokens, std::vector<int32_t>(whole.begin(), end + 1));
  EXPECT_TRUE(result.ended);
  EXPECT_EQ(result.steps.size(), 2u);
  // The settings' end tokens count where the call gives none.
  options.config.eos_token_ids = options.end_tokens;
  options.end_tokens.clear();
  EXPECT_EQ(generate(odd, prompt, options).tokens, result.tokens);
}

TEST_F(Generate, ReportsDraftsAndFinishedBlocks) {
  GenerateOptions options = options_of(48, 2, 4);
  std::vector<std::pair<int, int>> calls;
  std::vector<int32_t> draft, text;
  options.on_tokens = [&](int block, int step, std::span<const int32_t> tokens) {
    calls.emplace_back(block, step);
    if (step == -1) text.insert(text.end(), tokens.begin(), tokens.end());
    EXPECT_EQ(tokens.size(), 24u);
    return true;
  };
  const GenerateResult result = generate(odd, prompt, options);
  EXPECT_EQ(calls, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {0, -1}, {1, 0}, {1, 1}, {1, -1}}));
  EXPECT_EQ(text, result.tokens);
  EXPECT_FALSE(result.stopped);
}

TEST_F(Generate, CanBeStopped) {
  const std::vector<int32_t> whole = generate(odd, prompt, options_of(72, 2, 4)).tokens;
  GenerateOptions options = options_of(72, 2, 4);
  for (const auto& [last, kept] : {std::pair{std::pair{0, 0}, 0}, {{0, -1}, 24}, {{1, 1}, 24}, {{1, -1}, 48}}) {
    int calls_after = 0;
    bool said_no = false;
    options.on_tokens = [&, last = last](int block, int step, std::span<const int32_t>) {
      calls_after += said_no;
      said_no = said_no || std::pair(block, step) == last;
      return !said_no;
    };
    const GenerateResult result = generate(odd, prompt, options);
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(calls_after, 0);
    EXPECT_EQ(result.tokens, std::vector<int32_t>(whole.begin(), whole.begin() + kept));
  }
}

}  // namespace
}  // namespace dgem::model
