// Hidden states, caches and logits of one prompt and of the two canvases behind it.
#include "model/golden_checks.h"

#include <algorithm>
#include <cmath>

namespace dgem::model {
namespace {

std::string layer_name(const std::string& stem, int layer) { return fmt::format("{}.{}", stem, layer); }

// Hidden states after every recorded layer, and after the final norm.
Status check_hidden(const GoldenContext& c, const std::string& tag, const std::string& pass, const Output& output,
                    int64_t rows) {
  const int64_t hidden = c.model.config().hidden_size;
  for (int l = 0; l < c.model.config().num_layers(); ++l) {
    const std::string name = layer_name(tag + "." + pass + ".hidden", l);
    if (!c.file.has(name)) continue;  // the reference does not tell the last layer's
    DGEM_ASSIGN(const auto expected, c.file.floats(name, {rows, hidden}));
    c.tally.close_inner(pass + ".hidden", name, output.hidden[l], expected, hidden);
  }
  const std::string name = tag + "." + pass + ".last";
  DGEM_ASSIGN(const auto expected, c.file.floats(name, {rows, hidden}));
  c.tally.close_final(pass + ".last", name, output.last, expected, hidden);
  return {};
}

Status check_cache(const GoldenContext& c, const GoldenPrompt& prompt, const KvSegment& kv) {
  const Config& config = c.model.config();
  const int64_t length = static_cast<int64_t>(prompt.input.size());
  for (int l = 0; l < config.num_layers(); ++l) {
    const LayerConfig& layer = config.layers[l];
    const int64_t rows = layer.sliding ? std::min<int64_t>(length, config.sliding_window - 1) : length;
    const int got_rows = kv.end() - kv.layers[l].first;
    for (const bool keys : {true, false}) {
      const std::string kind = keys ? "cache.k" : "cache.v", name = layer_name(prompt.tag + "." + kind, l);
      DGEM_ASSIGN(const auto expected, c.file.floats(name, {layer.kv_heads, rows, layer.head_dim}));
      std::vector<float> got = c.model.download_kv(kv, l, keys);
      if (got_rows > rows) got = rows_from(got, layer.kv_heads, got_rows, layer.head_dim, static_cast<int>(got_rows - rows));
      c.tally.close_inner(kind, name, got, expected, layer.head_dim);
    }
  }
  return {};
}

// How far the choice between the two most likely tokens of each row is from the recorded one; see GoldenReport.
void compare_choices(const GoldenPrompt& prompt, std::span<const float> got, GoldenTally& tally) {
  const size_t rows = prompt.canvas.size(), vocab = prompt.logits.size() / rows;
  double gap = 0.0;
  int agreed = 0;
  for (size_t r = 0; r < rows; ++r) {
    const float* want = prompt.logits.data() + r * vocab;
    const float* have = got.data() + r * vocab;
    const size_t first = std::max_element(want, want + vocab) - want;
    size_t second = first == 0 ? vocab - 1 : 0;
    for (size_t v = 0; v < vocab; ++v) {
      if (v != first && want[v] > want[second]) second = v;
    }
    const auto probability = [&](const float* z) {  // of the first, against the second
      return 1.0 / (1.0 + std::exp(static_cast<double>(z[second]) - z[first]));
    };
    gap += std::abs(probability(have) - probability(want));
    agreed += static_cast<size_t>(std::max_element(have, have + vocab) - have) == first;
  }
  tally.choices(static_cast<int>(rows), agreed, gap);
}

}  // namespace

Status check_states(const GoldenContext& c, const GoldenPrompt& prompt) {
  Batch encoder;
  encoder.record_hidden = true;
  encoder.segments.push_back(prompt_segment(prompt.input, -1, nullptr));
  const Output prefilled = c.model.forward(encoder);
  DGEM_RETURN_IF_ERROR(check_hidden(c, prompt.tag, "encoder", prefilled, static_cast<int64_t>(prompt.input.size())));
  const Kv kv = prefilled.kept[0];
  DGEM_RETURN_IF_ERROR(check_cache(c, prompt, *kv));

  Batch read;
  read.record_hidden = true;
  read.segments.push_back(canvas_segment(prompt.canvas, -1, kv));
  ask_rows(read, 0);
  const Output output = c.model.forward(read);
  const int64_t rows = static_cast<int64_t>(prompt.canvas.size()), vocab = c.model.config().vocab_size;
  DGEM_RETURN_IF_ERROR(check_hidden(c, prompt.tag, "read", output, rows));
  const std::vector<float> logits = join_logits(output, 0, prompt.canvas.size());
  c.tally.close_final("read.logits", prompt.tag + ".read.logits", logits, prompt.logits, vocab);
  compare_choices(prompt, logits, c.tally);

  const std::string name = prompt.tag + ".read2.logits";
  DGEM_ASSIGN(const auto expected, c.file.floats(name, {rows, vocab}));
  c.tally.close_final("read2.logits", name, read_canvas(c.model, prompt.canvas2, kv, prompt.logits), expected, vocab);
  return {};
}

}  // namespace dgem::model
