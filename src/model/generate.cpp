#include "model/generate.h"

#include <algorithm>

namespace dgem::model {
namespace {

// One block's canvas on its way from noise to text.
class Denoiser {
 public:
  Denoiser(Model& model, const GenerationConfig& config, const CounterRandom& random, int block)
      : model_(model), config_(config), random_(random), block_(block), stop_(config) {
    canvas_.resize(model.config().canvas_length);
    for (int i = 0; i < length(); ++i) canvas_[i] = draw_noise(0, i, CounterRandom::Use::init);
  }

  // Runs one denoising step behind `context`, or behind the tokens `fresh` that follow it, which go through the layers
  // in the same pass. Returns their keys and values, or `context` if there are none.
  Kv step(Kv context, std::span<const int32_t> fresh) {
    Batch batch;
    Segment canvas;
    canvas.canvas = true;
    canvas.tokens = canvas_;
    canvas.self_conditioning = logits_;
    if (fresh.empty()) {
      canvas.cached = context;
    } else {
      Segment prompt;
      prompt.tokens = fresh;
      prompt.cached = context;
      prompt.keep = true;
      batch.segments.push_back(std::move(prompt));
      canvas.parent = 0;
    }
    batch.segments.push_back(std::move(canvas));
    const int segment = static_cast<int>(batch.segments.size()) - 1;
    for (int i = 0; i < length(); ++i) batch.asks.push_back({segment, i, {}});
    Output output = model_.forward(batch);
    take(output);
    return fresh.empty() ? context : output.kept[0];
  }

  bool done() const { return done_; }
  int steps() const { return steps_; }
  const std::vector<int32_t>& argmax() const { return argmax_; }

 private:
  int length() const { return static_cast<int>(canvas_.size()); }

  int32_t draw_noise(int step, int position, CounterRandom::Use use) const {
    return random_.below(static_cast<int32_t>(model_.config().vocab_size), block_, step, position, use);
  }

  // Decides from the step's logits: the argmax canvas, whether the block is done, and if not the next canvas.
  void take(const Output& output) {
    const size_t vocab = model_.config().vocab_size;
    const float t = static_cast<float>(temperature(config_, config_.max_denoising_steps - steps_));
    logits_.resize(canvas_.size() * vocab);
    for (size_t p = 0; p < canvas_.size(); ++p) {
      std::transform(output.logits[p].begin(), output.logits[p].end(), logits_.begin() + p * vocab,
                     [t](float z) { return z / t; });
    }
    TokenStatistics statistics = token_statistics(logits_, length());
    argmax_ = std::move(statistics.argmax);
    const int step = steps_++;
    done_ = stop_.step(argmax_, statistics.entropy) || steps_ == config_.max_denoising_steps;
    if (done_) return;
    const std::vector<uint8_t> accepted = accept(statistics.entropy, config_.entropy_bound);
    std::vector<int32_t> sampled(canvas_.size(), 0), renoise(canvas_.size());
    for (int i = 0; i < length(); ++i) {
      renoise[i] = draw_noise(step, i, CounterRandom::Use::renoise);
      if (!accepted[i]) continue;  // its sample would not be used
      const double uniform = random_.uniform(block_, step, i, CounterRandom::Use::sample);
      sampled[i] = sample_tokens(std::span(logits_).subspan(i * vocab, vocab), {&uniform, 1})[0];
    }
    canvas_ = next_canvas(accepted, sampled, renoise);
  }

  Model& model_;
  const GenerationConfig& config_;
  const CounterRandom& random_;
  const int block_;
  StopRule stop_;
  std::vector<int32_t> canvas_, argmax_;
  std::vector<float> logits_;  // of the last step, divided by its temperature; empty before the first
  int steps_ = 0;
  bool done_ = false;
};

}  // namespace

GenerateResult generate(Model& model, std::span<const int32_t> prompt, const GenerateOptions& options) {
  const GenerationConfig& config = options.config;
  DGEM_CHECK(!prompt.empty() && config.max_denoising_steps > 0);
  const std::vector<int32_t>& end_tokens = !options.end_tokens.empty()     ? options.end_tokens
                                           : !config.eos_token_ids.empty() ? config.eos_token_ids
                                                                           : model.config().eos_token_ids;
  const auto report = [&](int block, int step, std::span<const int32_t> tokens) {
    return !options.on_tokens || options.on_tokens(block, step, tokens);
  };
  const int length = model.config().canvas_length;
  const int blocks = config.max_new_tokens / length + (config.max_new_tokens % length > 0 ? 1 : 0);
  const CounterRandom random(options.seed);
  GenerateResult result;
  Kv context;
  // What is not encoded yet: the prompt, later the block before. It is encoded together with the next block's first
  // step, so that the weights are read once for both.
  std::vector<int32_t> fresh(prompt.begin(), prompt.end());
  for (int block = 0; block < blocks; ++block) {
    Denoiser denoiser(model, config, random, block);
    while (!denoiser.done()) {
      context = denoiser.step(std::move(context), fresh);
      fresh.clear();
      if (!report(block, denoiser.steps() - 1, denoiser.argmax())) {
        result.stopped = true;
        return result;
      }
    }
    fresh = denoiser.argmax();
    result.steps.push_back(denoiser.steps());
    const auto end = std::find_first_of(fresh.begin(), fresh.end(), end_tokens.begin(), end_tokens.end());
    result.ended = end != fresh.end();
    const std::span<const int32_t> final_tokens(fresh.begin(), result.ended ? end + 1 : end);
    result.tokens.insert(result.tokens.end(), final_tokens.begin(), final_tokens.end());
    result.stopped = !report(block, -1, final_tokens);
    if (result.ended || result.stopped) break;
  }
  return result;
}

}  // namespace dgem::model
