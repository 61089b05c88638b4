// The form of `moving` for centres whose codes do not fit the memory or the caches, because there
// are very many features or very many centres.
//
// One table bounds the change of all centres (assign/sparse/delta_bounds.hpp). If the bounds of a
// row cross, the score of its own centre is computed, because the table bounds the largest change
// of any centre and the own centre may have changed less. If the bounds still cross, the row is
// compared with all centres: by the 8-bit filter, a window of centres at a time
// (filter/windowed_filter.hpp), or by canonical or reordered scores. Memory: 8 bytes per row, and
// the centres of the last pass.
//
//   symbol in docs/proofs/delta_bounds.md    here
//   a     label of the row        work.labels[i]
//   H     bound of its score      bounds_[i].high
//   L     bound of all others     bounds_[i].low
//   F, U  fall and rise           DeltaBounds::ScoreChange
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/sparse/delta_bounds.hpp"
#include "exactmeans/assign/sparse/policy.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/totals.hpp"
#include "exactmeans/centres/history.hpp"
#include "exactmeans/centres/score_error.hpp"
#include "exactmeans/filter/aggregated_scores.hpp"
#include "exactmeans/filter/float32_rows.hpp"
#include "exactmeans/filter/windowed_filter.hpp"
#include "exactmeans/scan/float32_scores.hpp"

namespace exactmeans {

// Round outwards to float32: to a value above x, and below x.
inline float bound_above(double x) { return float(x + std::abs(x) * 0x1p-22 + 0x1p-120); }
inline float bound_below(double x) { return -bound_above(-x); }

// The change of the centres and the plan of a pass, shared by all blocks of rows.
template <class R>
class TabulatedCentres {
public:
    TabulatedCentres(const Centres<R>& centroids, const std::shared_ptr<const LayoutSettings>&,
                     bool)
        : history_(centroids.k()), table_(centroids.k()) {}
    Size version() const { return history_.version(); }

    void update(const Centres<R>& centroids, const Threads& threads) {
        if (!history_.begin(centroids)) return;
        const TablePlanned next = plan_table(
            totals_.take(),
            {centroids.k(), centroids.d(), nonzeros(centroids), history_.from() >= 0}, state_);
        plan_ = next.plan;
        state_ = next.state;
        if (plan_.prune == Prune::by_table)
            table_.build(history_, centroids, [](std::size_t) { return true; }, threads);
        if (plan_.remember) history_.remember(centroids, threads);
        history_.finish(centroids);
    }

    const CentreHistory<R>& history() const { return history_; }
    const PassPlan& plan() const { return plan_; }
    const DeltaBounds<R>& table() const { return table_; }
    void record(const PassStats& part) const { totals_.record(part); }

private:
    static Size nonzeros(const Centres<R>& centroids) {
        Size total = centroids.sparse() ? 0 : centroids.k() * centroids.d();
        for (const SparseVector<R>& centre : centroids.sparse_master()) total += centre.size();
        return total;
    }

    CentreHistory<R> history_;
    DeltaBounds<R> table_;
    PassPlan plan_;
    TableState state_;
    mutable Totals<PassStats> totals_;  // of readers, which see everything else as const
};

template <class R>
class MovingByTable {
public:
    explicit MovingByTable(Size n) : bounds_(std::size_t(n)) {}

    // Prunes rows, and packs the centres if any row is left.
    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        centres_ = work.layouts.template state<TabulatedCentres<R>>(work.centroids, threads);
        const CentreHistory<R>& history = centres_->history();
        prunes_ = centres_->plan().prune == Prune::by_table && history.from() == bounded_version_;
        bounded_version_ = history.version();
        error_ = ScoreError(work.centroids);
        if (prunes_) prune(work, threads);
        filtered_ = false;
        if (prunes_ && survivors_.empty()) return;
        filtered_ = filter_.try_to_label(work.x, work.centroids, work.layouts.settings(),
                                         prunes_ ? &survivors_ : nullptr, threads);
        if (!filtered_) float32_scores_.pack(work, threads);
    }

    // Compares the survivors among rows [begin, end), or all of these rows.
    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        const auto first_from = [](const std::vector<Size>& rows, Size i) {
            return Size(std::lower_bound(rows.begin(), rows.end(), i) - rows.begin());
        };
        const Size from = first_from(survivors_, begin),
                   count = prunes_ ? first_from(survivors_, end) - from : end - begin;
        const Size* const ids = prunes_ ? survivors_.data() + from : nullptr;
        AssignStats stats;
        if (count > 0 && !filtered_) scan.nearest_two(work, begin, ids, count);
        // Rows with at least one computed score.
        Size scored = prunes_ ? first_from(rescored_, end) - first_from(rescored_, begin) : count;
        stats.distances = count * work.centroids.k() + (prunes_ ? scored : 0);
        for (Size t = 0; t < count; ++t) {
            const Size i = ids ? ids[t] : begin + t;
            const std::size_t result = std::size_t(ids ? from + t : i);  // of the filter
            const std::int32_t label =
                filtered_ ? filter_.label[result] : scan.label[std::size_t(t)];
            scored += prunes_ && !centres_->history().moved(work.labels[i]);  // not in rescored_
            stats.changed += work.labels[i] != label;
            work.labels[i] = label;
            if (filtered_)
                bounds_[std::size_t(i)] = {bound_above(filter_.high[result]),
                                           bound_below(filter_.low[result])};
            else
                set_bounds(work, i, double(scan.score[std::size_t(t)]),
                           double(scan.second[std::size_t(t)]));
        }
        stats.skipped = end - begin - scored;
        centres_->record(
            {end - begin, work.x.offsets[end] - work.x.offsets[begin], stats.changed, count});
        return stats;
    }

