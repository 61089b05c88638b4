// Shared parts of the kernels with lanes across centres, written once for a vector type V (defined
// per instruction set): the best score of each lane, the reduction over lanes, and the terms of a
// score.
#pragma once

#include <cstdint>
#include <limits>

#include "exactmeans/kernels/panels.hpp"

namespace exactmeans {

// Vectors that cover Units neighbouring units of centres. If a vector is two units wide, an odd
// number of units ends in half a vector; a full load would read past the end.
template <class V, int Units>
struct PanelVectors {
    using R = typename V::Real;
    static constexpr int width = Units * int(unit_width<R>);
    static constexpr int vectors = (width + V::lanes - 1) / V::lanes;

    // Vector v, which begins at `from`; missing lanes are 0.
    static V load(const R* from, int v) {
        if constexpr (width % V::lanes != 0)
            if (v == vectors - 1) return V::load_half(from);
        return V::load(from);
    }
    // Missing lanes are infinite, so they are never the lowest.
    static V load_score_offset(const R* from, int v) {
        if constexpr (width % V::lanes != 0)
            if (v == vectors - 1) return V::load_half(from, std::numeric_limits<R>::infinity());
        return V::load(from);
    }
};

// The lowest and second lowest score so far in each lane, and the centre of the lowest. Centre
// numbers are stored as reals, which are exact up to 2^24.
template <class V>
struct LaneBest {
    V score, centre, second;

    static LaneBest none() {
        const V inf = V::splat(std::numeric_limits<typename V::Real>::infinity());
        return {inf, V::splat(0), inf};
    }
    template <bool WithSecond>
    void take(V candidate, V number) {
        // max returns `score` if the candidate is NaN. Otherwise `second` would become NaN and then
        // the next candidate, which may be higher than the second lowest score so far.
        if constexpr (WithSecond) second = V::min(second, V::max(candidate, score));
        const auto lower = V::less(candidate, score);
        score = V::min(candidate, score);
        centre = V::select(lower, number, centre);
    }
};

// The best score over all lanes, the lowest centre on ties.
template <class V, bool WithSecond>
inline void reduce_lanes(const LaneBest<V>& best, Size i, const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    const V inf = V::splat(std::numeric_limits<R>::infinity());
    const R low = V::lowest(best.score);
    const R label = V::lowest(V::select(V::equal(best.score, V::splat(low)), best.centre, inf));
    out.label[i] = std::int32_t(label);
    out.score[i] = low;
    if constexpr (WithSecond) {
        // Empty lanes hold centre 0, so several lanes may have the number of the winner; all but
        // one of them have score infinity.
        const auto winner = V::equal(best.centre, V::splat(label));
        out.second[i] = V::lowest(V::min(best.second, V::select(winner, inf, best.score)));
    }
}

// The same for rows [begin, begin + n), V::lanes rows at a time.
template <class V, bool WithSecond>
inline void reduce_rows(const LaneBest<V>* best, Size begin, Size n,
                        const Nearest<typename V::Real>& out) {
    using R = typename V::Real;
    const V inf = V::splat(std::numeric_limits<R>::infinity());
    Size i = 0;
    for (; i + V::lanes <= n; i += V::lanes) {
        const LaneBest<V>* own = best + i;
        const Size at = begin + i;
        R label[V::lanes];
        V left[V::lanes];
#pragma GCC unroll 16
        for (int r = 0; r < V::lanes; ++r) left[r] = own[r].score;
        V::lowest_of(left).store(out.score + at);
#pragma GCC unroll 16
        for (int r = 0; r < V::lanes; ++r)
            left[r] =
                V::select(V::equal(own[r].score, V::splat(out.score[at + r])), own[r].centre, inf);
        V::lowest_of(left).store(label);
        for (int r = 0; r < V::lanes; ++r) out.label[at + r] = std::int32_t(label[r]);
        if constexpr (WithSecond) {
#pragma GCC unroll 16
            for (int r = 0; r < V::lanes; ++r) {
                const auto winner = V::equal(own[r].centre, V::splat(label[r]));
                left[r] = V::min(own[r].second, V::select(winner, inf, own[r].score));
            }
            V::lowest_of(left).store(out.second + at);
        }
    }
    for (; i < n; ++i) reduce_lanes<V, WithSecond>(best[i], begin + i, out);
}

// The term that a feature adds to the chain of a score. Packed centres are negated.
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
struct AbsoluteDifference {
    static V add(V x, V minus_c, V sum) { return V::add(sum, magnitude(V::add(x, minus_c))); }
};
// |x - c| - |c|: the score offset of CSR rows contains |c| of all features.
template <class V>
struct StoredAbsoluteDifference {
    static V add(V x, V minus_c, V sum) {
        return V::add(sum, V::sub(magnitude(V::add(x, minus_c)), magnitude(minus_c)));
    }
};

// Writes the scores of one row against a panel, without padding lanes.
template <class V, int Units>
inline void store_scores(const V* score, Size first, Size k, typename V::Real* row) {
    using Own = PanelVectors<V, Units>;
    if (Own::width == Own::vectors * V::lanes && first + Own::width <= k) {
        for (int v = 0; v < Own::vectors; ++v) score[v].store(row + first + v * V::lanes);
        return;
    }
    typename V::Real lanes[Own::vectors * V::lanes];
    for (int v = 0; v < Own::vectors; ++v) score[v].store(lanes + v * V::lanes);
    for (Size l = 0; l < Own::width && first + l < k; ++l) row[first + l] = lanes[l];
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
