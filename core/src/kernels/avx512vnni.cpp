// Products of 8-bit codes by AVX512-VNNI: one instruction multiplies 64 unsigned by 64 signed bytes
// and adds the products of four neighbours to a 32-bit sum.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "integer_products.hpp"
#include "isa.hpp"

namespace exactmeans {
namespace {

struct VnniTile {
    // Up to 24 of the 32 registers are sums.
    static constexpr int rows[] = {12, 12, 8, 6};

    template <int Rows, int Units>
    static void run(const std::int8_t* codes, Size pitch, const std::int8_t* centres, Size depth,
                    const std::int32_t* start, std::int32_t* out) {
        __m512i sum[Rows][Units];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int u = 0; u < Units; ++u) sum[r][u] = _mm512_set1_epi32(start[r]);
        for (Size t = 0; t < depth; ++t) {
            __m512i centre[Units];
#pragma GCC unroll 16
            for (int u = 0; u < Units; ++u)
                centre[u] = _mm512_loadu_si512(centres + (u * depth + t) * 64);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                std::int32_t four;
                std::memcpy(&four, codes + r * pitch + 4 * t, sizeof four);
                const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 16
                for (int u = 0; u < Units; ++u)
                    sum[r][u] = _mm512_dpbusd_epi32(sum[r][u], centre[u], x);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int u = 0; u < Units; ++u)
                _mm512_storeu_si512(out + (r * Units + u) * 16, sum[r][u]);
    }
};

}  // namespace

// The instruction takes unsigned codes of rows, so 128 is added to these, and 128 times the sum of
// the centre's codes is subtracted at the end. Padding of the centre is 0, so the bytes past the
// end of the row do not count.
void pair_products_avx512vnni(const CodeRows& rows, const CodesByCentre& centres,
                              const std::int32_t* centre, std::int32_t* out) {
    const __m512i high = _mm512_set1_epi8(char(0x80));
    for (Size i = 0; i < rows.n; ++i) {
        const Size j = Size(centre[i]);
        const std::int8_t *x = rows.codes + i * rows.pitch, *c = centres.codes + j * centres.pitch;
        __m512i sum = _mm512_setzero_si512();
        for (Size f = 0; f < centres.pitch; f += 64)
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_loadu_si512(x + f), high),
                                      _mm512_loadu_si512(c + f));
        out[i] = _mm512_reduce_add_epi32(sum) - 128 * centres.sum[j];
    }
}

constinit const IntegerProducts products_avx512vnni{.name = "avx512vnni",
                                                    .bias = 128,
                                                    .speed = 4,
                                                    .products = &products<VnniTile>,
                                                    .pair_products = &pair_products_avx512vnni};

}  // namespace exactmeans

#endif
