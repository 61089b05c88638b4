// x86-64 with AVX-512 F, DQ, BW and VL. A vector is two units wide.
#if defined(__x86_64__)

#include "isa.hpp"
#include "seeds.hpp"
#include "table.hpp"
#include "ymm.hpp"

namespace exactmeans {
namespace {

struct Shorts32 {
    static constexpr int lanes = 32;
    static constexpr int units = 3;  // of a panel that are summed at a time

    __m512i v;

    static Shorts32 load(const std::int8_t* from) { return {_mm512_loadu_si512(from)}; }
    static Shorts32 splat(std::int16_t x) { return {_mm512_set1_epi16(x)}; }
    static Shorts32 low_bytes_shifted_up(Shorts32 a) { return {_mm512_slli_epi16(a.v, 8)}; }
    static Shorts32 add(Shorts32 a, Shorts32 b) { return {_mm512_add_epi16(a.v, b.v)}; }
    static Shorts32 product(Shorts32 a, Shorts32 b) { return {_mm512_mulhrs_epi16(a.v, b.v)}; }
    void store(std::int16_t* to) const { _mm512_storeu_si512(to, v); }
};

struct Float16 {
    using Real = float;
    using Shorts = Shorts32;
    using UpTo8Lanes = Float8;
    static constexpr int lanes = 16;
    // Up to 24 of the 32 registers are accumulators.
    static constexpr int tile_panels = 3;
    static constexpr int tile_rows[7] = {12, 12, 12, 12, 8, 8, 6};  // by units
    static constexpr int short_row_vectors = 2;
    static constexpr int row_vectors = 6;  // rows in vectors, against four centres
    static constexpr int transposed_features = 4;

    __m512 v;
    using Mask = __mmask16;

    static Float16 load(const float* from) { return {_mm512_loadu_ps(from)}; }
    static Float16 load(const std::int16_t* from) {
        return {_mm512_cvtepi32_ps(
            _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))))};
    }
    static Float16 load(const std::int32_t* from) {
        return {_mm512_cvtepi32_ps(_mm512_loadu_si512(from))};
    }
    // One unit, filled up with `rest`.
    static Float16 load_half(const float* from, float rest) {
        return {_mm512_mask_loadu_ps(_mm512_set1_ps(rest), 0x00ff, from)};
    }
    static Float16 load_half(const float* from) {
        return {_mm512_zextps256_ps512(_mm256_loadu_ps(from))};
    }
    static Float16 splat(float x) { return {_mm512_set1_ps(x)}; }
    void store(float* to) const { _mm512_storeu_ps(to, v); }
    // Rounds to the nearest integers.
    void store_rounded(std::int16_t* to) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                            _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v)));
    }
    void store_rounded(std::int8_t* to) const {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                         _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
    }
    static Float16 gather(const float* from, const std::uint32_t* at) {
        return {_mm512_i32gather_ps(_mm512_loadu_si512(at), from, 4)};
    }
    // The lower halves of the 32-bit lanes, shifted up.
    static Float16 low_half(Float16 a) {
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 16))};
    }
    // Transposes features from f on of sixteen rows: each vector has one feature. Quarters are
    // combined by loads instead of shuffles.
    static void columns(const float* const* rows, Size f, Float16* to) {
        const auto four = [&](int r) {
            const auto quarter = [&](int q) { return _mm_loadu_ps(rows[r + 4 * q] + f); };
            __m512 all = _mm512_castps128_ps512(quarter(0));
            all = _mm512_insertf32x4(all, quarter(1), 1);
            all = _mm512_insertf32x4(all, quarter(2), 2);
            return _mm512_insertf32x4(all, quarter(3), 3);
        };
        const __m512 a = four(0), b = four(1), c = four(2), d = four(3);
        const __m512 ab = _mm512_unpacklo_ps(a, b), ba = _mm512_unpackhi_ps(a, b),
                     cd = _mm512_unpacklo_ps(c, d), dc = _mm512_unpackhi_ps(c, d);
        to[0] = {_mm512_shuffle_ps(ab, cd, 0x44)};
        to[1] = {_mm512_shuffle_ps(ab, cd, 0xee)};
        to[2] = {_mm512_shuffle_ps(ba, dc, 0x44)};
        to[3] = {_mm512_shuffle_ps(ba, dc, 0xee)};
    }
    static Float16 add(Float16 a, Float16 b) { return {_mm512_add_ps(a.v, b.v)}; }
    static Float16 sub(Float16 a, Float16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
    static Float16 mul(Float16 a, Float16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
    static Float16 fma(Float16 a, Float16 b, Float16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
    static Float16 iota() {
        return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
    }
    static Mask equal(Float16 a, Float16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
    static Mask less(Float16 a, Float16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
    static unsigned bits(Mask m) { return m; }
    static Float16 select(Mask m, Float16 a, Float16 b) {
        return {_mm512_mask_blend_ps(m, b.v, a.v)};
    }
    static Float16 min(Float16 a, Float16 b) { return {_mm512_min_ps(a.v, b.v)}; }
    static Float16 max(Float16 a, Float16 b) { return {_mm512_max_ps(a.v, b.v)}; }
    static float lowest(Float16 a) {
        return Float8::lowest(
            {_mm256_min_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1))});
    }
    // The sum of all lanes, by repeated halving.
    static float total(Float16 a) {
        return Float8::total(
            {_mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1))});
    }
    // The minimum of each of sixteen vectors; the reduction interleaves their lanes.
    static Float16 lowest_of(const Float16* a) {
        const auto two = [](Float16 b, Float16 c) {
            return _mm512_min_ps(_mm512_unpacklo_ps(b.v, c.v), _mm512_unpackhi_ps(b.v, c.v));
        };
        const auto four = [&](const Float16* b) {
            const __m512 c = two(b[0], b[1]), d = two(b[2], b[3]);
            return _mm512_min_ps(_mm512_shuffle_ps(c, d, 0x44), _mm512_shuffle_ps(c, d, 0xee));
        };
        const auto quarters = [](__m512 b, __m512 c) {
            return _mm512_min_ps(_mm512_shuffle_f32x4(b, c, 0x88),
                                 _mm512_shuffle_f32x4(b, c, 0xdd));
        };
        return {quarters(quarters(four(a), four(a + 4)), quarters(four(a + 8), four(a + 12)))};
    }
};

