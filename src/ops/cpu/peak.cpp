#include "ops/cpu/peak.h"

namespace dgem::ops::cpu {

PeakLoops peak_loops(Isa isa) {
  switch (isa) {
    case Isa::reference:
    case Isa::avx2: return {peak_f32_avx2, peak_f32_avx2};
    case Isa::avx512: return {peak_f32_avx512, peak_bf16_avx512};
    case Isa::amx: return {peak_f32_avx512, peak_bf16_amx};
  }
  return {};
}

}  // namespace dgem::ops::cpu
