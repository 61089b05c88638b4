// Dense rows against panels of centres: lanes across centres, tiles of rows in registers.
//
// Loops over accumulators are fully unrolled by pragma: otherwise the compiler keeps them in
// memory.
#pragma once

#include "lanes.hpp"
#include "thin.hpp"

namespace exactmeans {

// Scores of Rows rows against one panel: a chain of terms per pair, and the start added last.
template <class V, int Rows, int Units, class Term>
struct DenseTileScores {
    using R = typename V::Real;
    static constexpr int width = int(unit_width<R>) * Units;
    static constexpr int vectors = width / V::lanes;
    V score[Rows][vectors];

    void run(const R* const* rows, const R* panel, const R* start, Size d) {
        if (sizeof(R) < sizeof(double) && d > longest_chain)
            run_pieces(rows, panel, d);
        else
            run_chain(rows, panel, 0, d);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v)
                score[r][v] = V::add(score[r][v], V::load(start + v * V::lanes));
    }

    void run_chain(const R* const* rows, const R* panel, Size begin, Size end) {
        V acc[Rows][vectors];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) acc[r][v] = V::splat(0);
        for (Size f = begin; f < end; ++f) {
            V centre[vectors];
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) centre[v] = V::load(panel + f * width + v * V::lanes);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const V x = V::splat(rows[r][f]);
#pragma GCC unroll 16
                for (int v = 0; v < vectors; ++v) acc[r][v] = Term::add(x, centre[v], acc[r][v]);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) score[r][v] = acc[r][v];
    }

    void run_pieces(const R* const* rows, const R* panel, Size d) {
        double total[Rows][width] = {};
        R part[width];
        for (Size begin = 0; begin < d; begin += chain_piece) {
            run_chain(rows, panel, begin, begin + chain_piece < d ? begin + chain_piece : d);
            for (int r = 0; r < Rows; ++r) {
                for (int v = 0; v < vectors; ++v) score[r][v].store(part + v * V::lanes);
                for (int l = 0; l < width; ++l) total[r][l] += double(part[l]);
            }
        }
        for (int r = 0; r < Rows; ++r) {
            for (int l = 0; l < width; ++l) part[l] = R(total[r][l]);
            for (int v = 0; v < vectors; ++v) score[r][v] = V::load(part + v * V::lanes);
        }
    }
};

template <class V, int Rows, int Units, bool WithSecond, class Term>
inline void dense_tile(const typename V::Real* const* rows, const Panels<typename V::Real>& centres,
                       Size first, LaneBest<V>* best) {
    using R = typename V::Real;
    DenseTileScores<V, Rows, Units, Term> tile;
    tile.run(rows, centres.values + first * centres.d, centres.start + first, centres.d);
    V number = V::add(V::splat(R(first)), V::iota());
#pragma GCC unroll 16
    for (int v = 0; v < tile.vectors; ++v) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) best[r].template take<WithSecond>(tile.score[r][v], number);
        number = V::add(number, V::splat(R(V::lanes)));
    }
}

// All rows of a block against one panel, as many at a time as the registers hold.
template <class V, int Units, bool WithSecond, class Term>
void dense_panel(const typename V::Real* const* rows, Size n,
                 const Panels<typename V::Real>& centres, Size first, LaneBest<V>* best) {
    constexpr int step = V::tile_rows[Units - 1];
    Size i = 0;
    for (; i + step <= n; i += step)
        dense_tile<V, step, Units, WithSecond, Term>(rows + i, centres, first, best + i);
    for (; i + 4 <= n && step > 4; i += 4)
        dense_tile<V, 4, Units, WithSecond, Term>(rows + i, centres, first, best + i);
    for (; i + 2 <= n; i += 2)
        dense_tile<V, 2, Units, WithSecond, Term>(rows + i, centres, first, best + i);
    for (; i < n; ++i)
        dense_tile<V, 1, Units, WithSecond, Term>(rows + i, centres, first, best + i);
}

// A panel is read once for this many rows; their state stays in the first-level cache.
inline constexpr Size dense_block = 96;

