// For any CPU. A vector is one unit of plain values, and fused multiply-adds are std::fma, which
// rounds correctly with or without hardware support: slow without it, but with the same bits.
#include <bit>
#include <cmath>
#include <cstdint>

#include "isa.hpp"
#include "seeds.hpp"
#include "table.hpp"

namespace exactmeans {
namespace {

struct Shorts {
    static constexpr int lanes = 2 * int(unit_width<float>);
    static constexpr int units = 1;  // of a panel that are summed at a time

    std::int16_t v[lanes];

    static Shorts load(const std::int8_t* from) {
        return each([&](int l) { return from[2 * l + 1] * 0x100 + std::uint8_t(from[2 * l]); });
    }
    static Shorts splat(std::int16_t x) {
        return each([&](int) { return x; });
    }
    static Shorts low_bytes_shifted_up(const Shorts& a) {
        return each([&](int l) { return a.v[l] * 0x100; });
    }
    static Shorts add(const Shorts& a, const Shorts& b) {
        return each([&](int l) { return a.v[l] + b.v[l]; });
    }
    static Shorts product(const Shorts& a, const Shorts& b) {
        return each([&](int l) { return (a.v[l] * b.v[l] + 0x4000) >> 15; });
    }
    void store(std::int16_t* to) const {
        for (int l = 0; l < lanes; ++l) to[l] = v[l];
    }

private:
    template <class Fn>
    static Shorts each(Fn fn) {
        Shorts out;
        for (int l = 0; l < lanes; ++l) out.v[l] = std::int16_t(fn(l));
        return out;
    }
};

template <class R>
struct Lanes {
    using Real = R;
    using Shorts = exactmeans::Shorts;
    using UpTo8Lanes = Lanes;
    static constexpr int lanes = int(unit_width<R>);
    static constexpr int tile_panels = 1;
    static constexpr int tile_rows[3] = {1, 1, 1};
    static constexpr int short_row_vectors = 1;
    static constexpr int row_vectors = 1;
    static constexpr int transposed_features = lanes;  // features per call of columns()
    struct Mask {
        bool v[lanes];
    };

    R v[lanes];

    template <class From>
    static Lanes load(const From* from) {
        return each([&](int l) { return R(from[l]); });
    }
    // Expands upper halves of float32 values.
    static Lanes load_halves(const std::uint16_t* from) {
        return each([&](int l) { return std::bit_cast<float>(std::uint32_t(from[l]) << 16); });
    }
    static Lanes splat(R x) {
        return each([&](int) { return x; });
    }
    static Lanes iota() {
        return each([](int l) { return R(l); });
    }
    void store(R* to) const {
        for (int l = 0; l < lanes; ++l) to[l] = v[l];
    }
    // Rounds to the nearest integers.
    void store_rounded(std::int16_t* to) const {
        for (int l = 0; l < lanes; ++l) to[l] = std::int16_t(std::lrint(v[l]));
    }
    void store_rounded(std::int8_t* to) const {
        for (int l = 0; l < lanes; ++l) to[l] = std::int8_t(std::lrint(v[l]));
    }
    static Lanes gather(const R* from, const std::uint32_t* at) {
        return each([&](int l) { return from[at[l]]; });
    }
    // The lower halves of the 32-bit lanes, shifted up.
    static Lanes low_half(const Lanes& a) {
        return each([&](int l) {
            return std::bit_cast<float>(std::bit_cast<std::uint32_t>(float(a.v[l])) << 16);
        });
    }
    // The sum of all lanes, by repeated halving.
    static R total(Lanes a) {
        for (int half = lanes / 2; half > 0; half /= 2)
            for (int l = 0; l < half; ++l) a.v[l] += a.v[l + half];
        return a.v[0];
    }
    static void columns(const R* const* rows, Size f, Lanes* to) {
        for (int l = 0; l < lanes; ++l) to[l] = each([&](int r) { return rows[r][f + l]; });
    }
    static Lanes add(const Lanes& a, const Lanes& b) {
        return each([&](int l) { return a.v[l] + b.v[l]; });
    }
    static Lanes sub(const Lanes& a, const Lanes& b) {
        return each([&](int l) { return a.v[l] - b.v[l]; });
    }
    static Lanes mul(const Lanes& a, const Lanes& b) {
        return each([&](int l) { return a.v[l] * b.v[l]; });
    }
    static Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
        return each([&](int l) { return std::fma(a.v[l], b.v[l], c.v[l]); });
    }
    static Mask equal(const Lanes& a, const Lanes& b) {
        Mask m;
        for (int l = 0; l < lanes; ++l) m.v[l] = a.v[l] == b.v[l];
        return m;
    }
    static Mask less(const Lanes& a, const Lanes& b) {
        Mask m;
        for (int l = 0; l < lanes; ++l) m.v[l] = a.v[l] < b.v[l];
        return m;
    }
    static unsigned bits(const Mask& m) {
        unsigned bits = 0;
        for (int l = 0; l < lanes; ++l) bits |= unsigned(m.v[l]) << l;
        return bits;
    }
    static Lanes select(const Mask& m, const Lanes& a, const Lanes& b) {
        return each([&](int l) { return m.v[l] ? a.v[l] : b.v[l]; });
    }
    // As on x86, the second operand if one is NaN: a best score must not become NaN.
    static Lanes min(const Lanes& a, const Lanes& b) { return select(less(a, b), a, b); }
    static Lanes max(const Lanes& a, const Lanes& b) { return select(less(b, a), a, b); }
    static R lowest(const Lanes& a) {
        R low = a.v[0];
        for (int l = 1; l < lanes; ++l) low = a.v[l] < low ? a.v[l] : low;
        return low;
    }
    static Lanes lowest_of(const Lanes* a) {
        return each([&](int l) { return lowest(a[l]); });
    }

private:
    template <class Fn>
    static Lanes each(Fn fn) {
        Lanes out;
        for (int l = 0; l < lanes; ++l) out.v[l] = fn(l);
        return out;
    }
};

// Pairs of 16-bit integers, first and second members apart, and sums of their products.
struct Pairs {
    static constexpr int lanes = Lanes<float>::lanes;
    std::int32_t v[lanes], w[lanes];

    static Pairs zero() { return {}; }
    template <class Whole>
    static Pairs load(const Whole* from) {
        Pairs out;
        for (int l = 0; l < lanes; ++l) out.v[l] = from[2 * l], out.w[l] = from[2 * l + 1];
        return out;
    }
    static Pairs splat(const std::int16_t* pair) {
        Pairs out;
        for (int l = 0; l < lanes; ++l) out.v[l] = pair[0], out.w[l] = pair[1];
        return out;
    }
    static Pairs add_products(Pairs sum, const Pairs& a, const Pairs& b) {
        for (int l = 0; l < lanes; ++l) sum.v[l] += a.v[l] * b.v[l] + a.w[l] * b.w[l];
        return sum;
    }
    template <class V>
    static V real(const Pairs& sum) {
        return V::load(sum.v);
    }
    static std::int32_t total(const Pairs& sum) {
        std::int32_t out = 0;
        for (int l = 0; l < lanes; ++l) out += sum.v[l];
        return out;
    }
};

constexpr BoundKernels bounds = bound_table<Lanes<float>, Lanes<float>>();
constexpr SeedKernels seeds = seed_table<Lanes<float>, Lanes<double>, Pairs>();

}  // namespace

constinit const Isa isa_baseline = isa_of<Lanes<float>, Lanes<double>>("baseline", bounds, seeds);

}  // namespace exactmeans
