// Scores of CSR rows against panels of centres: one vector of sums per vector of centres, in
// registers. Only the sums (`csr_scores`) are compiled once per number of units. All other steps
// loop over stored scores: they take little time beside the sums, and the code compiles faster.
//
// Pragmas unroll all loops over accumulators; otherwise the compiler keeps accumulators in memory.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "lanes.hpp"

namespace exactmeans {

// Nonzeros between the prefetch of a packed column and its use; columns are scattered over L2 and
// L3. An estimate.
inline constexpr Size csr_prefetch_entries = 4;

// Lays out the posting hits of a row like packed columns, up to `rows` columns at a time.
template <class V>
struct HitBuffer {
    using R = typename V::Real;
    static constexpr int rows = 32, entries = 256;  // columns of hits, and all columns, per add()
    explicit HitBuffer(Size width) {
        for (Size l = 0; l < rows * width; ++l) lanes[l] = 0;
    }
    R lanes[rows * csr_units * unit_width<R>];  // in use: rows * width, all zeros between uses
    const R* from[entries];
    R x[entries];
};

// One row against Units units of centres. Only chains of products have hits: posting lists leave
// out centres without the feature, whose products are 0 but whose L1 terms are not.
template <class V, int Units, class Term>
struct CsrChain {
    using R = typename V::Real;
    using Own = PanelVectors<V, Units>;
    using Buffer = HitBuffer<V>;
    static constexpr bool with_hits = std::is_same_v<Term, Product<V>>;
    static constexpr int vectors = Own::vectors;
    static constexpr Size width = Own::width;
    V sum[vectors];

    // Adds the terms of x(t) and the column at(t), to zero if First.
    template <bool First, class X, class At>
    void add(Size begin, Size end, Size last, X x, At at) {
        // A local array, because sums accessed through `this` would be stored at every step.
        V acc[vectors];
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) acc[v] = First ? V::splat(0) : sum[v];
        for (Size t = begin; t < end; ++t) {
            const R* next = at(t + csr_prefetch_entries < last ? t + csr_prefetch_entries : t);
#pragma GCC unroll 32
            for (Size l = 0; l < width; l += Size(64 / sizeof(R))) __builtin_prefetch(next + l);
            const V value = V::splat(x(t));
            const R* centre = at(t);
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v)
                acc[v] = Term::add(value, Own::load(centre + v * V::lanes, v), acc[v]);
        }
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) sum[v] = acc[v];
    }

    // Entries [begin, end), without hits.
    void run(const PackedCsrRow<R>& row, Size begin, Size end, const R* values) {
        add<true>(
            begin, end, row.nonzeros, [&](Size t) { return row.value[t]; },
            [&](Size t) { return values + Size(row.index[t]) * width; });
    }

    // Entries [begin, end) and their hits, for the panel that begins at place `first`. Returns the
    // first hit of a later entry.
    const PostingHit<R>* run(const PackedCsrRow<R>& row, Size begin, Size end, const R* values,
                             Size first, const PostingHit<R>* hit, const PostingHit<R>* hits_end,
                             Buffer& buffer) {
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) sum[v] = V::splat(0);
        const auto due = [&](Size t) {
            return hit != hits_end && Size(hit->at) == t && (t < end || end == row.nonzeros);
        };
        for (Size t = begin; t < end || due(t);) {
            const PostingHit<R>* const begun = hit;
            int n = 0, rows = 0;
            while (n < buffer.entries && rows < buffer.rows && (t < end || due(t))) {
                if (due(t)) {
                    R* to = buffer.lanes + rows++ * width;
                    buffer.from[n] = to;
                    buffer.x[n++] = hit->x;
                    // Hits of several features with equal x share a column if their places ascend,
                    // so that they do not overlap.
                    do {
                        to[Size(hit->place) - first] = hit->value;
                        ++hit;
                    } while (due(t) && hit->place > hit[-1].place && hit->x == hit[-1].x);
                } else {
                    buffer.from[n] = values + Size(row.index[t]) * width;
                    buffer.x[n++] = row.value[t++];
                }
            }
            add<false>(
                0, n, n, [&](Size e) { return buffer.x[e]; },
                [&](Size e) { return buffer.from[e]; });
            rows = -1;
            for (const PostingHit<R>* done = begun; done != hit; ++done) {
                if (done == begun || done->at != done[-1].at || done->place <= done[-1].place ||
                    done->x != done[-1].x)
                    ++rows;
                buffer.lanes[rows * width + (Size(done->place) - first)] = 0;
            }
        }
        return hit;
    }

    void run_row(const PackedCsrRow<R>& row, const R* values, Size first, Buffer& buffer) {
        const PostingHit<R>*hit = row.hits, *hits_end = row.hits_end;
        if (with_hits && hit != hits_end) {
            hit = first_hit(hit, hits_end, first);
            hits_end = first_hit(hit, hits_end, first + width);
        }
        if (sizeof(R) < sizeof(double) && row.nonzeros > longest_chain)
            run_pieces(row, values, first, hit, hits_end, buffer);
        else if (!with_hits || hit == hits_end)
            run(row, 0, row.nonzeros, values);
        else
            run(row, 0, row.nonzeros, values, first, hit, hits_end, buffer);
    }

