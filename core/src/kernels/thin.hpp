// Few features: lanes run across rows, so that there is nothing to reduce and no lane to pad.
//
// Loops over accumulators are fully unrolled by pragma: otherwise the compiler keeps them in
// memory.
#pragma once

#include <cstdint>

#include "lanes.hpp"

namespace exactmeans {

// Rows of up to this many features are compared with lanes across rows.
inline constexpr Size thin_features = 6;

// Rows are transposed into a buffer, and each centre value is spread over all lanes.
template <class V, bool WithSecond, class Term>
void nearest_dense_thin(const typename V::Real* const* rows, Size n,
                        const Panels<typename V::Real>& centres,
                        const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    constexpr int vectors = V::thin_vectors;
    constexpr Size block = Size(vectors) * V::lanes;
    R x[thin_features * block], low[block], label[block], second[block];
    const Size d = centres.d;
    for (Size begin = 0; begin < n; begin += block) {
        const Size count = n - begin < block ? n - begin : block;
        for (Size i = 0; i < block; ++i)
            for (Size f = 0; f < d; ++f) x[f * block + i] = i < count ? rows[begin + i][f] : R(0);
        LaneBest<V> best[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) best[v] = LaneBest<V>::none();
        for (Size p = 0; p < centres.count; ++p) {
            const auto panel = centres.panel(p);
            const Size width = panel.width(), left = centres.k - panel.first,
                       lanes = left < width ? left : width;
            for (Size l = 0; l < lanes; ++l) {
                const R* centre = centres.values + panel.first * d + l;
                V acc[vectors];
#pragma GCC unroll 8
                for (int v = 0; v < vectors; ++v) acc[v] = V::splat(0);
                for (Size f = 0; f < d; ++f) {
                    const V c = V::splat(centre[f * width]);
#pragma GCC unroll 8
                    for (int v = 0; v < vectors; ++v)
                        acc[v] = Term::add(V::load(x + f * block + v * V::lanes), c, acc[v]);
                }
                const V start = V::splat(centres.start[panel.first + l]),
                        number = V::splat(R(panel.first + l));
#pragma GCC unroll 8
                for (int v = 0; v < vectors; ++v)
                    best[v].template take<WithSecond>(V::add(acc[v], start), number);
            }
        }
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
            best[v].score.store(low + v * V::lanes);
            best[v].centre.store(label + v * V::lanes);
            best[v].second.store(second + v * V::lanes);
        }
        for (Size i = 0; i < count; ++i) {
            out.label[begin + i] = std::int32_t(label[i]);
            out.score[begin + i] = low[i];
            if constexpr (WithSecond) out.second[begin + i] = second[i];
        }
    }
}

template <class V>
void nearest_listed(const typename V::Real* tile, Size n, Size d, const typename V::Real* centres,
                    Size count, std::int32_t* label) {
    using R = typename V::Real;
    constexpr int vectors = V::thin_vectors;
    constexpr Size block = Size(vectors) * V::lanes;
    static_assert(32 % block == 0);
    R numbers[block];
    for (Size begin = 0; begin < n; begin += block) {
        LaneBest<V> best[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) best[v] = LaneBest<V>::none();
        const R* centre = centres;
        for (Size c = 0; c < count; ++c, centre += d + 1) {
            V acc[vectors];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) acc[v] = V::splat(0);
            for (Size f = 0; f < d; ++f) {
                const V value = V::splat(centre[f]);
#pragma GCC unroll 8
                for (int v = 0; v < vectors; ++v)
                    acc[v] = V::fma(V::load(tile + f * n + begin + v * V::lanes), value, acc[v]);
            }
            const V start = V::splat(centre[d]), number = V::splat(R(c));
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v)
                best[v].template take<false>(V::add(acc[v], start), number);
        }
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) best[v].centre.store(numbers + v * V::lanes);
        for (Size i = 0; i < block; ++i) label[begin + i] = std::int32_t(numbers[i]);
    }
}

}  // namespace exactmeans
