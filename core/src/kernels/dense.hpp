// Scores of dense rows against panels of centres: lanes across centres, tiles of rows in registers.
// If a panel is a single vector wide, a tile covers several panels.
//
// Pragmas unroll all loops over accumulators; otherwise the compiler keeps accumulators in memory.
#pragma once

#include <utility>

#include "lanes.hpp"
#include "short_rows.hpp"

namespace exactmeans {

// Positions in neighbouring panels of two units each (the last may have three or one): the panel of
// vector v, its first lane there, and the distance between features of that panel.
template <class V, int Units>
struct PanelPosition {
    static constexpr int unit = int(unit_width<typename V::Real>);
    static constexpr int panels = Units < 4 ? 1 : Units / 2;

    static constexpr int panel(int v) {
        const int p = v * V::lanes / (2 * unit);
        return p < panels ? p : panels - 1;
    }
    static constexpr int lane(int v) { return v * V::lanes - panel(v) * 2 * unit; }
    static constexpr int pitch(int v) {
        return panel(v) < panels - 1 ? 2 * unit : (Units - 2 * (panels - 1)) * unit;
    }
};

// Scores of Rows rows against such panels: one chain of terms per pair; the score offset is added
// last.
template <class V, int Rows, int Units, class Term>
struct DenseTileScores {
    using R = typename V::Real;
    using Own = PanelVectors<V, Units>;
    using At = PanelPosition<V, Units>;
    static constexpr int vectors = Own::vectors, width = vectors * V::lanes;
    V score[Rows][vectors];

    void run(const R* const* rows, const R* panel, const R* score_offset, Size d) {
        if (sizeof(R) < sizeof(double) && d > longest_chain)
            run_pieces(rows, panel, d);
        else
            run_chain(rows, panel, d, 0, d);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v)
                score[r][v] =
                    V::add(score[r][v], Own::load_score_offset(score_offset + v * V::lanes, v));
    }

    void run_chain(const R* const* rows, const R* panel, Size d, Size begin, Size end) {
        V acc[Rows][vectors];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) acc[r][v] = V::splat(0);
        const R* column[vectors];
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v)
            column[v] = panel + At::panel(v) * 2 * unit_width<R> * d + At::lane(v);
        for (Size f = begin; f < end; ++f) {
            V centre[vectors];
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v)
                centre[v] = Own::load(column[v] + f * At::pitch(v), v);
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
            run_chain(rows, panel, d, begin, begin + chain_piece < d ? begin + chain_piece : d);
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
    tile.run(rows, centres.values + first * centres.d, centres.score_offset + first, centres.d);
    V number = V::add(V::splat(R(first)), V::iota());
#pragma GCC unroll 16
    for (int v = 0; v < tile.vectors; ++v) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) best[r].template take<WithSecond>(tile.score[r][v], number);
        number = V::add(number, V::splat(R(V::lanes)));
    }
}

// Calls run.operator()<Units>() with Units = units.
template <class V, class Run>
void for_units(Size units, Run run) {
    const auto run_if = [&]<int Units>() {
        if (units == Units) run.template operator()<Units>();
    };
    [&]<int... Less>(std::integer_sequence<int, Less...>) {
        (run_if.template operator()<Less + 1>(), ...);
    }(std::make_integer_sequence<int, 2 * V::tile_panels + 1>());
}
// Calls run.operator()<Units>(first centre) for groups of up to V::tile_panels panels.
template <class V, class Run>
void for_dense_panels(const Panels<typename V::Real>& centres, Run run) {
    const Size groups = (centres.count + V::tile_panels - 1) / V::tile_panels;
    for (Size g = 0; g < groups; ++g) {
        const auto from = centres.panel(g * centres.count / groups),
                   to = centres.panel((g + 1) * centres.count / groups - 1);
        const Size units = (to.first - from.first) / unit_width<typename V::Real> + to.units;
        for_units<V>(units, [&]<int Units>() { run.template operator()<Units>(from.first); });
    }
}

// All rows of a block against the panels of a tile, as many rows at a time as the registers hold.
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

// A panel is read once for this many rows, whose best scores stay in L1.
inline constexpr Size dense_block = 96;

template <class V>
void panel_dense(const typename V::Real* const* rows, Size n,
                 const Panels<typename V::Real>& centres, Size p,
                 const Nearest<typename V::Real>& out) {
    const auto panel = centres.panel(p);
    LaneBest<V> best[dense_block];
    for (Size begin = 0; begin < n; begin += dense_block) {
        const Size count = n - begin < dense_block ? n - begin : dense_block;
        for (Size i = 0; i < count; ++i) best[i] = LaneBest<V>::none();
        for_units<V>(panel.units, [&]<int Units>() {
            dense_panel<V, Units, true, Product<V>>(rows + begin, count, centres, panel.first,
                                                    best);
        });
        reduce_rows<V, true>(best, begin, count, out);
    }
}

template <class V, bool WithSecond, class Term>
void nearest_dense_tiles(const typename V::Real* const* rows, Size n,
                         const Panels<typename V::Real>& centres,
                         const Nearest<typename V::Real>& out) {
    LaneBest<V> best[dense_block];
    for (Size begin = 0; begin < n; begin += dense_block) {
        const Size count = n - begin < dense_block ? n - begin : dense_block;
        const typename V::Real* const* some = rows + begin;
        for (Size i = 0; i < count; ++i) best[i] = LaneBest<V>::none();
        for_dense_panels<V>(centres, [&]<int Units>(Size first) {
            dense_panel<V, Units, WithSecond, Term>(some, count, centres, first, best);
        });
        reduce_rows<V, WithSecond>(best, begin, count, out);
    }
}

template <class V, bool WithSecond, class Term>
void nearest_dense_rows(const typename V::Real* const* rows, Size n, const typename V::Real* shift,
                        const Panels<typename V::Real>& centres,
                        const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    if (centres.d > short_row_features<R>)
        return nearest_dense_tiles<V, WithSecond, Term>(rows, n, centres, out);
    const Size whole = n / V::lanes * V::lanes, rest = n - whole;
    nearest_short_rows<V, WithSecond, Term>(rows, whole, shift, centres, out);
    if (rest == 0) return;
    R shifted[V::lanes * short_row_features<R>];
    const R* own[V::lanes];
    for (Size i = 0; i < rest; ++i) {
        own[i] = rows[whole + i];
        if (!shift) continue;
        for (Size f = 0; f < centres.d; ++f) shifted[i * centres.d + f] = own[i][f] - shift[f];
        own[i] = shifted + i * centres.d;
    }
    nearest_dense_tiles<V, WithSecond, Term>(
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
        tile.run(rows + i, values, centres.score_offset + first, centres.d);
        for (int r = 0; r < Rows; ++r)
            store_scores<V, Units>(tile.score[r], first, centres.k, out + (i + r) * centres.k);
        i += Rows;
    };
    while (i + step <= n) run.template operator()<step>();
    while (i < n) run.template operator()<1>();
}

template <class V, class Term>
void scores_dense(const typename V::Real* const* rows, Size n,
                  const Panels<typename V::Real>& centres, typename V::Real* out) {
    for_dense_panels<V>(centres, [&]<int Units>(Size first) {
        scores_panel<V, Units, Term>(rows, n, centres, first, out);
    });
}

}  // namespace exactmeans
