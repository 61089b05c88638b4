// The kernels, written once in terms of a vector type V (simd types in the files that include this one). Every
// function here is a template over V, and each V lives in an anonymous namespace, so that no code compiled for
// one instruction set can be linked into another.
//
// Loops over accumulators are fully unrolled by pragma: otherwise the compiler keeps them in memory.
#pragma once

#include <cstdint>
#include <limits>

#include "exactmeans/kernels.hpp"

namespace exactmeans {

// Lowest and second lowest score seen so far in each lane, with the index of the lane-0 centre of the vector
// that the lowest came from.
template <class V>
struct LaneBest {
    V score, base, second;

    static LaneBest none() {
        const V inf = V::splat(std::numeric_limits<typename V::Real>::infinity());
        return {inf, V::splat_bits(0), inf};
    }
    template <bool WithSecond>
    void take(V candidate, V candidate_base) {
        if constexpr (WithSecond) second = V::min(second, V::max(score, candidate));
        const auto lower = V::less(candidate, score);
        score = V::select(lower, candidate, score);
        base = V::select(lower, candidate_base, base);
    }
};

template <class V, bool WithSecond>
inline void reduce_lanes(const LaneBest<V>& best, Size i, const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    R score[V::lanes], second[V::lanes];
    typename V::Bits base[V::lanes];
    best.score.store(score);
    best.base.store_bits(base);
    R low = score[0];
    std::int32_t label = std::int32_t(base[0]);
    for (int l = 1; l < V::lanes; ++l) {
        const std::int32_t j = std::int32_t(base[l]) + l;
        if (score[l] < low || (score[l] == low && j < label)) {
            low = score[l];
            label = j;
        }
    }
    out.label[i] = label;
    out.score[i] = low;
    if constexpr (WithSecond) {
        best.second.store(second);
        const int winner = int(label) & (V::lanes - 1);
        R next = second[winner];
        for (int l = 0; l < V::lanes; ++l) {
            if (l != winner && score[l] < next) next = score[l];
            if (second[l] < next) next = second[l];
        }
        out.second[i] = next;
    }
}

// ---- dense ----------------------------------------------------------------------------------------------

// Scores of Rows rows against one panel: a fused multiply-add chain per pair, and the start added last.
template <class V, int Rows>
struct DenseTileScores {
    using R = typename V::Real;
    static constexpr int vectors = int(panel_width<R>) / V::lanes;
    V score[Rows][vectors];

    void run(const R* const* rows, const R* panel, const R* start, Size d) {
        if (sizeof(R) < sizeof(double) && d > longest_chain)
            run_pieces(rows, panel, d);
        else
            run_chain(rows, panel, 0, d);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) score[r][v] = V::add(score[r][v], V::load(start + v * V::lanes));
    }

