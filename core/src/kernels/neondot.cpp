// Products of 8-bit codes by the dot product instructions of AArch64 (FEAT_DotProd).
#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>

#include "integer_products.hpp"
#include "isa.hpp"

namespace exactmeans {
namespace {

struct DotTile {
    // One unit at a time is four vectors: 24 of the 32 registers are sums.
    static constexpr int rows[] = {6, 6, 6, 6};

    template <int Rows, int Units>
    static void run(const std::int8_t* codes, Size pitch, const std::int8_t* centres, Size depth,
                    const std::int32_t* start, std::int32_t* out) {
        for (int u = 0; u < Units; ++u, centres += depth * 64, out += 16)
            run_unit<Rows>(codes, pitch, centres, depth, start, out, Units * 16);
    }
    template <int Rows>
    static void run_unit(const std::int8_t* codes, Size pitch, const std::int8_t* centres,
                         Size depth, const std::int32_t* start, std::int32_t* out, Size width) {
        int32x4_t sum[Rows][4];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < 4; ++v) sum[r][v] = vdupq_n_s32(start[r]);
        for (Size t = 0; t < depth; ++t) {
            int8x16_t centre[4];
#pragma GCC unroll 4
            for (int v = 0; v < 4; ++v) centre[v] = vld1q_s8(centres + 64 * t + 16 * v);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                std::int32_t four;
                std::memcpy(&four, codes + r * pitch + 4 * t, sizeof four);
                const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
#pragma GCC unroll 4
                for (int v = 0; v < 4; ++v) sum[r][v] = vdotq_s32(sum[r][v], centre[v], x);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < 4; ++v) vst1q_s32(out + r * width + 4 * v, sum[r][v]);
    }
};

// Padding of the centre is 0, so the bytes past the end of the row do not count.
void pair_products(const CodeRows& rows, const CodesByCentre& centres, const std::int32_t* centre,
                   std::int32_t* out) {
    for (Size i = 0; i < rows.n; ++i) {
        const std::int8_t *x = rows.codes + i * rows.pitch,
                          *c = centres.codes + Size(centre[i]) * centres.pitch;
        int32x4_t sum = vdupq_n_s32(0);
        for (Size f = 0; f < centres.pitch; f += 16)
            sum = vdotq_s32(sum, vld1q_s8(x + f), vld1q_s8(c + f));
        out[i] = vaddvq_s32(sum);
    }
}

}  // namespace

constinit const IntegerProducts products_neondot{.name = "neondot",
                                                 .bias = 0,
                                                 .speed = 4,
                                                 .products = &products<DotTile>,
                                                 .pair_products = &pair_products};

}  // namespace exactmeans

#endif
