// Kernels of seeding: squared distances to candidate seeds, and the tests that avoid them, written
// once for the vector types W (doubles), V (floats) and P (pairs). kernels/seeding.hpp defines the
// order of additions.
#pragma once

#include <cstdint>
#include <utility>

#include "exactmeans/kernels/seeding.hpp"

namespace exactmeans {

// Rows x Count distances in registers: row r and point(r, c). Results of consecutive rows are
// `stride` apart.
template <class W, class R, int Rows, int Count, bool Scaled, class Point>
inline void seed_tile(const R* const* rows, const SeedPanel& panel, Point point, double* out,
                      Size stride) {
    constexpr int parts = int(seed_stripes) / W::lanes;
    W acc[parts][Rows][Count];
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p)
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int c = 0; c < Count; ++c) acc[p][r][c] = W::splat(0);
    const W scale = W::splat(panel.scale);
    const auto step = [&](const R* const* from, Size f, Size at) {
#pragma GCC unroll 4
        for (int p = 0; p < parts; ++p) {
            W x[Rows];
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                x[r] = W::load(from[r] + at + p * W::lanes);
                if constexpr (Scaled) x[r] = W::mul(x[r], scale);
            }
#pragma GCC unroll 16
            for (int c = 0; c < Count; ++c)
#pragma GCC unroll 16
                for (int r = 0; r < Rows; ++r) {
                    const W apart = W::sub(x[r], W::load(point(r, c) + f + p * W::lanes));
                    acc[p][r][c] = W::fma(apart, apart, acc[p][r][c]);
                }
        }
    };
    Size f = 0;
    for (; f + seed_stripes <= panel.d; f += seed_stripes) step(rows, f, f);
    if (f < panel.d) {
        // Rows are padded with zeros like the points, which adds nothing to any stripe.
        R tail[Rows][seed_stripes] = {};
        const R* tails[Rows];
        for (int r = 0; r < Rows; ++r) {
            for (Size g = f; g < panel.d; ++g) tail[r][g - f] = rows[r][g];
            tails[r] = tail[r];
        }
        step(tails, f, 0);
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int c = 0; c < Count; ++c) {
            W sum = acc[0][r][c];
            if constexpr (parts == 2) sum = W::add(sum, acc[1][r][c]);
            out[r * stride + c] = W::total(sum);
        }
}

template <class W, class R, int Count, bool Scaled>
inline void seed_group(const R* const* rows, Size n, const SeedPanel& panel, Size first,
                       double* out) {
    // Twelve accumulators and their operands fill sixteen registers.
    constexpr int step = Count == 1 ? 6 : Count == 2 ? 4 : 2;
    const auto point = [&](int, int c) { return panel.points + (first + c) * panel.pitch; };
    Size i = 0;
    for (; i + step <= n; i += step)
        seed_tile<W, R, step, Count, Scaled>(rows + i, panel, point, out + i * panel.count + first,
                                             panel.count);
    for (; i < n; ++i)
        seed_tile<W, R, 1, Count, Scaled>(rows + i, panel, point, out + i * panel.count + first,
                                          panel.count);
}

// Calls fn<size>(first) for groups of points of about equal size, none above Most.
template <int Most, class Fn>
inline void in_groups(Size count, Fn fn) {
    const Size groups = (count + Most - 1) / Most;
    for (Size g = 0; g < groups; ++g) {
        const Size first = g * count / groups, size = (g + 1) * count / groups - first;
        const auto of_size = [&]<int... Less>(std::integer_sequence<int, Less...>) {
            ((size == Less + 1 ? fn.template operator()<Less + 1>(first) : void()), ...);
        };
        of_size(std::make_integer_sequence<int, Most>{});
    }
}

template <class W, class R, bool Scaled>
inline void seed_groups(const R* const* rows, Size n, const SeedPanel& panel, double* out) {
    in_groups<6>(panel.count, [&]<int Count>(Size first) {
        seed_group<W, R, Count, Scaled>(rows, n, panel, first, out);
    });
}

template <class W, class R>
void seed_distances2(const R* const* rows, Size n, const SeedPanel& panel, double* out) {
    if (panel.scale == 1)
        seed_groups<W, R, false>(rows, n, panel, out);
    else
        seed_groups<W, R, true>(rows, n, panel, out);
}

template <class W, class R>
void seed_pairs2(const R* const* rows, const Size* of_point, Size n, const SeedPanel& panel,
                 double* out) {
    in_groups<6>(n, [&]<int Count>(Size first) {
        const double* points[Count];
        for (int r = 0; r < Count; ++r)
            points[r] = panel.points + of_point[first + r] * panel.pitch;
        const auto point = [&](int r, int) { return points[r]; };
        if (panel.scale == 1)
            seed_tile<W, R, Count, 1, false>(rows + first, panel, point, out + first, 1);
        else
            seed_tile<W, R, Count, 1, true>(rows + first, panel, point, out + first, 1);
    });
}

