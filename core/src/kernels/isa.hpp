// The kernel tables of each instruction set. Whether a CPU can run one is asked in dispatch.cpp,
// which is compiled for any CPU.
#pragma once

#include "exactmeans/kernels.hpp"
#include "exactmeans/seed/kernels.hpp"

namespace exactmeans {

struct Isa {
    const char* name;
    const Kernels<float>& single_precision;
    const Kernels<double>& double_precision;
    const BoundKernels& bounds;
    const SeedKernels& seeds;
};

extern const Isa isa_baseline;
#if defined(__x86_64__) || defined(_M_X64)
extern const Isa isa_avx512, isa_avx2;
#elif defined(__aarch64__) || defined(_M_ARM64)
extern const Isa isa_neon;
#endif

}  // namespace exactmeans
