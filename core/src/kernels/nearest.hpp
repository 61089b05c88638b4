// Nearest centres, written once in terms of a vector type V (simd types in the files that include
// this one).
//
// Loops over accumulators are fully unrolled by pragma: otherwise the compiler keeps them in
// memory.
#pragma once

#include <cstdint>
#include <limits>

#include "exactmeans/kernels.hpp"

namespace exactmeans {

// Rows of up to this many features are compared with lanes across rows.
inline constexpr Size thin_features = 6;

// Centre rows are fetched this many nonzeros ahead: they lie all over the second and third cache.
inline constexpr Size csr_ahead = 4;

// Lowest and second lowest score seen so far in each lane, and which centre the lowest belongs to.
// Centre numbers travel as reals, which hold them exactly up to 2^24.
template <class V>
struct LaneBest {
    V score, centre, second;

    static LaneBest none() {
        const V inf = V::splat(std::numeric_limits<typename V::Real>::infinity());
        return {inf, V::splat(0), inf};
    }
    template <bool WithSecond>
    void take(V candidate, V number) {
        if constexpr (WithSecond) second = V::min(second, V::max(score, candidate));
        const auto lower = V::less(candidate, score);
        score = V::select(lower, candidate, score);
        centre = V::select(lower, number, centre);
    }
};

// The best of all lanes, the lowest centre on ties.
template <class V, bool WithSecond>
inline void reduce_lanes(const LaneBest<V>& best, Size i, const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    const V inf = V::splat(std::numeric_limits<R>::infinity());
    const R low = V::lowest(best.score);
    const R label = V::lowest(V::select(V::equal(best.score, V::splat(low)), best.centre, inf));
    out.label[i] = std::int32_t(label);
    out.score[i] = low;
    if constexpr (WithSecond) {
        // Lanes start at centre 0, so several may name the winner; all but the first of them are
        // empty.
        const auto winner = V::equal(best.centre, V::splat(label));
        out.second[i] = V::lowest(V::min(best.second, V::select(winner, inf, best.score)));
    }
}

// What a feature adds to the chain of a score. The packed centre has its sign turned.
template <class V>
struct Product {
    static V add(V x, V minus_c, V sum) { return V::fma(x, minus_c, sum); }
};
template <class V>
inline V magnitude(V a) {
    return V::max(a, V::sub(V::splat(0), a));
}
// |x - c|
template <class V>
struct Gap {
    static V add(V x, V minus_c, V sum) { return V::add(sum, magnitude(V::add(x, minus_c))); }
};
// |x - c| - |c|: the start of a CSR row's score has |c| of all features.
template <class V>
struct StoredGap {
    static V add(V x, V minus_c, V sum) {
        return V::add(sum, V::sub(magnitude(V::add(x, minus_c)), magnitude(minus_c)));
    }
};

// ---- dense
// ----------------------------------------------------------------------------------------------

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
inline constexpr Size dense_block = 48;

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
        for (Size i = 0; i < count; ++i) reduce_lanes<V, true>(best[i], begin + i, out);
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
        for (Size i = 0; i < count; ++i) reduce_lanes<V, WithSecond>(best[i], begin + i, out);
    }
}

// Few features: lanes run across rows instead, so that there is nothing to reduce and no lane to
// pad. Rows are transposed into a buffer, and each centre value is spread over all lanes.
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