    void run_chain(const R* const* rows, const R* panel, Size begin, Size end) {
        V acc[Rows][vectors];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) acc[r][v] = V::splat(R(0));
        for (Size f = begin; f < end; ++f) {
            V centre[vectors];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) centre[v] = V::load(panel + f * panel_width<R> + v * V::lanes);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const V x = V::splat(rows[r][f]);
#pragma GCC unroll 8
                for (int v = 0; v < vectors; ++v) acc[r][v] = V::fma(x, centre[v], acc[r][v]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) score[r][v] = acc[r][v];
    }

    void run_pieces(const R* const* rows, const R* panel, Size d) {
        constexpr int width = int(panel_width<R>);
        double total[Rows][width] = {};
        R part[width];
        for (Size begin = 0; begin < d; begin += chain_piece) {
            const Size end = begin + chain_piece < d ? begin + chain_piece : d;
            run_chain(rows, panel, begin, end);
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

template <class V, int Rows, bool WithSecond>
inline void dense_tile(const typename V::Real* const* rows, const Panels<typename V::Real>& centres, Size p,
                       LaneBest<V>* best) {
    using R = typename V::Real;
    DenseTileScores<V, Rows> tile;
    const Size first = p * panel_width<R>;
    tile.run(rows, centres.values + first * centres.d, centres.start + first, centres.d);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        LaneBest<V> lanes = best[r];
#pragma GCC unroll 8
        for (int v = 0; v < DenseTileScores<V, Rows>::vectors; ++v)
            lanes.template take<WithSecond>(tile.score[r][v], V::splat_bits(std::int32_t(first + v * V::lanes)));
        best[r] = lanes;
    }
}

template <class V, bool WithSecond>
void nearest_dense_rows(const typename V::Real* const* rows, Size n, const Panels<typename V::Real>& centres,
                        const Nearest<typename V::Real>& out) {
    // A panel is read once for this many rows; their state stays in the first-level cache.
    constexpr Size block = 48;
    LaneBest<V> best[block];
    for (Size begin = 0; begin < n; begin += block) {
        const Size count = n - begin < block ? n - begin : block;
        const typename V::Real* const* some = rows + begin;
        for (Size i = 0; i < count; ++i) best[i] = LaneBest<V>::none();
        for (Size p = 0; p < centres.count(); ++p) {
            Size i = 0;
            for (; i + 6 <= count; i += 6) dense_tile<V, 6, WithSecond>(some + i, centres, p, best + i);
            switch (count - i) {
                case 5: dense_tile<V, 5, WithSecond>(some + i, centres, p, best + i); break;
                case 4: dense_tile<V, 4, WithSecond>(some + i, centres, p, best + i); break;
                case 3: dense_tile<V, 3, WithSecond>(some + i, centres, p, best + i); break;
                case 2: dense_tile<V, 2, WithSecond>(some + i, centres, p, best + i); break;
                case 1: dense_tile<V, 1, WithSecond>(some + i, centres, p, best + i); break;
                default: break;
            }
        }
        for (Size i = 0; i < count; ++i) reduce_lanes<V, WithSecond>(best[i], begin + i, out);
    }
}

template <class V>
void nearest_dense(const typename V::Real* const* rows, Size n, const Panels<typename V::Real>& centres,
                   const Nearest<typename V::Real>& out) {
    if (out.second)
        nearest_dense_rows<V, true>(rows, n, centres, out);
    else
        nearest_dense_rows<V, false>(rows, n, centres, out);
}

// ---- CSR ------------------------------------------------------------------------------------------------

// One row against Vectors vectors of centres that begin at centre `first`.
template <class V, class I, int Vectors, bool WithSecond>
inline void csr_group(const SparseRow<typename V::Real, I>& row, const FeatureMajor<typename V::Real>& centres,
                      Size first, LaneBest<V>& best) {
    using R = typename V::Real;
    const Size width = centres.width();
    const R* values = centres.values + first;
    V acc[Vectors];
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) acc[v] = V::splat(R(0));
    const auto chain = [&](Size begin, Size end) {
        for (Size t = begin; t < end; ++t) {
            const V x = V::splat(row.value[t]);
            const R* centre = values + Size(row.index[t]) * width;
#pragma GCC unroll 16
            for (int v = 0; v < Vectors; ++v) acc[v] = V::fma(x, V::load(centre + v * V::lanes), acc[v]);
        }
    };
    if (sizeof(R) < sizeof(double) && row.nonzeros > longest_chain) {
        double total[Vectors * V::lanes] = {};
        R part[V::lanes];
        for (Size begin = 0; begin < row.nonzeros; begin += chain_piece) {
            chain(begin, begin + chain_piece < row.nonzeros ? begin + chain_piece : row.nonzeros);
            for (int v = 0; v < Vectors; ++v) {
                acc[v].store(part);
                for (int l = 0; l < V::lanes; ++l) total[v * V::lanes + l] += double(part[l]);
                acc[v] = V::splat(R(0));
            }
        }
        for (int v = 0; v < Vectors; ++v) {
            for (int l = 0; l < V::lanes; ++l) part[l] = R(total[v * V::lanes + l]);
            acc[v] = V::load(part);
        }
    } else {
        chain(0, row.nonzeros);
    }
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v)
        best.template take<WithSecond>(V::add(acc[v], V::load(centres.start + first + v * V::lanes)),
                                       V::splat_bits(std::int32_t(first + v * V::lanes)));
}

template <class V, class I, bool WithSecond>
void nearest_csr_rows(const SparseRow<typename V::Real, I>* rows, Size n,
                      const FeatureMajor<typename V::Real>& centres, const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    constexpr Size block = 64;
    constexpr int per_panel = int(panel_width<R>) / V::lanes;
    constexpr Size most = V::csr_panels;
    const Size panels = centres.width() / panel_width<R>;
    const Size groups = (panels + most - 1) / most;
    LaneBest<V> best[block];
    for (Size begin = 0; begin < n; begin += block) {
        const Size count = n - begin < block ? n - begin : block;
        for (Size i = 0; i < count; ++i) best[i] = LaneBest<V>::none();
        for (Size g = 0; g < groups; ++g) {
            const Size from = g * panels / groups, to = (g + 1) * panels / groups;
            const Size first = from * panel_width<R>;
            const auto run = [&]<int Panels>() {
                for (Size i = 0; i < count; ++i)
                    csr_group<V, I, Panels * per_panel, WithSecond>(rows[begin + i], centres, first, best[i]);
            };
            switch (to - from) {
                case 1: run.template operator()<1>(); break;
                case 2: run.template operator()<2>(); break;
                case 3: run.template operator()<3>(); break;
                case 4: run.template operator()<4>(); break;
                case 5: run.template operator()<5>(); break;
                case 6: run.template operator()<6>(); break;
                default: run.template operator()<7>(); break;
            }
        }
        for (Size i = 0; i < count; ++i) reduce_lanes<V, WithSecond>(best[i], begin + i, out);
    }
}

template <class V, class I>
void nearest_csr(const SparseRow<typename V::Real, I>* rows, Size n,
                 const FeatureMajor<typename V::Real>& centres, const Nearest<typename V::Real>& out) {
    if (out.second)
        nearest_csr_rows<V, I, true>(rows, n, centres, out);
    else
        nearest_csr_rows<V, I, false>(rows, n, centres, out);
}

template <class V>
constexpr Kernels<typename V::Real> table(const char* isa) {
    return {isa, &nearest_dense<V>, &nearest_csr<V, std::int32_t>, &nearest_csr<V, std::int64_t>};
}

}  // namespace exactmeans