private:
    static constexpr Size rows_per_task = cost::table_rows_per_task;

    // Updates all bounds. Sets rescored_ to the rows whose own score is computed, survivors_ to
    // those whose bounds still cross.
    template <class Rows>
    void prune(const Work<Rows>& work, const Threads& threads) {
        rescored_.clear();
        survivors_.clear();
        buffers_.resize(std::size_t(threads.n_jobs));
        for_rows(threads, work.x.n, [&](Size begin, Size end, int worker, Found& found) {
            Buffers& buffers = buffers_[std::size_t(worker)];
            buffers.rows.load(work.x, begin, end);
            if (!centres_->table().empty())
                centres_->table().sum(buffers.rows.data(), buffers.rows.size(), buffers.sums);
            for (Size i = begin; i < end; ++i)
                if (!update_bounds(work, buffers, i - begin, i))
                    (centres_->history().moved(work.labels[i]) ? found.rescored : found.survivors)
                        .push_back(i);
        });
        std::vector<std::int32_t> own;
        for (const Size i : rescored_) own.push_back(work.labels[i]);
        std::vector<double> score;
        own_scores_.measure(work.x, work.centroids, rescored_, own, score, threads);
        for_rows(threads, Size(rescored_.size()), [&](Size begin, Size end, int, Found& found) {
            for (Size t = begin; t < end; ++t) {
                const Size i = rescored_[std::size_t(t)];
                const double high = score[std::size_t(t)] + error_.of(work.x.row(i));
                Bounds& bounds = bounds_[std::size_t(i)];
                if (high < double(bounds.low))
                    bounds.high = bound_above(high);
                else
                    found.survivors.push_back(i);
            }
        });
        std::sort(survivors_.begin(), survivors_.end());
    }

    // Buffers of one thread.
    struct Buffers {
        Float32Rows<R> rows;
        std::vector<DeltaSums> sums;
    };
    // Updates the bounds of row i, loaded as row t. Returns whether its label is certain.
    template <class Rows>
    bool update_bounds(const Work<Rows>& work, const Buffers& buffers, Size t, Size i) {
        const Size own = work.labels[i];
        typename DeltaBounds<R>::ScoreChange change;
        if (!centres_->table().empty())
            change = centres_->table().change(buffers.sums[std::size_t(t)],
                                              buffers.rows[t].nonzeros, own);
        Bounds& bounds = bounds_[std::size_t(i)];
        const double low = double(bounds.low) - change.fall;
        double high = double(bounds.high);
        if (centres_->history().moved(own)) high += change.rise;
        bounds = {bound_above(high), bound_below(low)};
        return high < low;
    }
    // Sets bounds from the two lowest scores of a row, which may be reordered scores or bounds of
    // scores. If the two are within rounding of each other, either may be the score of the label.
    template <class Rows>
    void set_bounds(const Work<Rows>& work, Size i, double first, double second) {
        const double off = error_.of(work.x.row(i));
        bounds_[std::size_t(i)] = {
            bound_above(first + 2 * off),
            bound_below((second - first > 2 * off ? second : std::min(first, second)) - off)};
    }

    // Rows that a task finds: those whose own score is to be computed, and those to compare with
    // all centres.
    struct Found {
        std::vector<Size> rescored, survivors;
    };
    // Calls body(begin, end, worker, found) for ranges and appends what they find, in order.
    template <class Body>
    void for_rows(const Threads& threads, Size n, Body body) {
        std::vector<Found> found(static_cast<std::size_t>((n + rows_per_task - 1) / rows_per_task));
        threads.ranges(n, rows_per_task, [&](Size begin, Size end, int worker) {
            body(begin, end, worker, found[std::size_t(begin / rows_per_task)]);
        });
        for (const Found& own : found) {
            rescored_.insert(rescored_.end(), own.rescored.begin(), own.rescored.end());
            survivors_.insert(survivors_.end(), own.survivors.begin(), own.survivors.end());
        }
    }

    // Upper bound of the score of the label, lower bound of all other scores.
    struct Bounds {
        float high, low;
    };
    std::vector<Bounds> bounds_;
    Size bounded_version_ = -2;  // version of the centres for which the bounds hold; -2: none
    bool prunes_ = false;
    std::shared_ptr<const TabulatedCentres<R>> centres_;
    std::vector<Size> rescored_, survivors_;
    ScoreError error_;
    AggregatedScores<R> own_scores_;
    std::vector<Buffers> buffers_;
    WindowedFilter<R> filter_;
    bool filtered_ = false;  // are the results of this pass in filter_?
    Float32Scores float32_scores_;
};

}  // namespace exactmeans
