#include "ops/cpu/kernels.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace dgem::ops::cpu {
namespace {

// Linux hands out the AMX tile state only to processes that ask for it.
bool request_amx_tiles() {
  constexpr int kArchRequestXcompPerm = 0x1023;
  constexpr int kXfeatureXtileData = 18;
  return syscall(SYS_arch_prctl, kArchRequestXcompPerm, kXfeatureXtileData) == 0;
}

// What __builtin_cpu_supports of the compilers here does not know.
bool cpuid_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kF16c = 1u << 29;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kF16c) != 0;
}
bool cpuid_has_amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

std::vector<Isa> detect() {
  std::vector<Isa> sets = {Isa::reference};
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !cpuid_has_f16c() ||
      !__builtin_cpu_supports("bmi2")) {
    return sets;
  }
  sets.push_back(Isa::avx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
  if (!avx512) return sets;
  sets.push_back(Isa::avx512);
  if (cpuid_has_amx_bf16() && request_amx_tiles()) sets.push_back(Isa::amx);
  return sets;
}

constexpr std::array<const char*, 4> kNames = {"reference", "avx2", "avx512", "amx"};

}  // namespace

std::span<const Isa> available() {
  static const std::vector<Isa> sets = detect();
  return sets;
}

const char* name_of(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

Kernels kernels_of(Isa isa) {
  switch (isa) {
    case Isa::reference: return {isa, name_of(isa), row_kernels_reference(), gemm_f32_reference(), gemm_bf16_reference()};
    case Isa::avx2: return {isa, name_of(isa), row_kernels_avx2(), gemm_f32_avx2(), gemm_bf16_avx2()};
    case Isa::avx512: return {isa, name_of(isa), row_kernels_avx512(), gemm_f32_avx512(), gemm_bf16_avx512()};
    case Isa::amx: return {isa, name_of(isa), row_kernels_avx512(), gemm_f32_avx512(), gemm_bf16_amx()};
  }
  DGEM_CHECK(false, "unknown instruction set");
  return {};
}

Result<Isa> choose_isa(const char* wanted) {
  const auto sets = available();
  if (wanted == nullptr || *wanted == '\0') return sets.back();
  std::string names;
  for (const Isa isa : sets) {
    if (std::string_view(wanted) == name_of(isa)) return isa;
    names += names.empty() ? name_of(isa) : std::string(", ") + name_of(isa);
  }
  return make_error("the instruction set '{}' is not available here; choose one of: {}", wanted, names);
}

}  // namespace dgem::ops::cpu