template <class V, bool WithSecond, class Term>
void nearest_dense_rows(const typename V::Real* const* rows, Size n,
                        const Panels<typename V::Real>& centres,
                        const Nearest<typename V::Real>& out) {
    if (centres.d <= thin_features)
        nearest_dense_thin<V, WithSecond, Term>(rows, n, centres, out);
    else
        nearest_dense_wide<V, WithSecond, Term>(rows, n, centres, out);
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

template <class V>
void nearest_dense(const typename V::Real* const* rows, Size n,
                   const Panels<typename V::Real>& centres, const Nearest<typename V::Real>& out) {
    if (out.second)
        nearest_dense_rows<V, true, Product<V>>(rows, n, centres, out);
    else
        nearest_dense_rows<V, false, Product<V>>(rows, n, centres, out);
}

// ---- CSR
// ------------------------------------------------------------------------------------------------

// Where the hits of a row are laid out as if their features had slots, a few at a time.
template <class V, int Vectors>
struct HitBench {
    using R = typename V::Real;
    static constexpr int rows = 32, entries = 256;
    static constexpr Size width = Size(Vectors) * V::lanes;
    R lanes[rows * width] = {};  // zero between uses
    const R* from[entries];
    R x[entries];
};

// One row against Vectors vectors of centres. Hits are for products only: they leave out centres
// that do not have a feature.
template <class V, int Vectors, class Term>
struct CsrChain {
    using R = typename V::Real;
    using Bench = HitBench<V, Vectors>;
    static constexpr Size width = Size(Vectors) * V::lanes;
    V sum[Vectors];

    // Adds products of x(t) and what at(t) points to; to nothing if these are the first.
    template <bool First, class X, class At>
    void add(Size begin, Size end, Size last, X x, At at) {
        // A local array: sums reached through `this` would be stored at every step.
        V acc[Vectors];
#pragma GCC unroll 32
        for (int v = 0; v < Vectors; ++v) acc[v] = First ? V::splat(0) : sum[v];
        for (Size t = begin; t < end; ++t) {
            const R* next = at(t + csr_ahead < last ? t + csr_ahead : t);
#pragma GCC unroll 32
            for (Size l = 0; l < width; l += Size(64 / sizeof(R))) __builtin_prefetch(next + l);
            const V value = V::splat(x(t));
            const R* centre = at(t);
#pragma GCC unroll 32
            for (int v = 0; v < Vectors; ++v)
                acc[v] = Term::add(value, V::load(centre + v * V::lanes), acc[v]);
        }
#pragma GCC unroll 32
        for (int v = 0; v < Vectors; ++v) sum[v] = acc[v];
    }

    // Entries [begin, end), without hits.
    void run(const SlotRow<R>& row, Size begin, Size end, const R* values) {
        add<true>(
            begin, end, row.nonzeros, [&](Size t) { return row.value[t]; },
            [&](Size t) { return values + Size(row.index[t]) * width; });
    }

    // Entries [begin, end) and the hits among them, of the panel that begins at place `first`.
    // Returns the first hit that belongs to a later entry.
    const Hit<R>* run(const SlotRow<R>& row, Size begin, Size end, const R* values, Size first,
                      const Hit<R>* hit, const Hit<R>* hits_end, Bench& bench) {
#pragma GCC unroll 32
        for (int v = 0; v < Vectors; ++v) sum[v] = V::splat(0);
        const auto due = [&](Size t) {
            return hit != hits_end && Size(hit->at) == t && (t < end || end == row.nonzeros);
        };
        for (Size t = begin; t < end || due(t);) {
            const Hit<R>* const begun = hit;
            int n = 0, rows = 0;
            while (n < bench.entries && rows < bench.rows && (t < end || due(t))) {
                if (due(t)) {
                    R* to = bench.lanes + rows++ * width;
                    bench.from[n] = to;
                    bench.x[n++] = hit->x;
                    // Hits of several features may go together if they do not meet.
                    do {
                        to[Size(hit->place) - first] = hit->value;
                        ++hit;
                    } while (due(t) && hit->place > hit[-1].place && hit->x == hit[-1].x);
                } else {
                    bench.from[n] = values + Size(row.index[t]) * width;
                    bench.x[n++] = row.value[t++];
                }
            }
            add<false>(
                0, n, n, [&](Size e) { return bench.x[e]; }, [&](Size e) { return bench.from[e]; });
            rows = -1;
            for (const Hit<R>* done = begun; done != hit; ++done) {
                if (done == begun || done->at != done[-1].at || done->place <= done[-1].place ||
                    done->x != done[-1].x)
                    ++rows;
                bench.lanes[rows * width + (Size(done->place) - first)] = 0;
            }
        }
        return hit;
    }

    void run_row(const SlotRow<R>& row, const R* values, Size first, Bench& bench) {
        const Hit<R>*hit = row.hits, *hits_end = row.hits_end;
        if (hit != hits_end) {
            hit = first_hit(hit, hits_end, first);
            hits_end = first_hit(hit, hits_end, first + width);
        }
        if (sizeof(R) < sizeof(double) && row.nonzeros > longest_chain)
            run_pieces(row, values, first, hit, hits_end, bench);
        else if (hit == hits_end)
            run(row, 0, row.nonzeros, values);
        else
            run(row, 0, row.nonzeros, values, first, hit, hits_end, bench);
    }

private:
    static const Hit<R>* first_hit(const Hit<R>* from, const Hit<R>* to, Size place) {
        while (from != to) {
            const Hit<R>* middle = from + (to - from) / 2;
            if (Size(middle->place) < place)
                from = middle + 1;
            else
                to = middle;
        }
        return from;
    }

    // Pieces of a long float32 row, added in float64.
    void run_pieces(const SlotRow<R>& row, const R* values, Size first, const Hit<R>* hit,
                    const Hit<R>* hits_end, Bench& bench) {
        double total[Vectors * V::lanes] = {};
        R part[V::lanes];
        for (Size begin = 0; begin < row.nonzeros; begin += chain_piece) {
            const Size left = row.nonzeros - begin;
            hit = run(row, begin, begin + (left < chain_piece ? left : chain_piece), values, first,
                      hit, hits_end, bench);
            for (int v = 0; v < Vectors; ++v) {
                sum[v].store(part);
                for (int l = 0; l < V::lanes; ++l) total[v * V::lanes + l] += double(part[l]);
            }
        }
        for (int v = 0; v < Vectors; ++v) {
            for (int l = 0; l < V::lanes; ++l) part[l] = R(total[v * V::lanes + l]);
            sum[v] = V::load(part);
        }
    }
};

// One row against the panel of Vectors vectors that begins at centre `first`.
template <class V, int Vectors, bool WithSecond, class Term>
inline LaneBest<V> csr_best(const SlotRow<typename V::Real>& row,
                            const Panels<typename V::Real>& centres, Size first,
                            HitBench<V, Vectors>& bench) {
    using R = typename V::Real;
    CsrChain<V, Vectors, Term> chain;
    chain.run_row(row, centres.values + first * centres.d, first, bench);
    LaneBest<V> best = LaneBest<V>::none();
    V number = V::add(V::splat(R(first)), V::iota());
#pragma GCC unroll 32
    for (int v = 0; v < Vectors; ++v) {
        const V start = V::load(centres.start + first + v * V::lanes);
        best.template take<WithSecond>(V::add(chain.sum[v], start), number);
        number = V::add(number, V::splat(R(V::lanes)));
    }
    return best;
}

// Takes best_of(i), of one panel, into what the former ones gave. Panels come in ascending order.
template <class V, bool WithSecond, class Best>
inline void take_panel(Size n, Size first, const Nearest<typename V::Real>& out, Best best_of) {
    using R = typename V::Real;
    for (Size i = 0; i < n; ++i) {
        const LaneBest<V> best = best_of(i);
        if (first == 0) {
            reduce_lanes<V, WithSecond>(best, i, out);
            continue;
        }
        const R old = out.score[i], old_second = WithSecond ? out.second[i] : R(0);
        const std::int32_t old_label = out.label[i];
        reduce_lanes<V, WithSecond>(best, i, out);
        const R low = out.score[i];
        if (!(low < old)) {
            out.score[i] = old;
            out.label[i] = old_label;
        }
        if constexpr (WithSecond) {
            const R loser = low < old ? old : low,
                    other = old_second < out.second[i] ? old_second : out.second[i];
            out.second[i] = loser < other ? loser : other;
        }
    }
}

// Calls run.operator()<Vectors>(first centre) for one panel, or for each.
template <class V, class Run>
void for_csr_panel(const typename Panels<typename V::Real>::Panel& panel, Run run) {
    constexpr int per_unit = int(unit_width<typename V::Real>) / V::lanes;
    switch (panel.units) {
        case 1:
            run.template operator()<1 * per_unit>(panel.first);
            break;
        case 2:
            run.template operator()<2 * per_unit>(panel.first);
            break;
        case 3:
            run.template operator()<3 * per_unit>(panel.first);
            break;
        case 4:
            run.template operator()<4 * per_unit>(panel.first);
            break;
        case 5:
            run.template operator()<5 * per_unit>(panel.first);
            break;
        case 6:
            run.template operator()<6 * per_unit>(panel.first);
            break;
        case 7:
            run.template operator()<7 * per_unit>(panel.first);
            break;
        case 8:
            run.template operator()<8 * per_unit>(panel.first);
            break;
        case 9:
            run.template operator()<9 * per_unit>(panel.first);
            break;
        case 10:
            run.template operator()<10 * per_unit>(panel.first);
            break;
        case 11:
            run.template operator()<11 * per_unit>(panel.first);
            break;
        case 12:
            run.template operator()<12 * per_unit>(panel.first);
            break;
        case 13:
            run.template operator()<13 * per_unit>(panel.first);
            break;
        default:
            run.template operator()<int(csr_units) * per_unit>(panel.first);
            break;
    }
}
template <class V, class Run>
void for_csr_panels(const Panels<typename V::Real>& centres, Run run) {
    for (Size p = 0; p < centres.count; ++p) for_csr_panel<V>(centres.panel(p), run);
}

template <class V>
void panel_csr(const SlotRow<typename V::Real>* rows, Size n,
               const Panels<typename V::Real>& centres, Size p,
               const Nearest<typename V::Real>& out) {
    for_csr_panel<V>(centres.panel(p), [&]<int Vectors>(Size first) {
        HitBench<V, Vectors> bench;
        for (Size i = 0; i < n; ++i)
            reduce_lanes<V, true>(
                csr_best<V, Vectors, true, Product<V>>(rows[i], centres, first, bench), i, out);
    });
}

template <class V, bool WithSecond, class Term>
void nearest_csr_rows(const SlotRow<typename V::Real>* rows, Size n,
                      const Panels<typename V::Real>& centres,
                      const Nearest<typename V::Real>& out) {
    for_csr_panels<V>(centres, [&]<int Vectors>(Size first) {
        HitBench<V, Vectors> bench;
        take_panel<V, WithSecond>(n, first, out, [&](Size i) {
            return csr_best<V, Vectors, WithSecond, Term>(rows[i], centres, first, bench);
        });
    });
}

template <class V>
void nearest_csr(const SlotRow<typename V::Real>* rows, Size n,
                 const Panels<typename V::Real>& centres, const Nearest<typename V::Real>& out) {
    if (out.second)
        nearest_csr_rows<V, true, Product<V>>(rows, n, centres, out);
    else
        nearest_csr_rows<V, false, Product<V>>(rows, n, centres, out);
}

// One row against a panel of 16-bit centres: the lowest scores that it may have.
template <class V, int Vectors>
inline LaneBest<V> coarse_best(const CoarseRow& row, const CoarsePanels& centres, Size first) {
    constexpr Size width = Size(Vectors) * V::lanes;
    const std::int16_t* values = centres.values + first * centres.lanes.d;
    V sum[Vectors];
#pragma GCC unroll 32
    for (int v = 0; v < Vectors; ++v) sum[v] = V::splat(0);
    for (Size t = 0; t < row.nonzeros; ++t) {
        const Size later = t + csr_ahead < row.nonzeros ? t + csr_ahead : t;
        const std::int16_t *centre = values + Size(row.index[t]) * width,
                           *next = values + Size(row.index[later]) * width;
#pragma GCC unroll 32
        for (Size l = 0; l < width; l += 32) __builtin_prefetch(next + l);
        const V x = V::splat(row.value[t]);
#pragma GCC unroll 32
        for (int v = 0; v < Vectors; ++v)
            sum[v] = V::fma(x, V::load(centre + v * V::lanes), sum[v]);
    }
    const V error = V::splat(row.error);
    LaneBest<V> best = LaneBest<V>::none();
    V number = V::add(V::splat(float(first)), V::iota());
#pragma GCC unroll 32
    for (int v = 0; v < Vectors; ++v) {
        const Size at = first + v * V::lanes;
        const V low = V::fma(V::sub(sum[v], error), V::load(centres.step + at),
                             V::load(centres.lanes.start + at));
        best.template take<true>(low, number);
        number = V::add(number, V::splat(float(V::lanes)));
    }
    return best;
}

template <class V>
void coarse_csr(const CoarseRow* rows, Size n, const CoarsePanels& centres,
                const Nearest<float>& out) {
    for_csr_panels<V>(centres.lanes, [&]<int Vectors>(Size first) {
        take_panel<V, true>(n, first, out, [&](Size i) {
            return coarse_best<V, Vectors>(rows[i], centres, first);
        });
    });
}
template <class V>
constexpr auto coarse_or_null() -> decltype(Kernels<typename V::Real>::coarse_csr) {
    if constexpr (sizeof(typename V::Real) == sizeof(float))
        return &coarse_csr<V>;
    else
        return nullptr;
}

// ---- one centre
// -----------------------------------------------------------------------------------------------

template <class V>
inline float fused(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
template <class V>
inline double fused(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}

// Chains of Rows rows side by side: each waits for itself only. value(r, t) is a row's entry t.
template <class V, int Rows, class Value, class Centre>
inline void centre_scores(Size terms, Value value, Centre centre, typename V::Real start,
                          typename V::Real* out) {
    using R = typename V::Real;
    const bool cut = sizeof(R) < sizeof(double) && terms > longest_chain;
    const Size piece = cut ? chain_piece : (terms > 0 ? terms : 1);
    double total[Rows] = {};
    R acc[Rows] = {};
    for (Size begin = 0; begin < terms; begin += piece) {
        const Size end = begin + piece < terms ? begin + piece : terms;
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) acc[r] = 0;
        for (Size t = begin; t < end; ++t) {
            const R c = centre(t);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) acc[r] = fused<V>(value(r, t), c, acc[r]);
        }
        if (cut)
            for (int r = 0; r < Rows; ++r) total[r] += double(acc[r]);
    }
    for (int r = 0; r < Rows; ++r) out[r] = (cut ? R(total[r]) : acc[r]) + start;
}

