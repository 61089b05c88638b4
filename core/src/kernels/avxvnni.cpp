// Products of 8-bit codes by AVX-VNNI, the 256-bit form of avx512vnni.cpp for CPUs without AVX-512.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "integer_products.hpp"
#include "isa.hpp"

namespace exactmeans {
namespace {

struct AvxVnniTile {
    // One unit at a time is two vectors: 12 of the 16 registers are sums.
    static constexpr int rows[] = {6, 6, 6, 6};

    static __m256i load(const std::int8_t* from) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    template <int Rows, int Units>
    static void run(const std::int8_t* codes, Size pitch, const std::int8_t* centres, Size depth,
                    const std::int32_t* start, std::int32_t* out) {
        for (int u = 0; u < Units; ++u, centres += depth * 64, out += 16)
            run_unit<Rows>(codes, pitch, centres, depth, start, out, Units * 16);
    }
    template <int Rows>
    static void run_unit(const std::int8_t* codes, Size pitch, const std::int8_t* centres,
                         Size depth, const std::int32_t* start, std::int32_t* out, Size width) {
        __m256i sum[Rows][2];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) sum[r][0] = sum[r][1] = _mm256_set1_epi32(start[r]);
        for (Size t = 0; t < depth; ++t) {
            const __m256i low = load(centres + 64 * t), high = load(centres + 64 * t + 32);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                std::int32_t four;
                std::memcpy(&four, codes + r * pitch + 4 * t, sizeof four);
                const __m256i x = _mm256_set1_epi32(four);
                sum[r][0] = _mm256_dpbusd_avx_epi32(sum[r][0], low, x);
                sum[r][1] = _mm256_dpbusd_avx_epi32(sum[r][1], high, x);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
            for (int half = 0; half < 2; ++half)
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + r * width + 8 * half),
                                    sum[r][half]);
    }
};

// As in avx512vnni.cpp.
void pair_products(const CodeRows& rows, const CodesByCentre& centres, const std::int32_t* centre,
                   std::int32_t* out) {
    const __m256i high = _mm256_set1_epi8(char(0x80));
    for (Size i = 0; i < rows.n; ++i) {
        const Size j = Size(centre[i]);
        const std::int8_t *x = rows.codes + i * rows.pitch, *c = centres.codes + j * centres.pitch;
        __m256i sum = _mm256_setzero_si256();
        for (Size f = 0; f < centres.pitch; f += 32)
            sum = _mm256_dpbusd_avx_epi32(sum, _mm256_xor_si256(AvxVnniTile::load(x + f), high),
                                          AvxVnniTile::load(c + f));
        __m128i all = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0x4e));
        all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0xb1));
        out[i] = _mm_cvtsi128_si32(all) - 128 * centres.sum[j];
    }
}

}  // namespace

constinit const IntegerProducts products_avxvnni{.name = "avxvnni",
                                                 .bias = 128,
                                                 .speed = 4,
                                                 .products = &products<AvxVnniTile>,
                                                 .pair_products = &pair_products};

}  // namespace exactmeans

#endif
