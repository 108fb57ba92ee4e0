// How much one pass has to do: the floating point operations and the bytes of weights, by which speed is judged.
#pragma once

#include "model/model.h"

namespace dgem::model {

struct Work {
  double matrix_flops = 0;     // matrix products with weights (a multiply and an add count two)
  double attention_flops = 0;  // q·k and p·v
  double weight_bytes = 0;     // every weight that is needed, once; experts as many as `rows` rows touch on average

  double flops() const { return matrix_flops + attention_flops; }
};

// Of forward(batch). Routing is taken as uniform: n rows touch 1 - (1 - k/E)^n of the experts.
Work work_of(const Checkpoint& checkpoint, const Batch& batch);

}  // namespace dgem::model
