// Scores of short dense rows (few features): lanes run across rows, so there is no reduction over
// lanes and no padding of centres.
//
// Pragmas unroll all loops over accumulators; otherwise the compiler keeps accumulators in memory.
#pragma once

#include <cstdint>

#include "lanes.hpp"

namespace exactmeans {

// Transposes `width` rows, a multiple of the lanes, and subtracts a shift unless it is null: x[f *
// width + i] = rows[i][f] - shift[f].
template <class V>
inline void transpose_rows(const typename V::Real* const* rows, Size width,
                           const typename V::Real* shift, Size d, typename V::Real* x) {
    using R = typename V::Real;
    for (Size i = 0; i < width; i += V::lanes) {
        Size f = 0;
        const auto transpose = [&](auto shifted) {
            for (; f < d; f += V::transposed_features) {
                if (f > d - V::transposed_features)
                    f = d - V::transposed_features;  // the last block may overlap the one before
                V column[V::transposed_features];
                V::columns(rows + i, f, column);
#pragma GCC unroll 16
                for (int l = 0; l < V::transposed_features; ++l)
                    shifted(column[l], f + l).store(x + (f + l) * width + i);
            }
        };
        if (d >= V::transposed_features && shift)
            transpose([&](V a, Size at) { return V::sub(a, V::splat(shift[at])); });
        else if (d >= V::transposed_features)
            transpose([](V a, Size) { return a; });
        for (; f < d; ++f)
            for (int l = 0; l < V::lanes; ++l) {
                const R value = rows[i + l][f];
                x[f * width + i + l] = shift ? value - shift[f] : value;
            }
    }
}

// Scores of vectors of such rows against four neighbouring centres of a panel, whose values are
// broadcast to all lanes.
inline constexpr int short_row_centres = 4;
template <class V, int Vectors, class Term>
struct ShortRowTileScores {
    using R = typename V::Real;
    static_assert(unit_width<R> % short_row_centres == 0);
    V score[short_row_centres][Vectors];

    void run(const R* x, const R* centre, Size width, const R* score_offset, Size d) {
        V acc[short_row_centres][Vectors];
#pragma GCC unroll 16
        for (int c = 0; c < short_row_centres; ++c)
#pragma GCC unroll 16
            for (int v = 0; v < Vectors; ++v) acc[c][v] = V::splat(0);
        for (Size f = 0; f < d; ++f) {
            V row[Vectors];
#pragma GCC unroll 16
            for (int v = 0; v < Vectors; ++v) row[v] = V::load(x + (f * Vectors + v) * V::lanes);
#pragma GCC unroll 16
            for (int c = 0; c < short_row_centres; ++c) {
                const V value = V::splat(centre[f * width + c]);
#pragma GCC unroll 16
                for (int v = 0; v < Vectors; ++v) acc[c][v] = Term::add(row[v], value, acc[c][v]);
            }
        }
#pragma GCC unroll 16
        for (int c = 0; c < short_row_centres; ++c)
#pragma GCC unroll 16
            for (int v = 0; v < Vectors; ++v)
                score[c][v] = V::add(acc[c][v], V::splat(score_offset[c]));
    }
};

// `blocks` blocks of Vectors vectors of rows against four centres of a panel.
template <class V, int Vectors, bool WithSecond, class Term>
inline void short_row_tiles(const typename V::Real* x, Size blocks,
                            const Panels<typename V::Real>& centres,
                            const typename Panels<typename V::Real>::Panel& panel, Size lane,
                            LaneBest<V>* best) {
    using R = typename V::Real;
    const Size j = panel.first + lane, d = centres.d;
    for (Size b = 0; b < blocks; ++b, best += Vectors, x += Vectors * V::lanes * d) {
        ShortRowTileScores<V, Vectors, Term> tile;
        tile.run(x, centres.values + panel.first * d + lane, panel.width(),
                 centres.score_offset + j, d);
        V number = V::splat(R(j));
#pragma GCC unroll 16
        for (int c = 0; c < short_row_centres; ++c) {
#pragma GCC unroll 16
            for (int v = 0; v < Vectors; ++v)
                best[v].template take<WithSecond>(tile.score[c][v], number);
            number = V::add(number, V::splat(1));
        }
    }
}

// n must be a multiple of the lanes. Transposed rows stay in a buffer in L1, and each centre is
// read once for all of them.
template <class V, bool WithSecond, class Term>
void nearest_short_rows(const typename V::Real* const* rows, Size n, const typename V::Real* shift,
                        const Panels<typename V::Real>& centres,
                        const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    // The buffer has 6144 values, or as many as one block of the longest short rows needs. It takes
    // up to four blocks of rows.
    constexpr Size block = Size(V::row_vectors) * V::lanes, widest = block * short_row_features<R>,
                   values = widest < 6144 ? 6144 : widest, blocks = 4;
    alignas(64) R x[values];
    R label[V::lanes];
    LaneBest<V> best[blocks * block / V::lanes];
    const Size d = centres.d, fit = values / (block * d),
               most = block * (fit < blocks ? fit : blocks);
    for (Size begin = 0; begin < n; begin += most) {
        const Size left = n - begin, count = left < most ? left : most;
        const Size full = count / block, rest = count % block, past = full * V::row_vectors;
        for (Size b = 0; b < full; ++b)
            transpose_rows<V>(rows + begin + b * block, block, shift, d, x + b * block * d);
        for (Size i = full * block; i < count; i += V::lanes)
            transpose_rows<V>(rows + begin + i, V::lanes, shift, d, x + i * d);
        for (Size v = 0; v < count / V::lanes; ++v) best[v] = LaneBest<V>::none();
        for (Size p = 0; p < centres.count; ++p) {
            const auto panel = centres.panel(p);
            for (Size l = 0; l < panel.width() && panel.first + l < centres.k;
                 l += short_row_centres) {
                short_row_tiles<V, V::row_vectors, WithSecond, Term>(x, full, centres, panel, l,
                                                                     best);
                short_row_tiles<V, 1, WithSecond, Term>(x + full * block * d, rest / V::lanes,
                                                        centres, panel, l, best + past);
            }
        }
        for (Size i = 0; i < count; i += V::lanes) {
            const LaneBest<V>& own = best[i / V::lanes];
            own.score.store(out.score + begin + i);
            if constexpr (WithSecond) own.second.store(out.second + begin + i);
            own.centre.store(label);
            for (int l = 0; l < V::lanes; ++l) out.label[begin + i + l] = std::int32_t(label[l]);
        }
    }
}

template <class V>
void nearest_in_list(const typename V::Real* tile, Size n, Size d, const typename V::Real* centres,
                     Size count, std::int32_t* label) {
    using R = typename V::Real;
    constexpr int vectors = V::short_row_vectors;
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
            const V score_offset = V::splat(centre[d]), number = V::splat(R(c));
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v)
                best[v].template take<false>(V::add(acc[v], score_offset), number);
        }
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) best[v].centre.store(numbers + v * V::lanes);
        for (Size i = 0; i < block; ++i) label[begin + i] = std::int32_t(numbers[i]);
    }
}

}  // namespace exactmeans