template <class V>
void panel_dense(const typename V::Real* const* rows, Size n,
                 const Panels<typename V::Real>& centres, Size p,
                 const Nearest<typename V::Real>& out) {
    const auto panel = centres.panel(p);
    const auto run = panel.units == 1   ? &dense_panel<V, 1, true, Product<V>>
                     : panel.units == 2 ? &dense_panel<V, 2, true, Product<V>>
                                        : &dense_panel<V, 3, true, Product<V>>;
    LaneBest<V> best[dense_block];
    for (Size begin = 0; begin < n; begin += dense_block) {
        const Size count = n - begin < dense_block ? n - begin : dense_block;
        for (Size i = 0; i < count; ++i) best[i] = LaneBest<V>::none();
        run(rows + begin, count, centres, panel.first, best);
        reduce_rows<V, true>(best, begin, count, out);
    }
}

template <class V, bool WithSecond, class Term>
void nearest_dense_wide(const typename V::Real* const* rows, Size n,
                        const Panels<typename V::Real>& centres,
                        const Nearest<typename V::Real>& out) {
    LaneBest<V> best[dense_block];
    for (Size begin = 0; begin < n; begin += dense_block) {
        const Size count = n - begin < dense_block ? n - begin : dense_block;
        const typename V::Real* const* some = rows + begin;
        for (Size i = 0; i < count; ++i) best[i] = LaneBest<V>::none();
        for (Size p = 0; p < centres.count; ++p) {
            const auto panel = centres.panel(p);
            if (panel.units == 1)
                dense_panel<V, 1, WithSecond, Term>(some, count, centres, panel.first, best);
            else if (panel.units == 2)
                dense_panel<V, 2, WithSecond, Term>(some, count, centres, panel.first, best);
            else
                dense_panel<V, 3, WithSecond, Term>(some, count, centres, panel.first, best);
        }
        reduce_rows<V, WithSecond>(best, begin, count, out);
    }
}

template <class V, bool WithSecond, class Term>
void nearest_dense_rows(const typename V::Real* const* rows, Size n, const typename V::Real* shift,
                        const Panels<typename V::Real>& centres,
                        const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    if (centres.d > thin_features<R>)
        return nearest_dense_wide<V, WithSecond, Term>(rows, n, centres, out);
    const Size whole = n / V::lanes * V::lanes, rest = n - whole;
    nearest_dense_thin<V, WithSecond, Term>(rows, whole, shift, centres, out);
    if (rest == 0) return;
    R moved[V::lanes * thin_features<R>];
    const R* own[V::lanes];
    for (Size i = 0; i < rest; ++i) {
        own[i] = rows[whole + i];
        if (!shift) continue;
        for (Size f = 0; f < centres.d; ++f) moved[i * centres.d + f] = own[i][f] - shift[f];
        own[i] = moved + i * centres.d;
    }
    nearest_dense_wide<V, WithSecond, Term>(
        own, rest, centres,
        {out.label + whole, out.score + whole, WithSecond ? out.second + whole : nullptr});
}

template <class V>
void nearest_dense(const typename V::Real* const* rows, Size n, const typename V::Real* shift,
                   const Panels<typename V::Real>& centres, const Nearest<typename V::Real>& out) {
    if (out.second)
        nearest_dense_rows<V, true, Product<V>>(rows, n, shift, centres, out);
    else
        nearest_dense_rows<V, false, Product<V>>(rows, n, shift, centres, out);
}

template <class V, int Units, class Term>
void scores_panel(const typename V::Real* const* rows, Size n,
                  const Panels<typename V::Real>& centres, Size first, typename V::Real* out) {
    using R = typename V::Real;
    constexpr int step = V::tile_rows[Units - 1];
    const R* values = centres.values + first * centres.d;
    Size i = 0;
    const auto run = [&]<int Rows>() {
        DenseTileScores<V, Rows, Units, Term> tile;
        tile.run(rows + i, values, centres.start + first, centres.d);
        for (int r = 0; r < Rows; ++r)
            store_scores<V, tile.vectors>(tile.score[r], first, centres.k,
                                          out + (i + r) * centres.k);
        i += Rows;
    };
    while (i + step <= n) run.template operator()<step>();
    while (i < n) run.template operator()<1>();
}

template <class V, class Term>
void scores_dense(const typename V::Real* const* rows, Size n,
                  const Panels<typename V::Real>& centres, typename V::Real* out) {
    for (Size p = 0; p < centres.count; ++p) {
        const auto panel = centres.panel(p);
        if (panel.units == 1)
            scores_panel<V, 1, Term>(rows, n, centres, panel.first, out);
        else if (panel.units == 2)
            scores_panel<V, 2, Term>(rows, n, centres, panel.first, out);
        else
            scores_panel<V, 3, Term>(rows, n, centres, panel.first, out);
    }
}

}  // namespace exactmeans
