// 32-byte vectors for x86-64 with AVX2 and FMA. Each file that includes this header gets its own
// types, compiled with its own flags.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace exactmeans {
namespace {

struct Shorts16 {
    static constexpr int lanes = 16;
    static constexpr int units = 3;  // of a panel that are summed at a time

    __m256i v;

    static Shorts16 load(const std::int8_t* from) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
    }
    static Shorts16 splat(std::int16_t x) { return {_mm256_set1_epi16(x)}; }
    // The low bytes, shifted up.
    static Shorts16 low_bytes_shifted_up(Shorts16 a) { return {_mm256_slli_epi16(a.v, 8)}; }
    static Shorts16 add(Shorts16 a, Shorts16 b) { return {_mm256_add_epi16(a.v, b.v)}; }
    // a b / 2^15 rounded to nearest, ties up.
    static Shorts16 product(Shorts16 a, Shorts16 b) { return {_mm256_mulhrs_epi16(a.v, b.v)}; }
    void store(std::int16_t* to) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
};

struct Float8 {
    using Real = float;
    using Shorts = Shorts16;
    using UpTo8Lanes = Float8;
    static constexpr int lanes = 8;
    // 12 to 14 of the 16 registers are accumulators.
    static constexpr int tile_panels = 1;
    static constexpr int tile_rows[3] = {12, 6, 4};  // by units in a panel
    static constexpr int short_row_vectors = 4;
    static constexpr int row_vectors = 3;              // rows in vectors, against four centres
    static constexpr int transposed_features = lanes;  // features per call of columns()

    __m256 v;
    // Operators for comparison and selection: GCC generates twice as many instructions for the
    // intrinsics.
    using Mask = decltype(v < v);

    static Float8 load(const float* from) { return {_mm256_loadu_ps(from)}; }
    static Float8 load(const std::int16_t* from) {
        return {_mm256_cvtepi32_ps(
            _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
    }
    static Float8 load(const std::int32_t* from) {
        return {_mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
    }
    // Expands upper halves of float32 values.
    static Float8 load_halves(const std::uint16_t* from) {
        return {_mm256_castsi256_ps(_mm256_slli_epi32(
            _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))), 16))};
    }
    static Float8 splat(float x) { return {_mm256_set1_ps(x)}; }
    void store(float* to) const { _mm256_storeu_ps(to, v); }
    // Rounds to the nearest integers.
    void store_rounded(std::int16_t* to) const {
        const __m256i numbers = _mm256_cvtps_epi32(v);
        _mm_storeu_si128(
            reinterpret_cast<__m128i*>(to),
            _mm_packs_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1)));
    }
    void store_rounded(std::int8_t* to) const {
        std::int16_t numbers[lanes];
        store_rounded(numbers);
        const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(all, all));
    }
    // Single loads, because the gather instruction of AMD CPUs is slower.
    static Float8 gather(const float* from, const std::uint32_t* at) {
        const auto four = [&](const std::uint32_t* own) {
            __m128 out = _mm_load_ss(from + own[0]);
            out = _mm_insert_ps(out, _mm_load_ss(from + own[1]), 0x10);
            out = _mm_insert_ps(out, _mm_load_ss(from + own[2]), 0x20);
            return _mm_insert_ps(out, _mm_load_ss(from + own[3]), 0x30);
        };
        return {_mm256_set_m128(four(at + 4), four(at))};
    }
    // The lower halves of the 32-bit lanes, shifted up.
    static Float8 low_half(Float8 a) {
        return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.v), 16))};
    }
    // Transposes features from f on of eight rows: each vector has one feature. Halves are combined
    // by loads instead of shuffles.
    static void columns(const float* const* rows, Size f, Float8* to) {
        for (int half = 0; half < 8; half += 4) {
            const auto both = [&](int r) {
                return _mm256_insertf128_ps(
                    _mm256_castps128_ps256(_mm_loadu_ps(rows[r] + f + half)),
                    _mm_loadu_ps(rows[r + 4] + f + half), 1);
            };
            const __m256 a = both(0), b = both(1), c = both(2), d = both(3);
            const __m256 ab = _mm256_unpacklo_ps(a, b), ba = _mm256_unpackhi_ps(a, b),
                         cd = _mm256_unpacklo_ps(c, d), dc = _mm256_unpackhi_ps(c, d);
            to[half] = {_mm256_shuffle_ps(ab, cd, 0x44)};
            to[half + 1] = {_mm256_shuffle_ps(ab, cd, 0xee)};
            to[half + 2] = {_mm256_shuffle_ps(ba, dc, 0x44)};
            to[half + 3] = {_mm256_shuffle_ps(ba, dc, 0xee)};
        }
    }
    static Float8 add(Float8 a, Float8 b) { return {_mm256_add_ps(a.v, b.v)}; }
    static Float8 sub(Float8 a, Float8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
    static Float8 mul(Float8 a, Float8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
    static Float8 fma(Float8 a, Float8 b, Float8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
    static Float8 iota() { return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)}; }
    static Mask equal(Float8 a, Float8 b) { return a.v == b.v; }
    static Mask less(Float8 a, Float8 b) { return a.v < b.v; }
    static unsigned bits(Mask m) { return unsigned(_mm256_movemask_ps(__m256(m))); }
    static Float8 select(Mask m, Float8 a, Float8 b) { return {m ? a.v : b.v}; }
    static Float8 min(Float8 a, Float8 b) { return {_mm256_min_ps(a.v, b.v)}; }
    static Float8 max(Float8 a, Float8 b) { return {_mm256_max_ps(a.v, b.v)}; }
    static float lowest(Float8 a) {
        __m128 m = _mm_min_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
        m = _mm_min_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
    }
    // The sum of all lanes, by repeated halving.
    static float total(Float8 a) {
        __m128 m = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
        m = _mm_add_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_add_ss(m, _mm_movehdup_ps(m)));
    }
    // The minimum of each of eight vectors; the reduction interleaves their lanes.
    static Float8 lowest_of(const Float8* a) {
        const auto two = [](Float8 b, Float8 c) {
            return _mm256_min_ps(_mm256_unpacklo_ps(b.v, c.v), _mm256_unpackhi_ps(b.v, c.v));
        };
        const auto four = [&](const Float8* b) {
            const __m256 c = two(b[0], b[1]), d = two(b[2], b[3]);
            return _mm256_min_ps(_mm256_shuffle_ps(c, d, 0x44), _mm256_shuffle_ps(c, d, 0xee));
        };
        const __m256 b = four(a), c = four(a + 4);
        return {
            _mm256_min_ps(_mm256_permute2f128_ps(b, c, 0x20), _mm256_permute2f128_ps(b, c, 0x31))};
    }
};

