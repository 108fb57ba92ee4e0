// A recorded generation: every step is computed from the recorded canvas and the recorded logits before it, so that
// rounding does not add up, and every decision from the recorded logits and draws, so that it must come out equal.
#include "model/golden_checks.h"
#include "model/sampler.h"

#include <algorithm>

namespace dgem::model {
namespace {

// Entropies (nats) come from the same logits in both: they differ by rounding only, whatever the activations' precision.
constexpr double kEntropyTolerance = 1e-5;
constexpr double kTemperatureTolerance = 1e-6;

struct Block {
  int index = 0;
  int steps = 0;               // recorded
  std::vector<int32_t> start;  // recorded canvas at its start
};

// Replays one block; returns its result, the last argmax canvas.
Result<std::vector<int32_t>> check_block(const GoldenContext& c, const std::string& tag, const Block& block,
                                         const Kv& context) {
  const GenerationConfig& settings = c.file.generation();
  const int64_t length = static_cast<int64_t>(block.start.size()), vocab = c.model.config().vocab_size;
  StopRule stop(settings);
  std::vector<int32_t> canvas = block.start, argmax;
  std::vector<float> previous;
  for (int step = 0; step < block.steps; ++step) {
    const auto name = [&](const char* what) { return fmt::format("{}.gen.{}.{}.{}", tag, what, block.index, step); };
    DGEM_ASSIGN(const auto recorded_canvas, c.file.tokens(name("canvas"), {length}));
    c.tally.same("gen.canvas", name("canvas"), canvas, recorded_canvas);

    DGEM_ASSIGN(const auto recorded_temperature, c.file.floats(name("temperature"), {1}));
    const float t = static_cast<float>(temperature(settings, settings.max_denoising_steps - step));
    c.tally.near("gen.temperature", name("temperature"), {&t, 1}, recorded_temperature, kTemperatureTolerance);

    DGEM_ASSIGN(auto recorded_logits, c.file.floats(name("logits"), {length, vocab}));
    std::vector<float> logits = read_canvas(c.model, recorded_canvas, context, previous);
    for (float& z : logits) z /= t;
    c.tally.close_final("gen.logits", name("logits"), logits, recorded_logits, vocab);

    TokenStatistics statistics = token_statistics(recorded_logits, static_cast<int>(length));
    DGEM_ASSIGN(const auto recorded_entropy, c.file.floats(name("entropy"), {length}));
    c.tally.near("gen.entropy", name("entropy"), statistics.entropy, recorded_entropy, kEntropyTolerance);

    DGEM_ASSIGN(const auto recorded_accepted, c.file.bytes(name("accepted"), {length}));
    // From the recorded entropies: two that differ by rounding alone may change places among ours.
    c.tally.same("gen.accepted", name("accepted"), accept(recorded_entropy, settings.entropy_bound), recorded_accepted);

    DGEM_ASSIGN(const auto sampled, c.file.tokens(name("sampled"), {length}));
    DGEM_ASSIGN(const auto renoise, c.file.tokens(name("renoise"), {length}));
    canvas = next_canvas(recorded_accepted, sampled, renoise);
    argmax = std::move(statistics.argmax);
    previous = std::move(recorded_logits);

    const int32_t last = stop.step(argmax, statistics.entropy) || step + 1 == settings.max_denoising_steps;
    const int32_t recorded_last = step + 1 == block.steps;
    c.tally.same("gen.steps", fmt::format("{}.gen.steps, block {} step {}", tag, block.index, step), {&last, 1},
                 {&recorded_last, 1});
  }
  return argmax;
}

}  // namespace

Status check_generation(const GoldenContext& c, const GoldenPrompt& prompt) {
  const GenerationConfig& settings = c.file.generation();
  const std::string stem = prompt.tag + ".gen.";
  const int length = c.model.config().canvas_length;
  DGEM_ASSIGN(const auto steps, c.file.integers(stem + "steps", {-1}));
  const int blocks = static_cast<int>(steps.size());
  DGEM_ASSIGN(const auto init, c.file.tokens(stem + "init", {blocks, length}));
  DGEM_ASSIGN(const auto sequence, c.file.tokens(stem + "sequences", {-1}));

  std::vector<int32_t> tokens = prompt.input;
  Kv context = prefill(c.model, prompt.input, nullptr);
  bool ended = false;
  for (int b = 0; b < blocks; ++b) {
    if (steps[b] < 1) return make_error("tensor {}steps holds {}, expected at least 1", stem, steps[b]);
    const auto row = init.begin() + static_cast<ptrdiff_t>(b) * length;
    DGEM_ASSIGN(const auto result, check_block(c, prompt.tag, {b, steps[b], {row, row + length}}, context));
    // Behind the first end token the reference returns padding.
    const auto end = ended ? result.begin()
                           : std::find_first_of(result.begin(), result.end(), settings.eos_token_ids.begin(),
                                                settings.eos_token_ids.end());
    const auto kept = end == result.end() || ended ? end : end + 1;
    ended = ended || end != result.end();
    tokens.insert(tokens.end(), result.begin(), kept);
    tokens.insert(tokens.end(), result.end() - kept, settings.pad_token_id);
    if (b + 1 < blocks) context = prefill(c.model, result, context);
  }
  const int32_t expected_blocks = ended ? blocks : (settings.max_new_tokens + length - 1) / length;
  c.tally.same("gen.sequences", stem + "sequences, blocks", {&expected_blocks, 1}, std::span(&blocks, 1));
  c.tally.same("gen.sequences", stem + "sequences", tokens, sequence);
  return {};
}

}  // namespace dgem::model
