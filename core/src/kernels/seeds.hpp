// Squared distances to candidate seeds and the tests that avoid them, written once in terms of two
// vector types: W of doubles and V of floats. The order of additions is that of
// exactmeans/seed/kernels.hpp.
#pragma once

#include <cstdint>

#include "exactmeans/seed/kernels.hpp"

namespace exactmeans {

// Rows x Count pairs, all in registers.
template <class W, class R, int Rows, int Count, bool Scaled>
inline void seed_tile(const R* const* rows, const SeedPanel& panel, const double* points,
                      double* out) {
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
            for (int c = 0; c < Count; ++c) {
                const W point = W::load(points + c * panel.pitch + f + p * W::lanes);
#pragma GCC unroll 16
                for (int r = 0; r < Rows; ++r) {
                    const W apart = W::sub(x[r], point);
                    acc[p][r][c] = W::fma(apart, apart, acc[p][r][c]);
                }
            }
        }
    };
    Size f = 0;
    for (; f + seed_stripes <= panel.d; f += seed_stripes) step(rows, f, f);
    if (f < panel.d) {
        // Padding with zeros, as the points are, adds nothing to any stripe.
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
            out[r * panel.count + c] = W::total(sum);
        }
}

template <class W, class R, int Count, bool Scaled>
inline void seed_group(const R* const* rows, Size n, const SeedPanel& panel, Size first,
                       double* out) {
    // Twelve accumulators and what feeds them fill sixteen registers.
    constexpr int step = Count == 1 ? 6 : Count == 2 ? 4 : 2;
    const double* points = panel.points + first * panel.pitch;
    Size i = 0;
    for (; i + step <= n; i += step)
        seed_tile<W, R, step, Count, Scaled>(rows + i, panel, points,
                                             out + i * panel.count + first);
    for (; i < n; ++i)
        seed_tile<W, R, 1, Count, Scaled>(rows + i, panel, points, out + i * panel.count + first);
}

template <class W, class R, bool Scaled>
inline void seed_groups(const R* const* rows, Size n, const SeedPanel& panel, double* out) {
    // Groups of equal size, none above six.
    const Size groups = (panel.count + 5) / 6;
    for (Size g = 0; g < groups; ++g) {
        const Size first = g * panel.count / groups, count = (g + 1) * panel.count / groups - first;
        switch (count) {
            case 1:
                seed_group<W, R, 1, Scaled>(rows, n, panel, first, out);
                break;
            case 2:
                seed_group<W, R, 2, Scaled>(rows, n, panel, first, out);
                break;
            case 3:
                seed_group<W, R, 3, Scaled>(rows, n, panel, first, out);
                break;
            case 4:
                seed_group<W, R, 4, Scaled>(rows, n, panel, first, out);
                break;
            case 5:
                seed_group<W, R, 5, Scaled>(rows, n, panel, first, out);
                break;
            default:
                seed_group<W, R, 6, Scaled>(rows, n, panel, first, out);
                break;
        }
    }
}

template <class W, class R>
void seed_distances2(const R* const* rows, Size n, const SeedPanel& panel, double* out) {
    if (panel.scale == 1)
        seed_groups<W, R, false>(rows, n, panel, out);
    else
        seed_groups<W, R, true>(rows, n, panel, out);
}

template <class W>
void seed_reach(const SeedReach& reach, const std::int32_t* own, const double* d2, Size n,
                std::uint32_t* survives) {
    for (Size i = 0; i < n; ++i) {
        const W limit = W::splat(reach.factor * d2[i] + reach.absolute);
        const double* gaps = reach.gaps + Size(own[i]) * reach.width;
        std::uint32_t bits = 0;
        for (Size s = 0; s < reach.width; s += W::lanes)
            bits |= std::uint32_t(W::bits(W::less(W::load(gaps + s), limit))) << s;
        survives[i] = bits;
    }
}

// Up to Count points at a time, so that a coordinate is loaded once for all of them.
template <class V, int Count>
inline void seed_bounds_group(const SeedBounds& bounds, Size first, const float* tile,
                              const float* near, std::uint32_t* survives) {
    constexpr int vectors = int(bound_rows) / V::lanes;
    V acc[Count][vectors];
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) acc[c][v] = V::splat(0);
    const float* points = bounds.points + first * bounds.coordinates;
    for (Size f = 0; f < bounds.coordinates; ++f) {
        V x[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) x[v] = V::load(tile + f * bound_rows + v * V::lanes);
#pragma GCC unroll 8
        for (int c = 0; c < Count; ++c) {
            const V point = V::splat(points[c * bounds.coordinates + f]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) {
                const V apart = V::sub(x[v], point);
                acc[c][v] = V::fma(apart, apart, acc[c][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) {
        std::uint32_t may = 0;
        const V slack = V::splat(bounds.slack[first + c]), factor = V::splat(bounds.factor);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
            const V reach = V::add(V::load(near + v * V::lanes), slack);
            const auto less = V::less(acc[c][v], V::mul(V::mul(reach, reach), factor));
            may |= std::uint32_t(V::bits(less)) << (v * V::lanes);
        }
        const std::uint32_t bit = std::uint32_t(1) << (first + c);
        if (may == 0)
            for (Size i = 0; i < bound_rows; ++i) survives[i] &= ~bit;
        else
            for (Size i = 0; i < bound_rows; ++i)
                survives[i] &= ((may >> i) & 1) ? ~std::uint32_t(0) : ~bit;
    }
}

template <class V>
void seed_bounds(const SeedBounds& bounds, const float* tile, const float* near,
                 std::uint32_t* survives) {
    Size s = 0;
    for (; s + 4 <= bounds.count; s += 4) seed_bounds_group<V, 4>(bounds, s, tile, near, survives);
    for (; s + 2 <= bounds.count; s += 2) seed_bounds_group<V, 2>(bounds, s, tile, near, survives);
    for (; s < bounds.count; ++s) seed_bounds_group<V, 1>(bounds, s, tile, near, survives);
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

// V of floats, W of doubles.
template <class V, class W>
constexpr SeedKernels seed_table() {
    return {
        &seed_distances2<W, float>, &seed_distances2<W, double>, &seed_reach<W>, &seed_bounds<V>,
        &seed_improved<W>,          &seed_reachable<W>};
}

}  // namespace exactmeans