template <class W>
void seed_reach(const SeedReach& reach, const std::int32_t* own, const double* d2, Size n,
                std::uint32_t* survives) {
    for (Size i = 0; i < n; ++i) {
        const W limit = W::splat(reach.factor * d2[i] + reach.absolute);
        const double* to_seed2 = reach.seed_distances2 + Size(own[i]) * reach.width;
        std::uint32_t bits = 0;
        for (Size s = 0; s < reach.width; s += W::lanes)
            bits |= std::uint32_t(W::bits(W::less(W::load(to_seed2 + s), limit))) << s;
        survives[i] = bits;
    }
}

template <class W>
WholeSums seed_to_whole(double* values, Size n, double most, double fine) {
    constexpr double magic = 0x1.8p52;  // adding it rounds to an integer
    const W high = W::splat(most), low = W::splat(-most), by = W::splat(fine);
    const W shift = W::splat(magic);
    W norm2 = W::splat(0), off2 = W::splat(0);
    Size f = 0;
    for (; f + W::lanes <= n; f += W::lanes) {
        const W value = W::mul(W::max(W::min(W::load(values + f), high), low), by);
        const W whole = W::sub(W::add(value, shift), shift), off = W::sub(value, whole);
        whole.store(values + f);
        norm2 = W::fma(whole, whole, norm2);
        off2 = W::fma(off, off, off2);
    }
    double sums[2][W::lanes];
    norm2.store(sums[0]);
    off2.store(sums[1]);
    WholeSums out;
    for (int l = 0; l < W::lanes; ++l) {
        out.norm2 += sums[0][l];
        out.off2 += sums[1][l];
    }
    for (; f < n; ++f) {
        const double in = values[f] > most ? most : values[f] < -most ? -most : values[f];
        const double value = in * fine, whole = (value + magic) - magic;
        values[f] = whole;
        out.norm2 += whole * whole;
        out.off2 += (value - whole) * (value - whole);
    }
    return out;
}

// Count points at a time, so that the coordinates are loaded once for all of them.
template <class V, class P, int Count>
inline void seed_bounds_group(const SeedBounds& bounds, Size first, const BoundTile& tile,
                              std::uint32_t* survives) {
    constexpr int vectors = int(bound_rows) / V::lanes;
    P acc[Count][vectors];
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) acc[c][v] = P::zero();
    const std::int16_t* points = bounds.points + first * 2 * bounds.pairs;
#pragma GCC unroll 2
    for (Size p = 0; p < bounds.pairs; ++p) {
        P x[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v)
            x[v] = P::load(tile.pairs + 2 * (p * bound_rows + v * V::lanes));
#pragma GCC unroll 8
        for (int c = 0; c < Count; ++c) {
            const P point = P::splat(points + 2 * (c * bounds.pairs + p));
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) acc[c][v] = P::add_products(acc[c][v], x[v], point);
        }
    }
    const V keep = V::splat(SeedBounds::keep), factor = V::splat(SeedBounds::factor);
    const V twice = V::splat(2 / bounds.fine);
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) {
        std::uint32_t may = 0;
        const V slack = V::splat(bounds.slack[first + c]);
        const V norm2 = V::splat(bounds.norm2[first + c]);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
            const V reach = V::add(V::load(tile.near + v * V::lanes), slack);
            const V sum = V::mul(V::add(V::load(tile.norm2 + v * V::lanes), norm2), keep);
            const V apart2 = V::sub(sum, V::mul(P::template real<V>(acc[c][v]), twice));
            const auto less = V::less(apart2, V::mul(V::mul(reach, reach), factor));
            may |= std::uint32_t(V::bits(less)) << (v * V::lanes);
        }
        for (; may; may &= may - 1) survives[__builtin_ctz(may)] |= std::uint32_t(1) << (first + c);
    }
}

template <class V, class P>
void seed_bounds(const SeedBounds& bounds, const BoundTile& tile, std::uint32_t* survives) {
    in_groups<4>(bounds.count, [&]<int Count>(Size first) {
        seed_bounds_group<V, P, Count>(bounds, first, tile, survives);
    });
}

