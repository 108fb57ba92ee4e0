#include "model/model.h"

#include "model/dequantize.h"
#include "model/golden_test_models.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dgem::model {
namespace {

// A read at every canvas row over the whole vocabulary, behind `prompt`.
Batch read_behind(const Segment& prompt, std::span<const int32_t> canvas) {
  Batch batch;
  batch.segments.push_back(prompt);
  batch.segments.push_back({.canvas = true, .tokens = canvas, .parent = 0});
  for (int row = 0; row < static_cast<int>(canvas.size()); ++row) batch.asks.push_back({1, row, {}});
  return batch;
}

TEST(Model, GivenEmbeddingsTakeThePlaceOfTokens) {
  Model odd(golden_checkpoint("odd"), golden_device());
  const std::vector<int32_t> prompt = golden_prompt("odd", "b"), canvas = {5, 100, 7, 33, 9};
  const auto expected = odd.forward(read_behind({.tokens = prompt}, canvas)).logits;

  // The same embeddings by hand, scaled by √H as the table's are, in the place of other tokens.
  const int64_t hidden = odd.config().hidden_size;
  const int first = 4, rows = 3;
  std::vector<float> embeddings(rows * hidden);
  for (int r = 0; r < rows; ++r) {
    float* row = embeddings.data() + r * hidden;
    to_float(odd.checkpoint().text.embedding, prompt[first + r], row);
    for (int64_t h = 0; h < hidden; ++h) row[h] *= std::sqrt(static_cast<float>(hidden));
  }
  std::vector<int32_t> other = prompt;
  for (int r = 0; r < rows; ++r) other[first + r] = 3;
  EXPECT_NE(odd.forward(read_behind({.tokens = other}, canvas)).logits, expected);
  const Segment given = {.tokens = other, .embeddings = {{first, rows, embeddings.data()}}};
  EXPECT_EQ(odd.forward(read_behind(given, canvas)).logits, expected);
}

TEST(Model, ThePlaceholderOfImagesIsPadInPromptsOnly) {
  Model odd(golden_checkpoint("odd"), golden_device());
  const int32_t image = odd.config().image_token_id, pad = odd.config().pad_token_id;
  const std::vector<int32_t> with_image = {2, 9, image, 11}, with_pad = {2, 9, pad, 11}, canvas = {5, image, 7};
  const std::vector<int32_t> canvas_with_pad = {5, pad, 7};
  const auto expected = odd.forward(read_behind({.tokens = with_pad}, canvas)).logits;
  EXPECT_EQ(odd.forward(read_behind({.tokens = with_image}, canvas)).logits, expected);
  EXPECT_NE(odd.forward(read_behind({.tokens = with_pad}, canvas_with_pad)).logits, expected);
}

TEST(Model, KeptSegmentsHoldNoMoreThanLaterTokensSee) {
  Model odd(golden_checkpoint("odd"), golden_device());
  const std::vector<int32_t> prompt = golden_prompt("odd", "c");
  Batch batch;
  batch.segments.push_back({.tokens = prompt, .keep = true});
  const Kv kv = odd.forward(batch).kept[0];
  ASSERT_EQ(kv->end(), static_cast<int>(prompt.size()));
  ASSERT_GT(kv->end(), odd.config().sliding_window);
  size_t bytes = 0;
  for (int l = 0; l < odd.config().num_layers(); ++l) {
    const LayerConfig& shape = odd.config().layers[l];
    const int rows = kv->end() - kv->layers[l].first;
    EXPECT_EQ(rows, shape.sliding ? odd.config().sliding_window - 1 : kv->end()) << l;
    bytes += size_t{2} * rows * shape.kv_heads * shape.head_dim * sizeof(float);
  }
  EXPECT_LT(kv->bytes, bytes + size_t{128} * odd.config().num_layers());
}

}  // namespace
}  // namespace dgem::model
