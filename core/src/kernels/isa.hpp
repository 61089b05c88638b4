// The kernel tables of each instruction set. dispatch.cpp, compiled for any CPU, checks which ones
// the CPU can run.
#pragma once

#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/kernels/integer_products.hpp"
#include "exactmeans/kernels/quantized.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/kernels/seeding.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

struct Isa {
    const char* name;
    const ScoreKernels<float>& single_scores;
    const ScoreKernels<double>& double_scores;
    const VectorKernels<float>& single_vectors;
    const VectorKernels<double>& double_vectors;
    const QuantizedKernels& quantized;
    const BoundKernels& bounds;
    const SeedKernels& seeds;
    const FilterKernels& filter;
    const IntegerProducts& products;

    template <class R>
    const ScoreKernels<R>& scores() const {
        if constexpr (sizeof(R) == sizeof(float))
            return single_scores;
        else
            return double_scores;
    }
    template <class R>
    const VectorKernels<R>& vectors() const {
        if constexpr (sizeof(R) == sizeof(float))
            return single_vectors;
        else
            return double_vectors;
    }
};

extern const Isa isa_baseline;
#if defined(__x86_64__)
extern const Isa isa_avx512vnni, isa_avx512, isa_avxvnni, isa_avx2;
extern const IntegerProducts products_avx512vnni, products_avxvnni;
void pair_products_avx512vnni(const CodeRows& rows, const CodesByCentre& centres,
                              const std::int32_t* centre, std::int32_t* out);
#if defined(__linux__)
extern const Isa isa_amx;
extern const IntegerProducts products_amx;
#endif
#elif defined(__aarch64__)
extern const Isa isa_neondot, isa_neon;
extern const IntegerProducts products_neondot;
#endif

}  // namespace exactmeans
