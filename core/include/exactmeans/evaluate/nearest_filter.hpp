// The 8-bit filter for the m nearest centres of dense rows: bounds of all scores exclude all but a
// few candidates (filter/dense_score_bounds.hpp), and canonical scores decide between these.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/filter/dense_bounds.hpp"
#include "exactmeans/filter/dense_score_bounds.hpp"
#include "exactmeans/kernels/scores.hpp"

namespace exactmeans {

// One thread's buffers.
template <class R>
class NearestCandidates : public DenseScoreBounds<R> {
public:
    using Input = DenseFilterInput<R>;

    // The m nearest centres of row i, row t of the last compute(), nearest first, and their
    // canonical scores unless `scores` is null. Returns false if the filter leaves too many
    // candidates.
    bool nearest(const Input& in, Size i, Size t, Size m, std::int32_t* labels, double* scores) {
        std::vector<Candidate>& list = this->candidates(t, m, most(m));
        if (list.empty()) return false;
        verifier_.load(in, i, this->row(t));
        const bool certain = verifier_.keep_nearest(in, list, m);
        if (!certain || scores) order_by_canonical(in, verifier_.row(), list);
        for (Size p = 0; p < m; ++p) {
            const std::size_t at = std::size_t(p);
            labels[p] = list[at].centre;
            if (scores) scores[p] = double(order_[at].first);
        }
        return true;
    }
    // The most candidates of a row.
    static Size most(Size m) { return m + cost::nearest_candidates; }

private:
    void order_by_canonical(const Input& in, const R* row, std::vector<Candidate>& list) {
        const std::size_t count = list.size();
        row_.assign(count, row);
        centre_.resize(count);
        offset_.resize(count);
        score_.resize(count);
        order_.resize(count);
        for (std::size_t c = 0; c < count; ++c) {
            centre_[c] = in.centres.packed(list[c].centre);
            offset_[c] = in.centres.score_offset()[list[c].centre];
        }
        score_kernels<R>().pairs_dense(row_.data(), centre_.data(), offset_.data(), Size(count),
                                       in.x.d, score_.data());
        for (std::size_t c = 0; c < count; ++c) order_[c] = {score_[c], list[c].centre};
        std::sort(order_.begin(), order_.end());
        for (std::size_t c = 0; c < count; ++c) list[c].centre = order_[c].second;
    }

    DenseVerifier<R> verifier_;
    std::vector<const R*> row_, centre_;
    std::vector<R> offset_, score_;
    std::vector<std::pair<R, std::int32_t>> order_;
};

// Decides whether a call uses the filter, and has the codes of the centres. Codes of the rows are
// not stored.
template <class Rows>
class NearestFilter {
public:
    using R = typename Rows::Real;

    NearestFilter(const Rows& x, const Centres<R>& centroids, Size m, const Threads& threads)
        : x_(x), centroids_(centroids) {
        if constexpr (is_dense<Rows>) {
            const FilterStats least{.rows = 1, .decided = 0, .undecided = 0, .scores = m};
            used_ = integer_products().speed > 1 && x.n >= cost::dense_filter_rows &&
                    m <= DenseScoreBounds<R>::most_nearest && centroids.in_range() &&
                    rows_.possible(x, centroids.frame()) && pays(least);
            if (!used_) return;
            rows_.choose_origin(x, centroids.frame());
            used_ = centres_.update(centroids, rows_, threads) && pays(probe(m));
        }
    }
    bool used() const { return used_; }
    DenseFilterInput<R> input() const { return {x_, centroids_, rows_, centres_}; }
    Size rows_per_call() const { return DenseScoreBounds<R>::rows_per_call(input()); }

private:
    bool pays(const FilterStats& stats) const {
        return DenseBoundsPass<R>::share(x_.d, centroids_.k(), false, stats) <
               cost::dense_promised_share;
    }
    // Counts the candidates of a few rows.
    FilterStats probe(Size m) const {
        DenseScoreBounds<R> bounds;
        const std::vector<Size> ids = spaced_rows(x_.n, rows_per_call());
        const Size some = Size(ids.size());
        bounds.compute(input(), 0, ids.data(), some);
        FilterStats stats;
        stats.rows = some;
        for (Size t = 0; t < some; ++t) {
            const Size found = Size(bounds.candidates(t, m, NearestCandidates<R>::most(m)).size());
            stats.scores += found;
            stats.undecided += found == 0;
        }
        return stats;
    }

    const Rows& x_;
    const Centres<R>& centroids_;
    DenseCodes<R> rows_;
    DenseCentreCodes<R> centres_;
    bool used_ = false;
};

}  // namespace exactmeans
