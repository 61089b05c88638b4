// Compares rows with all centres through the kernels. Every algorithm uses it for the rows that it
// cannot prune.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/filter/dense_bounds.hpp"
#include "exactmeans/filter/dense_filter.hpp"
#include "exactmeans/filter/quantized_filter.hpp"
#include "exactmeans/filter/verify_candidates.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/scan/row_slacks.hpp"
#include "exactmeans/scan/work.hpp"

namespace exactmeans {

// One thread's comparisons of rows with centres, and their results: label[t], score[t] and
// second[t] belong to row ids[t], or to row begin + t if there are no ids.
template <class Rows>
class Scan {
public:
    using R = typename Rows::Real;

    // The nearest centre of each row; with_second: the second lowest score too.
    void nearest(const Work<Rows>& work, Size begin, const Size* ids, Size count,
                 bool with_second) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        second.resize(std::size_t(with_second ? count : 0));
        const Nearest<R> out{label.data(), score.data(), with_second ? second.data() : nullptr};
        if constexpr (!is_dense<Rows>) {
            if (!with_second && work.float32_panels.postings) {
                nearest_by_float32(work, begin, ids, count);
                return;
            }
            if (!with_second && work.reordered())
                return from_scores(work, begin, ids, count, [](Size, Size, const R*) {});
        }
        nearest_by(work, begin, ids, count, out);
    }

    // The nearest centres of rows [begin, begin + count) by canonical scores alone.
    void nearest_canonical(const Work<Rows>& work, Size begin, Size count) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        nearest_by(work, begin, nullptr, count, {label.data(), score.data(), nullptr});
    }

    // The nearest centres of rows [begin, begin + count). Calls on_scores(t, m, scores) with all
    // scores of the m rows from begin + t on; the scores may be reordered ones.
    template <class OnScores>
    void nearest_with_scores(const Work<Rows>& work, Size begin, Size count, OnScores on_scores) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        from_scores(work, begin, nullptr, count, on_scores);
    }

    // The nearest centre and the second score of rows ids[t]. If the centres have posting lists,
    // the scores may be reordered ones.
    void nearest_two(const Work<Rows>& work, Size begin, const Size* ids, Size count) {
        const bool reordered = work.float32_panels.postings || work.reordered();
        nearest(work, begin, ids, count, !reordered);
    }

    // Labels of rows by scores in float32. score[t] is an upper bound of the label's exact score,
    // second[t] a lower bound of all others; neither includes the rounding of canonical scores.
    // Returns how many rows needed canonical scores.
    Size nearest_by_float32(const Work<Rows>& work, Size begin, const Size* ids, Size count) {
        const Size k = work.centroids.k(), batch = batch_of(work.x, k * Size(sizeof(float)));
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        second.resize(std::size_t(count));
        set_ids(begin, ids, count);
        float32_scores_.resize(std::size_t(batch * k));
        float32_nearest_.resize(std::size_t(2 * batch));
        error_.resize(std::size_t(batch));
        Size uncertain = 0;
        for (Size t = 0; t < count; t += batch) {
            const Size some = std::min(batch, count - t);
            const Size* const own = id_.data() + t;
            const PackedCsrRow<float>* const rows =
                float32_rows_.load_frequent(work.x, work.float32_panels, own, some);
            score_kernels<float>().scores_csr(rows, some, work.float32_panels,
                                              float32_scores_.data());
            float32_rows_.add_rare(work.float32_panels, float32_scores_.data());
            score_kernels<float>().lowest_two(
                float32_scores_.data(), some, k,
                {label.data() + t, float32_nearest_.data(), float32_nearest_.data() + batch});
            for (Size r = 0; r < some; ++r) {
                const double error = work.score_error.of_float32(work.x.row(own[r]));
                error_[std::size_t(r)] = error;
                score[std::size_t(t + r)] = R(double(float32_nearest_[std::size_t(r)]) + error);
                second[std::size_t(t + r)] =
                    R(double(float32_nearest_[std::size_t(batch + r)]) - error);
            }
            bound(work, t, some);
            for (Size r = 0; r < some; ++r) {
                // The error is infinite if the row's values leave the range of float32.
                if (std::isfinite(error_[std::size_t(r)]) &&
                    far_[std::size_t(r)] > near_[std::size_t(r)])
                    continue;
                ++uncertain;
                verify(work, t + r, float32_scores_.data() + r * k, error_[std::size_t(r)]);
            }
        }
        return uncertain;
    }

    // Loads rows for in_panel and with_centre, which refer to row ids[t] as t.
    void load(const Work<Rows>& work, const Panels<R>& panels, Size begin, const Size* ids,
              Size count) {
        if constexpr (is_dense<Rows>)
            tile_.load(work.x, work.centroids.frame().shift_or_null(), begin, ids, count);
        else
            rows_ = packed_rows_.load(work.x, panels, begin, ids, count);
    }
    // Compares the loaded rows picks[t] with one panel, with second scores. Labels are positions in
    // the layout.
    void in_panel(const Panels<R>& panels, Size p, const std::int32_t* picks, Size count) {
        const Nearest<R> out = pick(picks, count);
        if constexpr (is_dense<Rows>)
            score_kernels<R>().panel_dense(picked_.data(), count, panels, p, out);
        else
            score_kernels<R>().panel_csr(picked_.data(), count, panels, p, out);
    }

    // Compares the loaded rows picks[t] with one centre. Sets no labels; second scores are
    // infinite.
    void with_centre(const R* centre, R score_offset, Size d, const std::int32_t* picks,
                     Size count) {
        const Nearest<R> out = pick(picks, count);
        if constexpr (is_dense<Rows>)
            score_kernels<R>().centre_dense(picked_.data(), count, centre, score_offset, d,
                                            out.score);
        else
            score_kernels<R>().centre_csr(picked_.data(), count, centre, score_offset, out.score);
        std::fill(second.begin(), second.end(), std::numeric_limits<R>::infinity());
    }

    std::vector<std::int32_t> label;
    std::vector<R> score;
    std::vector<R> second;
    QuantizedFilter<R> filter;
    DenseFilter<R> dense_filter;
    DenseBounds<R> dense_bounds;
    Workspace<R> workspace;

