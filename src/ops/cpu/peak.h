// The most that one core of this machine computes: loops of multiply-adds on registers alone, the yardstick of the
// benchmarks. Each returns the floating point operations that it did (a multiply and an add count two).
#pragma once

#include "ops/cpu/kernels.h"

#include <cstdint>

namespace dgem::ops::cpu {

struct PeakLoops {
  double (*f32)(int64_t iterations) = nullptr;
  double (*bf16)(int64_t iterations) = nullptr;  // the products that bf16 activations use: f32 on AVX2
};

PeakLoops peak_loops(Isa isa);  // the reference set has none: it is measured by AVX2's

double peak_f32_avx2(int64_t iterations);
double peak_f32_avx512(int64_t iterations);
double peak_bf16_avx512(int64_t iterations);
double peak_bf16_amx(int64_t iterations);

}  // namespace dgem::ops::cpu