struct Double8 {
    using Real = double;
    static constexpr int lanes = 8;
    static constexpr int tile_panels = 3;
    static constexpr int tile_rows[7] = {12, 12, 12, 12, 8, 8, 6};
    static constexpr int short_row_vectors = 4;
    static constexpr int row_vectors = 6;
    static constexpr int transposed_features = 2;

    __m512d v;
    using Mask = __mmask8;

    static Double8 load(const double* from) { return {_mm512_loadu_pd(from)}; }
    static Double8 load_half(const double* from, double rest) {
        return {_mm512_mask_loadu_pd(_mm512_set1_pd(rest), 0x0f, from)};
    }
    static Double8 load_half(const double* from) {
        return {_mm512_zextpd256_pd512(_mm256_loadu_pd(from))};
    }
    static Double8 splat(double x) { return {_mm512_set1_pd(x)}; }
    void store(double* to) const { _mm512_storeu_pd(to, v); }
    static void columns(const double* const* rows, Size f, Double8* to) {
        const auto four = [&](int r) {
            const auto quarter = [&](int q) { return _mm_loadu_pd(rows[r + 2 * q] + f); };
            __m512d all = _mm512_castpd128_pd512(quarter(0));
            all = _mm512_insertf64x2(all, quarter(1), 1);
            all = _mm512_insertf64x2(all, quarter(2), 2);
            return _mm512_insertf64x2(all, quarter(3), 3);
        };
        const __m512d a = four(0), b = four(1);
        to[0] = {_mm512_unpacklo_pd(a, b)};
        to[1] = {_mm512_unpackhi_pd(a, b)};
    }
    static Double8 add(Double8 a, Double8 b) { return {_mm512_add_pd(a.v, b.v)}; }
    static Double8 sub(Double8 a, Double8 b) { return {_mm512_sub_pd(a.v, b.v)}; }
    static Double8 mul(Double8 a, Double8 b) { return {_mm512_mul_pd(a.v, b.v)}; }
    static Double8 fma(Double8 a, Double8 b, Double8 c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
    static Double8 iota() { return {_mm512_setr_pd(0, 1, 2, 3, 4, 5, 6, 7)}; }
    static Mask equal(Double8 a, Double8 b) { return _mm512_cmp_pd_mask(a.v, b.v, _CMP_EQ_OQ); }
    static Mask less(Double8 a, Double8 b) { return _mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ); }
    static unsigned bits(Mask m) { return m; }
    static Double8 select(Mask m, Double8 a, Double8 b) {
        return {_mm512_mask_blend_pd(m, b.v, a.v)};
    }
    static Double8 min(Double8 a, Double8 b) { return {_mm512_min_pd(a.v, b.v)}; }
    static Double8 max(Double8 a, Double8 b) { return {_mm512_max_pd(a.v, b.v)}; }
    static double lowest(Double8 a) {
        return Double4::lowest(
            {_mm256_min_pd(_mm512_castpd512_pd256(a.v), _mm512_extractf64x4_pd(a.v, 1))});
    }
    static double total(Double8 a) {
        return Double4::total(
            {_mm256_add_pd(_mm512_castpd512_pd256(a.v), _mm512_extractf64x4_pd(a.v, 1))});
    }
    static Double8 lowest_of(const Double8* a) {
        const auto two = [](Double8 b, Double8 c) {
            return _mm512_min_pd(_mm512_unpacklo_pd(b.v, c.v), _mm512_unpackhi_pd(b.v, c.v));
        };
        const auto quarters = [](__m512d b, __m512d c) {
            return _mm512_min_pd(_mm512_shuffle_f64x2(b, c, 0x88),
                                 _mm512_shuffle_f64x2(b, c, 0xdd));
        };
        return {quarters(quarters(two(a[0], a[1]), two(a[2], a[3])),
                         quarters(two(a[4], a[5]), two(a[6], a[7])))};
    }
};

constexpr BoundKernels bounds = bound_table<Float16, Float8>();
constexpr SeedKernels seeds = seed_table<Float8, Double4, Pairs8>();

}  // namespace

constinit const Isa isa_avx512 = isa_of<Float16, Double8>("avx512", bounds, seeds);
constinit const Isa isa_avx512vnni =
    isa_of<Float16, Double8>("avx512vnni", bounds, seeds, products_avx512vnni);
#if defined(__linux__)
constinit const Isa isa_amx = isa_of<Float16, Double8>("amx", bounds, seeds, products_amx);
#endif

}  // namespace exactmeans

#endif