// Dot products of a row with Count points.
template <class P, int Count>
inline void seed_row_products(const SeedBounds& bounds, const std::int8_t* row, const Size* which,
                              std::int32_t* products) {
    P acc[Count];
    const std::int16_t* points[Count];
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) {
        acc[c] = P::zero();
        points[c] = bounds.points + which[c] * 2 * bounds.pairs;
    }
    for (Size f = 0; f < 2 * bounds.pairs; f += 2 * P::lanes) {
        const P x = P::load(row + f);
#pragma GCC unroll 8
        for (int c = 0; c < Count; ++c) acc[c] = P::add_products(acc[c], x, P::load(points[c] + f));
    }
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) products[c] = P::total(acc[c]);
}

template <class P>
std::uint32_t seed_row_bounds(const SeedBounds& bounds, const BoundRow& row,
                              std::uint32_t survives) {
    Size which[most_points], count = 0;
    for (std::uint32_t bits = survives; bits; bits &= bits - 1)
        which[count++] = Size(__builtin_ctz(bits));
    std::int32_t products[most_points];
    in_groups<8>(count, [&]<int Count>(Size first) {
        seed_row_products<P, Count>(bounds, row.pairs, which + first, products + first);
    });
    const float twice = 2 / bounds.fine;
    std::uint32_t may = 0;
    for (Size t = 0; t < count; ++t) {
        const Size s = which[t];
        const float reach = row.near + bounds.slack[s];
        const float sum = (row.norm2 + bounds.norm2[s]) * SeedBounds::keep;
        const bool less = sum - float(products[t]) * twice < reach * reach * SeedBounds::factor;
        may |= std::uint32_t(less) << s;
    }
    return may;
}

template <class W>
Size seed_improved(const double* norm2, double point_norm2, double* dot, const double* d2, Size n,
                   std::uint32_t* rows, double* distances2) {
    Size found = 0;
    const W other = W::splat(point_norm2), zero = W::splat(0);
    Size i = 0;
    for (; i + W::lanes <= n; i += W::lanes) {
        const W product = W::load(dot + i);
        const W apart =
            W::max(W::sub(W::add(W::load(norm2 + i), other), W::add(product, product)), zero);
        zero.store(dot + i);
        const unsigned bits = W::bits(W::less(apart, W::load(d2 + i)));
        if (!bits) continue;
        double values[W::lanes];
        apart.store(values);
        for (int l = 0; l < W::lanes; ++l) {
            rows[found] = std::uint32_t(i + l);
            distances2[found] = values[l];
            found += (bits >> l) & 1;
        }
    }
    for (; i < n; ++i) {
        const double gap = (norm2[i] + point_norm2) - (dot[i] + dot[i]),
                     apart = gap > 0 ? gap : 0.0;
        dot[i] = 0;
        if (!(apart < d2[i])) continue;
        rows[found] = std::uint32_t(i);
        distances2[found++] = apart;
    }
    return found;
}

template <class W>
Size seed_reachable(const SparseTest& test, double* dot, const double* d2, Size n,
                    std::uint32_t* rows) {
    Size found = 0;
    const W norm2 = W::splat(test.point_norm2), most = W::splat(test.point_frequent);
    const W keep = W::splat(test.keep), zero = W::splat(0);
    Size i = 0;
    for (; i + W::lanes <= n; i += W::lanes) {
        const W product = W::fma(W::load(test.frequent + i), most, W::load(dot + i));
        const W sum = W::mul(W::add(W::load(test.norm2 + i), norm2), keep);
        zero.store(dot + i);
        const unsigned bits =
            W::bits(W::less(W::sub(sum, W::add(product, product)), W::load(d2 + i)));
        if (!bits) continue;
        for (int l = 0; l < W::lanes; ++l) {
            rows[found] = std::uint32_t(i + l);
            found += (bits >> l) & 1;
        }
    }
    for (; i < n; ++i) {
        const double product = dot[i] + test.frequent[i] * test.point_frequent;
        const double sum = (test.norm2[i] + test.point_norm2) * test.keep;
        dot[i] = 0;
        if (sum - (product + product) < d2[i]) rows[found++] = std::uint32_t(i);
    }
    return found;
}

// V: vectors of floats; W: of doubles; P: of pairs of 16-bit integers and of sums of their
// products.
template <class V, class W, class P>
constexpr SeedKernels seed_table() {
    return {.distances2_single = &seed_distances2<W, float>,
            .distances2_double = &seed_distances2<W, double>,
            .pairs2_single = &seed_pairs2<W, float>,
            .pairs2_double = &seed_pairs2<W, double>,
            .reach = &seed_reach<W>,
            .to_whole = &seed_to_whole<W>,
            .bounds = &seed_bounds<V, P>,
            .row_bounds = &seed_row_bounds<P>,
            .improved = &seed_improved<W>,
            .reachable = &seed_reachable<W>};
}

}  // namespace exactmeans
