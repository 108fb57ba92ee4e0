#include "decide/read.h"

#include "model/golden_test_models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace dgem::decide {
namespace {

class Read : public ::testing::Test {
 protected:
  Read() : model_(model::golden_checkpoint("sharp"), model::golden_device()) {
    canvas_.tokens = std::vector<int32_t>(16, 0);
    canvas_.length = 9;
    for (int i = 0; i < 9; ++i) canvas_.tokens[static_cast<size_t>(i)] = 10 + i;
    canvas_.slots = {{"a", 3, {"x", "y"}, {5, 6}}, {"b", 7, {"1", "2", "3"}, {7, 8, 9}}};
  }

  std::vector<std::vector<double>> read(uint64_t seed, int samples) {
    auto result = decide::read(model_, prompt_, canvas_, {seed, samples});
    EXPECT_TRUE(result) << result.error().message;
    return *result;
  }

  model::Model model_;
  std::vector<int32_t> prompt_ = {2, 11, 12, 13, 14};
  Canvas canvas_;
};

// Against the logits of the whole vocabulary, asked for by hand.
TEST_F(Read, IsTheSoftmaxOfTheLabelLogits) {
  const auto probabilities = read(3, 1);
  const std::vector<int32_t> tokens = fill_slots(canvas_, 3, 0, model_.config().vocab_size);
  model::Batch batch;
  batch.segments.resize(2);
  batch.segments[0].tokens = prompt_;
  batch.segments[1].canvas = true;
  batch.segments[1].tokens = tokens;
  batch.segments[1].parent = 0;
  batch.asks = {{1, 3, {}}, {1, 7, {}}};
  const model::Output output = model_.forward(batch);
  ASSERT_EQ(probabilities.size(), 2u);
  for (size_t slot = 0; slot < 2; ++slot) {
    const auto& ids = canvas_.slots[slot].label_ids;
    double total = 0.0;
    for (const int32_t id : ids) total += std::exp(static_cast<double>(output.logits[slot][static_cast<size_t>(id)]));
    ASSERT_EQ(probabilities[slot].size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_NEAR(probabilities[slot][i],
                  std::exp(static_cast<double>(output.logits[slot][static_cast<size_t>(ids[i])])) / total, 1e-5);
    }
    EXPECT_NEAR(std::accumulate(probabilities[slot].begin(), probabilities[slot].end(), 0.0), 1.0, 1e-12);
  }
}

TEST_F(Read, SamplesAreAveraged) {
  // The first draw of a batch of three has the bits of a batch of one, so the other two must make up the difference.
  const auto one = read(3, 1), three = read(3, 3), again = read(3, 3);
  EXPECT_EQ(three, again);
  EXPECT_NE(one, three);
  for (size_t slot = 0; slot < three.size(); ++slot) {
    EXPECT_NEAR(std::accumulate(three[slot].begin(), three[slot].end(), 0.0), 1.0, 1e-12);
    for (size_t i = 0; i < three[slot].size(); ++i) {
      const double others = 3.0 * three[slot][i] - one[slot][i];
      EXPECT_TRUE(others > -1e-12 && others < 2.0 + 1e-12) << others;
    }
  }
}

TEST_F(Read, OtherNoiseOtherBits) { EXPECT_NE(read(3, 1), read(4, 1)); }

TEST_F(Read, RefusesTokensOfAnotherVocabulary) {
  prompt_.push_back(static_cast<int32_t>(model_.config().vocab_size));
  const auto result = decide::read(model_, prompt_, canvas_, {});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("belongs to another model"), std::string::npos);
}

TEST_F(Read, RefusesPromptsThatAreTooLong) {
  prompt_.assign(static_cast<size_t>(model_.config().max_position_embeddings), 11);
  const auto result = decide::read(model_, prompt_, canvas_, {});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("shorten the prompt"), std::string::npos);
}

}  // namespace
}  // namespace dgem::decide