struct Double4 {
    using Real = double;
    static constexpr int lanes = 4;
    static constexpr int tile_panels = 1;
    static constexpr int tile_rows[3] = {12, 6, 4};
    static constexpr int short_row_vectors = 4;
    static constexpr int row_vectors = 3;
    static constexpr int transposed_features = lanes;

    __m256d v;
    using Mask = decltype(v < v);

    static Double4 load(const double* from) { return {_mm256_loadu_pd(from)}; }
    static Double4 load(const float* from) { return {_mm256_cvtps_pd(_mm_loadu_ps(from))}; }
    static Double4 splat(double x) { return {_mm256_set1_pd(x)}; }
    void store(double* to) const { _mm256_storeu_pd(to, v); }
    static void columns(const double* const* rows, Size f, Double4* to) {
        for (int half = 0; half < 4; half += 2) {
            const auto both = [&](int r) {
                return _mm256_insertf128_pd(
                    _mm256_castpd128_pd256(_mm_loadu_pd(rows[r] + f + half)),
                    _mm_loadu_pd(rows[r + 2] + f + half), 1);
            };
            const __m256d a = both(0), b = both(1);
            to[half] = {_mm256_unpacklo_pd(a, b)};
            to[half + 1] = {_mm256_unpackhi_pd(a, b)};
        }
    }
    static Double4 add(Double4 a, Double4 b) { return {_mm256_add_pd(a.v, b.v)}; }
    static Double4 sub(Double4 a, Double4 b) { return {_mm256_sub_pd(a.v, b.v)}; }
    static Double4 mul(Double4 a, Double4 b) { return {_mm256_mul_pd(a.v, b.v)}; }
    static Double4 fma(Double4 a, Double4 b, Double4 c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
    static Double4 iota() { return {_mm256_setr_pd(0, 1, 2, 3)}; }
    static Mask equal(Double4 a, Double4 b) { return a.v == b.v; }
    static Mask less(Double4 a, Double4 b) { return a.v < b.v; }
    static unsigned bits(Mask m) { return unsigned(_mm256_movemask_pd(__m256d(m))); }
    static Double4 select(Mask m, Double4 a, Double4 b) { return {m ? a.v : b.v}; }
    static Double4 min(Double4 a, Double4 b) { return {_mm256_min_pd(a.v, b.v)}; }
    static Double4 max(Double4 a, Double4 b) { return {_mm256_max_pd(a.v, b.v)}; }
    static double lowest(Double4 a) {
        const __m128d m = _mm_min_pd(_mm256_castpd256_pd128(a.v), _mm256_extractf128_pd(a.v, 1));
        return _mm_cvtsd_f64(_mm_min_sd(m, _mm_unpackhi_pd(m, m)));
    }
    static Double4 lowest_of(const Double4* a) {
        const auto two = [](Double4 b, Double4 c) {
            return _mm256_min_pd(_mm256_unpacklo_pd(b.v, c.v), _mm256_unpackhi_pd(b.v, c.v));
        };
        const __m256d b = two(a[0], a[1]), c = two(a[2], a[3]);
        return {
            _mm256_min_pd(_mm256_permute2f128_pd(b, c, 0x20), _mm256_permute2f128_pd(b, c, 0x31))};
    }
    // (0 + 2) + (1 + 3)
    static double total(Double4 a) {
        const __m128d m = _mm_add_pd(_mm256_castpd256_pd128(a.v), _mm256_extractf128_pd(a.v, 1));
        return _mm_cvtsd_f64(_mm_add_sd(m, _mm_unpackhi_pd(m, m)));
    }
};

// Eight pairs of 16-bit integers, or eight sums of their products.
struct Pairs8 {
    static constexpr int lanes = 8;
    __m256i v;

    static Pairs8 zero() { return {_mm256_setzero_si256()}; }
    static Pairs8 load(const std::int8_t* from) {
        return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
    }
    static Pairs8 load(const std::int16_t* from) {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
    }
    static Pairs8 splat(const std::int16_t* pair) {
        std::int32_t both;
        std::memcpy(&both, pair, sizeof both);
        return {_mm256_set1_epi32(both)};
    }
    static Pairs8 add_products(Pairs8 sum, Pairs8 a, Pairs8 b) {
        return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(a.v, b.v))};
    }
    template <class V>
    static V real(Pairs8 sum) {
        return {_mm256_cvtepi32_ps(sum.v)};
    }
    static std::int32_t total(Pairs8 sum) {
        __m128i m =
            _mm_add_epi32(_mm256_castsi256_si128(sum.v), _mm256_extracti128_si256(sum.v, 1));
        m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
    }
};

}  // namespace
}  // namespace exactmeans
