#include "bench/engine_bench.h"

#include "bench/measure.h"

#include <algorithm>
#include <random>

namespace dgem::bench {
namespace {

// The batch's tokens, random but for the lowest ids, which may be special.
struct Tokens {
  std::vector<std::vector<int32_t>> prompts, canvases;
  std::vector<int32_t> labels;

  Tokens(const EngineBenchOptions& options, int64_t vocab) {
    std::mt19937 random(20261201);
    const auto draw = [&](size_t n) {
      std::vector<int32_t> ids(n);
      for (auto& id : ids)
        id = static_cast<int32_t>(std::min<int64_t>(3, vocab - 1) + random() % std::max<int64_t>(1, vocab - 3));
      return ids;
    };
    for (int b = 0; b < options.batch; ++b) {
      prompts.push_back(draw(options.prompt));
      canvases.push_back(draw(options.canvas));
    }
    labels = draw(options.labels);
  }
};

void ask(const EngineBenchOptions& options, const Tokens& tokens, int segment, model::Batch& batch) {
  for (int s = 0; s < std::min(options.slots, options.canvas); ++s) {
    batch.asks.push_back({segment, s * options.canvas / options.slots, tokens.labels});
  }
}

PassTime time_pass(model::Model& model, const char* name, const model::Batch& batch, int runs) {
  PassTime pass;
  pass.name = name;
  for (const auto& segment : batch.segments) pass.rows += static_cast<int>(segment.tokens.size());
  pass.work = model::work_of(model.checkpoint(), batch);
  std::vector<double> times = {seconds_of([&] { model.forward(batch); })};
  if (runs == 0) runs = std::clamp(static_cast<int>(4.0 / times[0]), 3, 30);
  times.clear();
  for (int i = 0; i < runs; ++i) times.push_back(seconds_of([&] { model.forward(batch); }));
  pass.median = median(times);
  pass.best = *std::min_element(times.begin(), times.end());
  pass.runs = runs;
  return pass;
}

}  // namespace

double PassTime::floor(const MachinePeak& peak) const {
  return std::max(work.flops() / peak.flops, work.weight_bytes / peak.read_bytes);
}

EngineBenchResult bench_engine(model::Model& model, TimedOps& timed, const EngineBenchOptions& options) {
  const Tokens tokens(options, model.config().vocab_size);
  model::Batch fused, prefill;
  for (int b = 0; b < options.batch; ++b) {
    const int at = static_cast<int>(fused.segments.size());
    fused.segments.push_back({.tokens = tokens.prompts[b]});
    fused.segments.push_back({.canvas = true, .tokens = tokens.canvases[b], .parent = at});
    ask(options, tokens, at + 1, fused);
    prefill.segments.push_back({.tokens = tokens.prompts[b], .keep = true});
  }
  EngineBenchResult result;
  result.first_pass = seconds_of([&] { model.forward(fused); });

  model::Batch read;
  const auto kept = model.forward(prefill).kept;
  for (int b = 0; b < options.batch; ++b) {
    read.segments.push_back({.canvas = true, .tokens = tokens.canvases[b], .cached = kept[b]});
    ask(options, tokens, b, read);
  }
  result.passes.push_back(time_pass(model, "prefill", prefill, options.runs));
  result.passes.push_back(time_pass(model, "read", read, options.runs));
  timed.reset();
  result.passes.push_back(time_pass(model, "fused", fused, options.runs));
  result.spent = timed.spent();
  result.fused_runs = result.passes.back().runs + 1;
  return result;
}

}  // namespace dgem::bench
