// x86-64 with AVX2 and FMA.
#if defined(__x86_64__)

#include "isa.hpp"
#include "seeds.hpp"
#include "table.hpp"
#include "ymm.hpp"

namespace exactmeans {
namespace {

constexpr BoundKernels bounds = bound_table<Float8, Float8>();
constexpr SeedKernels seeds = seed_table<Float8, Double4, Pairs8>();

}  // namespace

constinit const Isa isa_avx2 = isa_of<Float8, Double4>("avx2", bounds, seeds);
constinit const Isa isa_avxvnni =
    isa_of<Float8, Double4>("avxvnni", bounds, seeds, products_avxvnni);

}  // namespace exactmeans

#endif