private:
    static const PostingHit<R>* first_hit(const PostingHit<R>* from, const PostingHit<R>* to,
                                          Size place) {
        while (from != to) {
            const PostingHit<R>* middle = from + (to - from) / 2;
            if (Size(middle->place) < place)
                from = middle + 1;
            else
                to = middle;
        }
        return from;
    }

    // Pieces of a long float32 row, summed in float64.
    void run_pieces(const PackedCsrRow<R>& row, const R* values, Size first,
                    const PostingHit<R>* hit, const PostingHit<R>* hits_end, Buffer& buffer) {
        double total[vectors * V::lanes] = {};
        R part[V::lanes];
        for (Size begin = 0; begin < row.nonzeros; begin += chain_piece) {
            const Size left = row.nonzeros - begin;
            hit = run(row, begin, begin + (left < chain_piece ? left : chain_piece), values, first,
                      hit, hits_end, buffer);
            for (int v = 0; v < vectors; ++v) {
                sum[v].store(part);
                for (int l = 0; l < V::lanes; ++l) total[v * V::lanes + l] += double(part[l]);
            }
        }
        for (int v = 0; v < vectors; ++v) {
            for (int l = 0; l < V::lanes; ++l) part[l] = R(total[v * V::lanes + l]);
            sum[v] = V::load(part);
        }
    }
};

// The most scores that csr_scores writes: panels, rounded up to whole vectors.
template <class V>
inline constexpr Size csr_score_lanes = csr_units * unit_width<typename V::Real> + V::lanes;

// Scores of one row and the panel of Units units that begins at centre `first`. Lanes after the
// panel, up to a whole vector, are infinite.
template <class V, int Units, class Term>
void csr_scores(const PackedCsrRow<typename V::Real>& row, const Panels<typename V::Real>& centres,
                Size first, HitBuffer<V>& buffer, typename V::Real* scores) {
    CsrChain<V, Units, Term> chain;
    chain.run_row(row, centres.values + first * centres.d, first, buffer);
#pragma GCC unroll 32
    for (int v = 0; v < chain.vectors; ++v) {
        const V score_offset = PanelVectors<V, Units>::load_score_offset(
            centres.score_offset + first + v * V::lanes, v);
        V::add(chain.sum[v], score_offset).store(scores + v * V::lanes);
    }
}

// csr_scores of one panel, with the number of units chosen at run time.
template <class V, class Term>
class CsrPanel {
public:
    using R = typename V::Real;

    CsrPanel(const Panels<R>& centres, Size p)
        : centres_(centres), panel_(centres.panel(p)), buffer_(panel_.width()) {
        [&]<int... Less>(std::integer_sequence<int, Less...>) {
            constexpr Run of_units[] = {&csr_scores<V, Less + 1, Term>...};
            run_ = of_units[panel_.units - 1];
        }(std::make_integer_sequence<int, int(csr_units)>());
    }

