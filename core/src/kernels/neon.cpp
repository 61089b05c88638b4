// For AArch64, where every CPU has NEON with fused multiply-add.
//
// min, max and lowest ignore NaN and order -0 below 0, unlike the other files. Neither changes a
// result: rows and centres are finite, and the last step of a score adds the score offset, which
// leaves no -0.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>

#include "isa.hpp"
#include "seeds.hpp"
#include "table.hpp"

namespace exactmeans {
namespace {

struct Shorts8 {
    static constexpr int lanes = 8;
    static constexpr int units = 3;  // of a panel that are summed at a time

    int16x8_t v;

    static Shorts8 load(const std::int8_t* from) { return {vreinterpretq_s16_s8(vld1q_s8(from))}; }
    static Shorts8 splat(std::int16_t x) { return {vdupq_n_s16(x)}; }
    static Shorts8 low_bytes_shifted_up(Shorts8 a) { return {vshlq_n_s16(a.v, 8)}; }
    static Shorts8 add(Shorts8 a, Shorts8 b) { return {vaddq_s16(a.v, b.v)}; }
    static Shorts8 product(Shorts8 a, Shorts8 b) { return {vqrdmulhq_s16(a.v, b.v)}; }
    void store(std::int16_t* to) const { vst1q_s16(to, v); }
};

struct Float4 {
    using Real = float;
    using Shorts = Shorts8;
    using UpTo8Lanes = Float4;
    static constexpr int lanes = 4;
    // A unit is two vectors. Of the 32 registers, 24 are accumulators, up to 6 hold centres, and 2
    // hold rows.
    static constexpr int tile_panels = 1;
    static constexpr int tile_rows[3] = {12, 6, 4};  // by units in a panel
    // Eight chains fill two pipelines with a latency of four cycles.
    static constexpr int short_row_vectors = 8;
    static constexpr int row_vectors = 6;              // rows in vectors, against four centres
    static constexpr int transposed_features = lanes;  // features per call of columns()

    float32x4_t v;

    static Float4 load(const float* from) { return {vld1q_f32(from)}; }
    static Float4 load(const std::int16_t* from) {
        return {vcvtq_f32_s32(vmovl_s16(vld1_s16(from)))};
    }
    static Float4 load(const std::int32_t* from) { return {vcvtq_f32_s32(vld1q_s32(from))}; }
    // Expands upper halves of float32 values.
    static Float4 load_halves(const std::uint16_t* from) {
        return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from), 16))};
    }
    static Float4 splat(float x) { return {vdupq_n_f32(x)}; }
    void store(float* to) const { vst1q_f32(to, v); }
    // Rounds to the nearest integers.
    void store_rounded(std::int16_t* to) const { vst1_s16(to, vmovn_s32(vcvtnq_s32_f32(v))); }
    void store_rounded(std::int8_t* to) const {
        std::int16_t numbers[lanes];
        store_rounded(numbers);
        for (int l = 0; l < lanes; ++l) to[l] = std::int8_t(numbers[l]);
    }
    static Float4 gather(const float* from, const std::uint32_t* at) {
        const float values[lanes] = {from[at[0]], from[at[1]], from[at[2]], from[at[3]]};
        return load(values);
    }
    // The lower halves of the 32-bit lanes, shifted up.
    static Float4 low_half(Float4 a) {
        return {vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(a.v), 16))};
    }
    // Transposes features from f on of four rows: each vector has one feature.
    static void columns(const float* const* rows, Size f, Float4* to) {
        const float32x4x2_t ab = vzipq_f32(vld1q_f32(rows[0] + f), vld1q_f32(rows[2] + f)),
                            cd = vzipq_f32(vld1q_f32(rows[1] + f), vld1q_f32(rows[3] + f)),
                            low = vzipq_f32(ab.val[0], cd.val[0]),
                            high = vzipq_f32(ab.val[1], cd.val[1]);
        to[0] = {low.val[0]};
        to[1] = {low.val[1]};
        to[2] = {high.val[0]};
        to[3] = {high.val[1]};
    }
    static Float4 add(Float4 a, Float4 b) { return {vaddq_f32(a.v, b.v)}; }
    static Float4 sub(Float4 a, Float4 b) { return {vsubq_f32(a.v, b.v)}; }
    static Float4 mul(Float4 a, Float4 b) { return {vmulq_f32(a.v, b.v)}; }
    static Float4 fma(Float4 a, Float4 b, Float4 c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
    static Float4 iota() {
        constexpr float numbers[lanes] = {0, 1, 2, 3};
        return load(numbers);
    }
    static uint32x4_t equal(Float4 a, Float4 b) { return vceqq_f32(a.v, b.v); }
    static uint32x4_t less(Float4 a, Float4 b) { return vcltq_f32(a.v, b.v); }
    static unsigned bits(uint32x4_t m) {
        constexpr std::uint32_t place[lanes] = {1, 2, 4, 8};
        return vaddvq_u32(vandq_u32(m, vld1q_u32(place)));
    }
    static Float4 select(uint32x4_t m, Float4 a, Float4 b) { return {vbslq_f32(m, a.v, b.v)}; }
    static Float4 min(Float4 a, Float4 b) { return {vminnmq_f32(a.v, b.v)}; }
    static Float4 max(Float4 a, Float4 b) { return {vmaxnmq_f32(a.v, b.v)}; }
    static float lowest(Float4 a) { return vminnmvq_f32(a.v); }
    // The sum of all lanes, by repeated halving.
    static float total(Float4 a) {
        const float32x2_t half = vadd_f32(vget_low_f32(a.v), vget_high_f32(a.v));
        return vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
    }
    static Float4 lowest_of(const Float4* a) {
        return {vpminnmq_f32(vpminnmq_f32(a[0].v, a[1].v), vpminnmq_f32(a[2].v, a[3].v))};
    }
};