private:
    // Canonical scores, with second scores if out.second is not null.
    void nearest_by(const Work<Rows>& work, Size begin, const Size* ids, Size count,
                    const Nearest<R>& out) {
        const R* const shift = work.centroids.frame().shift_or_null();
        const bool l1 = work.centroids.frame().metric == Metric::manhattan,
                   thin = work.x.d <= short_row_features<R>;
        // Rows with posting hits and shifted rows are copied: a batch of copies should stay in
        // cache.
        Size batch = work.panels.postings ? batch_rows(work.x) : std::max<Size>(1, count);
        if constexpr (is_dense<Rows>)
            if (shift && !thin) batch = shifted_rows(work.x.d, batch);
        const ScoreKernels<R>& by = score_kernels<R>();
        for (Size t = 0; t < count; t += batch) {
            const Size some = std::min(batch, count - t);
            const Nearest<R> to{out.label + t, out.score + t,
                                out.second ? out.second + t : nullptr};
            const Size* own = ids ? ids + t : nullptr;
            if constexpr (is_dense<Rows>) {
                tile_.load(work.x, thin ? nullptr : shift, begin + t, own, some);
                (l1 ? by.nearest_dense_l1 : by.nearest_dense)(
                    tile_.rows(), some, thin ? shift : nullptr, work.panels, to);
            } else {
                load(work, work.panels, begin + t, own, some);
                (l1 ? by.nearest_csr_l1 : by.nearest_csr)(rows_, some, work.panels, to);
            }
        }
    }

    // Labels from all scores of a row. If the centres have posting lists, the scores are summed in
    // another order, which is faster. Where that order could change the label, the row is compared
    // again by canonical scores (docs/proofs/reordered_scores.md).
    template <class OnScores>
    void from_scores(const Work<Rows>& work, Size begin, const Size* ids, Size count,
                     OnScores on_scores) {
        const Size k = work.centroids.k(), batch = batch_of(work.x, k * Size(sizeof(R)));
        second.resize(std::size_t(count));
        scores_.resize(std::size_t(batch * k));
        set_ids(begin, ids, count);
        for (Size t = 0; t < count; t += batch) {
            const Size some = std::min(batch, count - t);
            const Size* const own = id_.data() + t;
            rows_ = work.reordered() ? packed_rows_.load_frequent(work.x, work.panels, own, some)
                                     : packed_rows_.load(work.x, work.panels, 0, own, some);
            score_kernels<R>().scores_csr(rows_, some, work.panels, scores_.data());
            if (work.reordered()) packed_rows_.add_rare(work.panels, scores_.data());
            score_kernels<R>().lowest_two(scores_.data(), some, k,
                                          {label.data() + t, score.data() + t, second.data() + t});
            on_scores(t, some, static_cast<const R*>(scores_.data()));
            if (work.reordered()) find_uncertain(work, t, some);
        }
        label_uncertain(work);
    }

    void set_ids(Size begin, const Size* ids, Size count) {
        id_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) id_[std::size_t(t)] = ids ? ids[t] : begin + t;
    }
    // Rows to score at a time, with so many bytes of scores per row: the scores stay in L2.
    static Size batch_of(const Rows& x, Size bytes) {
        return std::clamp<Size>(cost::score_bytes / bytes, 1, batch_rows(x));
    }

    // For `count` rows from t on: far_ is a lower bound of the distance to every centre but the
    // label. A centre farther than near_ is certain to lose against the label.
    void bound(const Work<Rows>& work, Size t, Size count) {
        const ScoredRows<R> scored = work.slacks.scored();
        const Size* const ids = id_.data() + t;
        near_.resize(std::size_t(count));
        far_.resize(std::size_t(count));
        score_kernels<R>().lower_bounds(scored, ids, second.data() + t, count, far_.data());
        score_kernels<R>().upper_bounds(scored, ids, score.data() + t, count, near_.data());
        bound_kernels().reach(scored.margins, ids, near_.data(), count, near_.data());
    }

    // The label of the row at t, by canonical scores of its candidates: the centres that these
    // scores, which are off by at most `error`, do not rule out against score[t].
    void verify(const Work<Rows>& work, Size t, const float* scores, double error) {
        const Size i = id_[std::size_t(t)], k = work.centroids.k();
        const RowSlack slack = work.slack(i);
        const double near = slack.upper(double(score[std::size_t(t)]));
        candidates_.clear();
        for (Size j = 0; j < k; ++j)
            if (!slack.holds() || !slack.apart(slack.lower(double(scores[j]) - error), near))
                candidates_.push_back(std::int32_t(j));
        label[std::size_t(t)] =
            verify_candidates<R>(score_of_, work.centroids, work.x.row(i), candidates_).label;
    }

    // Adds those of `count` rows from t on whose reordered scores leave the label uncertain to
    // uncertain_. Two bounds may certify a label: slack, and for float32 the score error, which is
    // smaller where centres are much shorter than rows.
    void find_uncertain(const Work<Rows>& work, Size t, Size count) {
        bound(work, t, count);
        constexpr bool single = sizeof(R) == sizeof(float);
        for (Size r = 0; r < count; ++r) {
            const std::size_t at = std::size_t(t + r);
            const auto row = work.x.row(id_[at]);
            // Slack assumes that long float32 chains are cut into pieces. Reordered scores are not.
            if (!(single && row.nonzeros > longest_chain) &&
                far_[std::size_t(r)] > near_[std::size_t(r)])
                continue;
            if constexpr (single) {
                const double error = work.score_error.of(row);
                if (double(second[at]) - error > double(score[at]) + error) continue;
            }
            uncertain_.push_back(t + r);
        }
    }
    // Labels of the rows in uncertain_, by canonical scores of all centres. Canonical scores of the
    // candidates alone would search each feature of a row among up to d nonzeros of a centre, which
    // costs more than a pass over these rows.
    void label_uncertain(const Work<Rows>& work) {
        const std::vector<Size> at = std::move(uncertain_);
        uncertain_.clear();
        if (at.empty()) return;
        std::vector<Size> ids;
        for (const Size t : at) ids.push_back(id_[std::size_t(t)]);
        std::vector<std::int32_t> labels(at.size());
        std::vector<R> scores(at.size());
        nearest_by(work, 0, ids.data(), Size(ids.size()), {labels.data(), scores.data(), nullptr});
        for (std::size_t u = 0; u < at.size(); ++u) label[std::size_t(at[u])] = labels[u];
    }

    // Gathers the loaded rows picks[t] and sizes the results.
    Nearest<R> pick(const std::int32_t* picks, Size count) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        second.resize(std::size_t(count));
        picked_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) {
            if constexpr (is_dense<Rows>)
                picked_[std::size_t(t)] = tile_.rows()[picks[t]];
            else
                picked_[std::size_t(t)] = rows_[picks[t]];
        }
        return {label.data(), score.data(), second.data()};
    }

    // As many whole register tiles as fit in cost::shifted_bytes, or all rows if not even
    // one fits.
    static Size shifted_rows(Size d, Size all) {
        const Size fit = cost::shifted_bytes / (dense_tile_rows * d * Size(sizeof(R)));
        return fit ? fit * dense_tile_rows : all;
    }
    // CSR rows: about cost::csr_batch_entries stored entries.
    static Size batch_rows(const Rows& x) {
        if constexpr (is_dense<Rows>)
            return x.n;
        else
            return std::max<Size>(cost::csr_batch_rows,
                                  cost::csr_batch_entries / (x.nonzeros() / x.n + 1));
    }

    std::vector<R> scores_;
    std::vector<float> float32_scores_, float32_nearest_;
    std::vector<double> error_;
    PackedCsrRows<float> float32_rows_;
    CanonicalScore<R> score_of_;
    std::vector<std::int32_t> candidates_;
    std::vector<Size> id_, uncertain_;
    std::vector<float> near_, far_;
    DenseTile<R> tile_;
    PackedCsrRows<R> packed_rows_;
    const PackedCsrRow<R>* rows_ = nullptr;
    std::vector<std::conditional_t<is_dense<Rows>, const R*, PackedCsrRow<R>>> picked_;
};

// Rows per parallel task. Dense: whole register tiles, and two at least if every task reads the
// centres from L3 and there are enough rows. CSR: each task loads a panel of
// centres into cache once, so tasks are as long as load balance and Ctrl-C allow.
template <class Rows>
Size chunk_rows(const Rows& x, Size k, int n_jobs) {
    if constexpr (is_dense<Rows>) {
        const Size terms = std::max<Size>(1, x.d * k), rows = cost::dense_task_terms / terms;
        const bool two = terms <= cost::two_tiles_terms &&
                         x.n >= 2 * dense_tile_rows * cost::short_tasks_per_thread * n_jobs;
        return std::clamp<Size>(rows / dense_tile_rows * dense_tile_rows,
                                (two ? 2 : 1) * dense_tile_rows, cost::dense_task_rows);
    } else {
        const Size work = (x.n ? x.nonzeros() / x.n + 1 : 1) * k;
        const Size most = std::clamp<Size>(cost::csr_task_terms / std::max<Size>(1, work), 64,
                                           cost::csr_task_rows);
        return std::clamp<Size>(x.n / (cost::tasks_per_thread * n_jobs),
                                std::min<Size>(most, cost::csr_task_least_rows), most);
    }
}

}  // namespace exactmeans
