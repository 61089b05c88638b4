// x86-64 with AVX2 and FMA.
#if defined(__x86_64__) || defined(_M_X64)

#include <immintrin.h>

#include "body.hpp"
#include "isa.hpp"

namespace exactmeans {
namespace {

struct Float8 {
    using Real = float;
    using Bits = std::int32_t;
    static constexpr int lanes = 8;
    static constexpr Size csr_panels = 7;  // 14 of the 16 registers accumulate

    __m256 v;

    static Float8 load(const float* from) { return {_mm256_loadu_ps(from)}; }
    static Float8 splat(float x) { return {_mm256_set1_ps(x)}; }
    static Float8 splat_bits(Bits x) { return {_mm256_castsi256_ps(_mm256_set1_epi32(x))}; }
    void store(float* to) const { _mm256_storeu_ps(to, v); }
    void store_bits(Bits* to) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castps_si256(v));
    }
    static Float8 add(Float8 a, Float8 b) { return {_mm256_add_ps(a.v, b.v)}; }
    static Float8 fma(Float8 a, Float8 b, Float8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
    static __m256 less(Float8 a, Float8 b) { return _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ); }
    static Float8 select(__m256 m, Float8 a, Float8 b) { return {_mm256_blendv_ps(b.v, a.v, m)}; }
    static Float8 min(Float8 a, Float8 b) { return {_mm256_min_ps(a.v, b.v)}; }
    static Float8 max(Float8 a, Float8 b) { return {_mm256_max_ps(a.v, b.v)}; }
};

struct Double4 {
    using Real = double;
    using Bits = std::int64_t;
    static constexpr int lanes = 4;
    static constexpr Size csr_panels = 7;

    __m256d v;

    static Double4 load(const double* from) { return {_mm256_loadu_pd(from)}; }
    static Double4 splat(double x) { return {_mm256_set1_pd(x)}; }
    static Double4 splat_bits(Bits x) { return {_mm256_castsi256_pd(_mm256_set1_epi64x(x))}; }
    void store(double* to) const { _mm256_storeu_pd(to, v); }
    void store_bits(Bits* to) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castpd_si256(v));
    }
    static Double4 add(Double4 a, Double4 b) { return {_mm256_add_pd(a.v, b.v)}; }
    static Double4 fma(Double4 a, Double4 b, Double4 c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
    static __m256d less(Double4 a, Double4 b) { return _mm256_cmp_pd(a.v, b.v, _CMP_LT_OQ); }
    static Double4 select(__m256d m, Double4 a, Double4 b) { return {_mm256_blendv_pd(b.v, a.v, m)}; }
    static Double4 min(Double4 a, Double4 b) { return {_mm256_min_pd(a.v, b.v)}; }
    static Double4 max(Double4 a, Double4 b) { return {_mm256_max_pd(a.v, b.v)}; }
};

constexpr Kernels<float> singles = table<Float8>("avx2");
constexpr Kernels<double> doubles = table<Double4>("avx2");

}  // namespace

const Isa isa_avx2 = {"avx2", singles, doubles};

}  // namespace exactmeans

#endif
