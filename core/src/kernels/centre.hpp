// Scores of rows and one centre, and of single pairs.
#pragma once

#include "exactmeans/kernels/scores.hpp"

namespace exactmeans {

template <class V>
inline float fused(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
template <class V>
inline double fused(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}

// Computes the chains of Rows rows side by side, because each chain has the latency of its own
// additions. value(r, t) is entry t of row r, centre(r, t) that of its centre.
template <class V, int Rows, class Value, class Centre>
inline void pair_chains(Size terms, Value value, Centre centre, typename V::Real* out) {
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
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) acc[r] = fused<V>(value(r, t), centre(r, t), acc[r]);
        }
        if (cut)
            for (int r = 0; r < Rows; ++r) total[r] += double(acc[r]);
    }
    for (int r = 0; r < Rows; ++r) out[r] = cut ? R(total[r]) : acc[r];
}

// The same with one centre for all rows, and its score offset added.
template <class V, int Rows, class Value, class Centre>
inline void centre_scores(Size terms, Value value, Centre centre, typename V::Real score_offset,
                          typename V::Real* out) {
    pair_chains<V, Rows>(terms, value, [&](int, Size t) { return centre(t); }, out);
    for (int r = 0; r < Rows; ++r) out[r] += score_offset;
}

template <class V>
void centre_dense(const typename V::Real* const* rows, Size n, const typename V::Real* centre,
                  typename V::Real score_offset, Size d, typename V::Real* out) {
    Size i = 0;
    const auto value = [&](int r, Size f) { return rows[i + r][f]; };
    const auto own = [&](Size f) { return centre[f]; };
    for (; i + 8 <= n; i += 8) centre_scores<V, 8>(d, value, own, score_offset, out + i);
    for (; i < n; ++i) centre_scores<V, 1>(d, value, own, score_offset, out + i);
}

template <class V>
void pairs_dense(const typename V::Real* const* rows, const typename V::Real* const* centres,
                 const typename V::Real* score_offset, Size n, Size d, typename V::Real* out) {
    Size i = 0;
    const auto value = [&](int r, Size f) { return rows[i + r][f]; };
    const auto own = [&](int r, Size f) { return centres[i + r][f]; };
    for (; i + 8 <= n; i += 8) pair_chains<V, 8>(d, value, own, out + i);
    for (; i < n; ++i) pair_chains<V, 1>(d, value, own, out + i);
    for (i = 0; i < n; ++i) out[i] += score_offset[i];
}

template <class V>
void centre_csr(const PackedCsrRow<typename V::Real>* rows, Size n, const typename V::Real* centre,
                typename V::Real score_offset, typename V::Real* out) {
    for (Size i = 0; i < n; ++i)
        centre_scores<V, 1>(
            rows[i].nonzeros, [&](int, Size t) { return rows[i].value[t]; },
            [&](Size t) { return centre[rows[i].index[t]]; }, score_offset, out + i);
}

template <class V>
void listed_scores(const typename V::Real* row, const typename V::Real* centres,
                   const typename V::Real* score_offset, Size d, const Candidate* list, Size count,
                   typename V::Real* out) {
    using R = typename V::Real;
    constexpr Size width = 4 * V::lanes;
    for (Size c = 0; c < count; ++c) {
        const Size j = Size(list[c].centre);
        const R* const centre = centres + j * d;
        V sum[4];
#pragma GCC unroll 4
        for (int s = 0; s < 4; ++s) sum[s] = V::splat(0);
        Size f = 0;
        for (; f + width <= d; f += width)
#pragma GCC unroll 4
            for (int s = 0; s < 4; ++s)
                sum[s] = V::fma(V::load(row + f + s * V::lanes), V::load(centre + f + s * V::lanes),
                                sum[s]);
        for (; f + V::lanes <= d; f += V::lanes)
            sum[0] = V::fma(V::load(row + f), V::load(centre + f), sum[0]);
        R rest = 0;
        for (; f < d; ++f) rest = fused<V>(row[f], centre[f], rest);
        const V all = V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3]));
        out[c] = V::total(all) + rest + score_offset[j];
    }
}

}  // namespace exactmeans