template <class V>
void centre_dense(const typename V::Real* const* rows, Size n, const typename V::Real* centre,
                  typename V::Real start, Size d, typename V::Real* out) {
    Size i = 0;
    const auto value = [&](int r, Size f) { return rows[i + r][f]; };
    const auto own = [&](Size f) { return centre[f]; };
    for (; i + 8 <= n; i += 8) centre_scores<V, 8>(d, value, own, start, out + i);
    for (; i < n; ++i) centre_scores<V, 1>(d, value, own, start, out + i);
}

template <class V>
void centre_csr(const SlotRow<typename V::Real>* rows, Size n, const typename V::Real* centre,
                typename V::Real start, typename V::Real* out) {
    for (Size i = 0; i < n; ++i)
        centre_scores<V, 1>(
            rows[i].nonzeros, [&](int, Size t) { return rows[i].value[t]; },
            [&](Size t) { return centre[rows[i].index[t]]; }, start, out + i);
}

// ---- all scores -----------------------------------------------------------------------------

// Writes the scores of one row against a panel, without the lanes that only fill it up.
template <class V, int Vectors>
inline void store_scores(const V* score, Size first, Size k, typename V::Real* row) {
    typename V::Real lanes[Vectors * V::lanes];
    for (int v = 0; v < Vectors; ++v) score[v].store(lanes + v * V::lanes);
    for (Size l = 0; l < Vectors * V::lanes && first + l < k; ++l) row[first + l] = lanes[l];
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

template <class V, class Term>
void scores_csr(const SlotRow<typename V::Real>* rows, Size n,
                const Panels<typename V::Real>& centres, typename V::Real* out) {
    for_csr_panels<V>(centres, [&]<int Vectors>(Size first) {
        HitBench<V, Vectors> bench;
        for (Size i = 0; i < n; ++i) {
            CsrChain<V, Vectors, Term> chain;
            chain.run_row(rows[i], centres.values + first * centres.d, first, bench);
            for (int v = 0; v < Vectors; ++v)
                chain.sum[v] = V::add(chain.sum[v], V::load(centres.start + first + v * V::lanes));
            store_scores<V, Vectors>(chain.sum, first, centres.k, out + i * centres.k);
        }
    });
}

template <class V>
void lowest_two(const typename V::Real* scores, Size n, Size k,
                const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    const Size whole = k / V::lanes * V::lanes;
    for (Size i = 0; i < n; ++i, scores += k) {
        LaneBest<V> best = LaneBest<V>::none();
        V number = V::iota();
        for (Size j = 0; j < whole; j += V::lanes) {
            best.template take<true>(V::load(scores + j), number);
            number = V::add(number, V::splat(R(V::lanes)));
        }
        R rest[V::lanes];
        for (Size l = 0; l < V::lanes; ++l)
            rest[l] = whole + l < k ? scores[whole + l] : std::numeric_limits<R>::infinity();
        best.template take<true>(V::load(rest), number);
        reduce_lanes<V, true>(best, i, out);
    }
}

}  // namespace exactmeans