    Size first() const { return panel_.first; }
    Size width() const { return panel_.width(); }
    const R* scores(const PackedCsrRow<R>& row) {
        run_(row, centres_, panel_.first, buffer_, scores_);
        return scores_;
    }
    template <bool WithSecond>
    LaneBest<V> best(const PackedCsrRow<R>& row) {
        scores(row);
        LaneBest<V> best = LaneBest<V>::none();
        V number = V::add(V::splat(R(first())), V::iota());
        for (Size l = 0; l < width(); l += V::lanes) {
            best.template take<WithSecond>(V::load(scores_ + l), number);
            number = V::add(number, V::splat(R(V::lanes)));
        }
        return best;
    }

private:
    using Run = void (*)(const PackedCsrRow<R>&, const Panels<R>&, Size, HitBuffer<V>&, R*);

    const Panels<R>& centres_;
    typename Panels<R>::Panel panel_;
    Run run_;
    HitBuffer<V> buffer_;
    alignas(64) R scores_[csr_score_lanes<V>];
};

// Merges best_of(i) of one panel with the results of earlier panels; panels come in ascending
// order. `lows`, unless null, gets the lowest score of this panel.
template <class V, bool WithSecond, class Best>
inline void take_panel(Size n, Size first, const Nearest<typename V::Real>& out, Best best_of,
                       typename V::Real* lows = nullptr) {
    using R = typename V::Real;
    constexpr Size block = 16;
    LaneBest<V> best[block];
    std::int32_t label[block];
    R score[block], second[block];
    const Nearest<R> own{label, score, second};
    for (Size begin = 0; begin < n; begin += block) {
        const Size count = n - begin < block ? n - begin : block;
        for (Size r = 0; r < count; ++r) best[r] = best_of(begin + r);
        if (first == 0) {
            reduce_rows<V, WithSecond>(best, begin, count, out);
            for (Size i = begin; lows && i < begin + count; ++i) lows[i] = out.score[i];
            continue;
        }
        reduce_rows<V, WithSecond>(best, 0, count, own);
        for (Size r = 0; lows && r < count; ++r) lows[begin + r] = score[r];
        for (Size r = 0; r < count; ++r) {
            const Size i = begin + r;
            const R old = out.score[i], low = score[r];
            if (low < old) {
                out.score[i] = low;
                out.label[i] = label[r];
            }
            if constexpr (WithSecond) {
                const R loser = low < old ? old : low,
                        other = out.second[i] < second[r] ? out.second[i] : second[r];
                out.second[i] = loser < other ? loser : other;
            }
        }
    }
}

template <class V>
void panel_csr(const PackedCsrRow<typename V::Real>* rows, Size n,
               const Panels<typename V::Real>& centres, Size p,
               const Nearest<typename V::Real>& out) {
    CsrPanel<V, Product<V>> panel(centres, p);
    for (Size i = 0; i < n; ++i) reduce_lanes<V, true>(panel.template best<true>(rows[i]), i, out);
}

template <class V, bool WithSecond, class Term>
void nearest_csr_rows(const PackedCsrRow<typename V::Real>* rows, Size n,
                      const Panels<typename V::Real>& centres,
                      const Nearest<typename V::Real>& out) {
    for (Size p = 0; p < centres.count; ++p) {
        CsrPanel<V, Term> panel(centres, p);
        take_panel<V, WithSecond>(n, panel.first(), out,
                                  [&](Size i) { return panel.template best<WithSecond>(rows[i]); });
    }
}

template <class V>
void nearest_csr(const PackedCsrRow<typename V::Real>* rows, Size n,
                 const Panels<typename V::Real>& centres, const Nearest<typename V::Real>& out) {
    if (out.second)
        nearest_csr_rows<V, true, Product<V>>(rows, n, centres, out);
    else
        nearest_csr_rows<V, false, Product<V>>(rows, n, centres, out);
}

template <class V, class Term>
void scores_csr(const PackedCsrRow<typename V::Real>* rows, Size n,
                const Panels<typename V::Real>& centres, typename V::Real* out) {
    for (Size p = 0; p < centres.count; ++p) {
        CsrPanel<V, Term> panel(centres, p);
        const Size first = panel.first(), left = centres.k - first;
        const Size width = panel.width() < left ? panel.width() : left;
        for (Size i = 0; i < n; ++i) {
            const typename V::Real* scores = panel.scores(rows[i]);
            for (Size j = 0; j < width; ++j) out[i * centres.k + first + j] = scores[j];
        }
    }
}

}  // namespace exactmeans
