// Which processor the arithmetic was compiled for (-Dcpu_isa), and whether this one can run it. Compiled for any
// processor, as it runs first. Levels: x86-64 psABI, section 3.1.1.
#include "runtime/backends/cpu_kernels.hpp"

namespace pipewright::runtime::cpu_kernels {

const char* isa() {
  return PIPEWRIGHT_CPU_ISA;
}

const char* missing_features() {
#if PIPEWRIGHT_CPU_LEVEL >= 3
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2");
  if (!v3) return "AVX2, FMA, BMI1 and BMI2";
#endif
#if PIPEWRIGHT_CPU_LEVEL >= 4
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (!v4) return "AVX-512 (F, BW, CD, DQ, VL)";
#endif
  return nullptr;
}

}  // namespace pipewright::runtime::cpu_kernels