struct Double2 {
    using Real = double;
    static constexpr int lanes = 2;
    static constexpr int tile_panels = 1;
    static constexpr int tile_rows[3] = {12, 6, 4};
    static constexpr int short_row_vectors = 8;
    static constexpr int row_vectors = 6;
    static constexpr int transposed_features = lanes;

    float64x2_t v;

    static Double2 load(const double* from) { return {vld1q_f64(from)}; }
    static Double2 load(const float* from) { return {vcvt_f64_f32(vld1_f32(from))}; }
    static Double2 splat(double x) { return {vdupq_n_f64(x)}; }
    void store(double* to) const { vst1q_f64(to, v); }
    static void columns(const double* const* rows, Size f, Double2* to) {
        const float64x2_t a = vld1q_f64(rows[0] + f), b = vld1q_f64(rows[1] + f);
        to[0] = {vzip1q_f64(a, b)};
        to[1] = {vzip2q_f64(a, b)};
    }
    static Double2 add(Double2 a, Double2 b) { return {vaddq_f64(a.v, b.v)}; }
    static Double2 sub(Double2 a, Double2 b) { return {vsubq_f64(a.v, b.v)}; }
    static Double2 mul(Double2 a, Double2 b) { return {vmulq_f64(a.v, b.v)}; }
    static Double2 fma(Double2 a, Double2 b, Double2 c) { return {vfmaq_f64(c.v, a.v, b.v)}; }
    static Double2 iota() {
        constexpr double numbers[lanes] = {0, 1};
        return load(numbers);
    }
    static uint64x2_t equal(Double2 a, Double2 b) { return vceqq_f64(a.v, b.v); }
    static uint64x2_t less(Double2 a, Double2 b) { return vcltq_f64(a.v, b.v); }
    static unsigned bits(uint64x2_t m) {
        return unsigned(vgetq_lane_u64(m, 0) & 1) | unsigned(vgetq_lane_u64(m, 1) & 2);
    }
    static Double2 select(uint64x2_t m, Double2 a, Double2 b) { return {vbslq_f64(m, a.v, b.v)}; }
    static Double2 min(Double2 a, Double2 b) { return {vminnmq_f64(a.v, b.v)}; }
    static Double2 max(Double2 a, Double2 b) { return {vmaxnmq_f64(a.v, b.v)}; }
    static double lowest(Double2 a) { return vminnmvq_f64(a.v); }
    static Double2 lowest_of(const Double2* a) { return {vpminnmq_f64(a[0].v, a[1].v)}; }
    static double total(Double2 a) { return vgetq_lane_f64(a.v, 0) + vgetq_lane_f64(a.v, 1); }
};

// Four pairs of 16-bit integers, or four sums of their products.
struct Pairs4 {
    static constexpr int lanes = 4;
    int32x4_t v;

    static Pairs4 zero() { return {vdupq_n_s32(0)}; }
    static Pairs4 load(const std::int8_t* from) {
        return {vreinterpretq_s32_s16(vmovl_s8(vld1_s8(from)))};
    }
    static Pairs4 load(const std::int16_t* from) {
        return {vreinterpretq_s32_s16(vld1q_s16(from))};
    }
    static Pairs4 splat(const std::int16_t* pair) {
        std::int32_t both;
        std::memcpy(&both, pair, sizeof both);
        return {vdupq_n_s32(both)};
    }
    static Pairs4 add_products(Pairs4 sum, Pairs4 a, Pairs4 b) {
        const int16x8_t x = vreinterpretq_s16_s32(a.v), y = vreinterpretq_s16_s32(b.v);
        const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
        return {vaddq_s32(sum.v, vpaddq_s32(low, vmull_high_s16(x, y)))};
    }
    template <class V>
    static V real(Pairs4 sum) {
        return {vcvtq_f32_s32(sum.v)};
    }
    static std::int32_t total(Pairs4 sum) { return vaddvq_s32(sum.v); }
};

constexpr BoundKernels bounds = bound_table<Float4, Float4>();
constexpr SeedKernels seeds = seed_table<Float4, Double2, Pairs4>();

}  // namespace

constinit const Isa isa_neon = isa_of<Float4, Double2>("neon", bounds, seeds);
constinit const Isa isa_neondot =
    isa_of<Float4, Double2>("neondot", bounds, seeds, products_neondot);

}  // namespace exactmeans

#endif
