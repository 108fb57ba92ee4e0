// Keys and values of prompt tokens, kept between passes. A segment is a run of tokens at consecutive positions behind
// a parent segment; a prompt is the chain from a segment up to the root. Segments are shared: many prompts may branch
// from one.
#pragma once

#include "ops/ops.h"

#include <memory>
#include <vector>

namespace dgem::model {

struct KvSegment {
  // Rows of layer l: positions [first, position + count), each kv_heads · head_dim elements of the activation
  // precision. Full layers keep all rows; sliding layers keep the newest window - 1, since no later token sees more.
  struct Layer {
    const std::byte* k = nullptr;
    const std::byte* v = nullptr;
    int first = 0;
  };

  std::shared_ptr<const KvSegment> parent;  // the tokens before `position`; nullptr at position 0
  int position = 0;
  int count = 0;
  std::vector<Layer> layers;
  ops::Buffer storage;
  size_t bytes = 0;

  int end() const { return position + count; }
};

using Kv = std::shared_ptr<const KvSegment>;

}  // namespace dgem::model
