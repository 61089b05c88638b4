// x86-64 with AVX2 and FMA.
#if defined(__x86_64__)

#include "isa.hpp"
#include "seeds.hpp"
#include "table.hpp"
#include "ymm.hpp"

namespace exactmeans {
namespace {

using Own = Tables<Float8, Double4>;
constexpr BoundKernels bounds = bound_table<Float8, Float8>();
constexpr SeedKernels seeds = seed_table<Float8, Double4, Pairs8>();

}  // namespace

const Isa isa_avx2 = {.name = "avx2",
                      .single_scores = Own::single_scores,
                      .double_scores = Own::double_scores,
                      .single_vectors = Own::single_vectors,
                      .double_vectors = Own::double_vectors,
                      .quantized = Own::quantized,
                      .bounds = bounds,
                      .seeds = seeds};

}  // namespace exactmeans

#endif
