// x86-64 with AVX2 and FMA.
#if defined(__x86_64__) || defined(_M_X64)

#include "isa.hpp"
#include "seeds.hpp"
#include "table.hpp"
#include "ymm.hpp"

namespace exactmeans {
namespace {

constexpr Kernels<float> singles = table<Float8>("avx2");
constexpr Kernels<double> doubles = table<Double4>("avx2");
constexpr BoundKernels bounds = bound_table<Float8, Float8>();
constexpr SeedKernels seeds = seed_table<Float8, Double4, Pairs8>();

}  // namespace

const Isa isa_avx2 = {"avx2", singles, doubles, bounds, seeds};

}  // namespace exactmeans

#endif
