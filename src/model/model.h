// The forward pass (model.md 3): a ragged batch of prompt rows and canvas rows through all layers together, so that
// each weight is read once per batch. Written over ops::Ops only; it names no instruction set and no device.
#pragma once

#include "model/kv_cache.h"
#include "model/weights.h"
#include "ops/ops.h"

#include <memory>
#include <span>
#include <vector>

namespace dgem::model {

// Tokens that follow each other. Prompt segments run with the encoder's scalars, causally; canvas segments with the
// decoder's, every row seeing the prompt before it and its whole canvas. Segments form a tree: `parent` is the index of
// an earlier prompt segment of the batch, else `cached` (may be null) holds what comes before.
struct Segment {
  bool canvas = false;
  std::span<const int32_t> tokens;  // at least one, each in [0, vocab)
  int parent = -1;
  Kv cached = {};
  bool keep = false;  // prompt only: return its keys and values
  // Prompt only: rows [first, first + rows) take these embeddings [rows, hidden] (host, float32) instead of their
  // tokens' (images).
  struct Embeddings {
    int first = 0, rows = 0;
    const float* data = nullptr;
  };
  std::vector<Embeddings> embeddings = {};
  // Canvas only: logits [tokens, vocab] (host) of the step before, already divided by its temperature; empty at step 0.
  std::span<const float> self_conditioning = {};
};

// Asks for logits (soft-capped, temperature 1) at one canvas row: at `ids`, or at the whole vocabulary if it is empty.
struct Ask {
  int segment = 0;
  int row = 0;
  std::span<const int32_t> ids;
};

struct Batch {
  std::vector<Segment> segments;
  std::vector<Ask> asks;
  bool record_hidden = false;  // fills Output::hidden and last, and skips no work
};

struct Output {
  std::vector<std::vector<float>> logits;  // one per ask: ids.size() or vocab values
  std::vector<Kv> kept;                    // one per segment; null where `keep` was not set
  // record_hidden: hidden[l] = rows after layer l, last = rows after the final norm; rows of all segments in order.
  std::vector<std::vector<float>> hidden;
  std::vector<float> last;
};

class Model {
 public:
  // Keeps the checkpoint (its views) and the device.
  Model(std::shared_ptr<const Checkpoint> checkpoint, std::shared_ptr<ops::Ops> device);
  ~Model();

  const Config& config() const { return checkpoint_->config; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  ops::Ops& device() { return *ops_; }

  // One pass. The batch must be well formed (DGEM_CHECK): callers make it, users do not.
  Output forward(const Batch& batch);

  // Keys or values of one layer on the host: [kv_heads, count, head_dim] float32 of positions
  // [kv.layers[layer].first, kv.end()) of the segment itself (not its parents).
  std::vector<float> download_kv(const KvSegment& kv, int layer, bool keys);

 private:
  class Pass;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<ops::Ops> ops_;
  TextWeights weights_;  // the device's views
  std::unique_ptr<Pass> pass_;
};

}  // namespace dgem::model
