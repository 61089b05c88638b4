// Prunes CSR rows by bounds of scores that follow the change of the centres. There is no paper;
// docs/proofs/delta_bounds.md has the proof.
//
// Per row there are an upper bound of the score of its centre and a lower bound of the scores of
// all others. Centres that did not move leave both bounds valid; for centres that moved, sums over
// the features of the row bound the change of the score (delta bounds). The triangle inequality is
// not used, because it prunes little if rows are far from all centres, as texts are. A row whose
// bounds cross is compared with all centres by the 8-bit filter, which gives new bounds. Memory:
// RowBounds and RowSlacks per row, codes of the centres, the centres of the last pass.
//
//   up to 192 centres   four groups of centres, with a lower bound and a table of changes for each
//   more centres        one lower bound; outliers, the centres that changed most, are compared with
//                       every row, and one table bounds the change of the others
//   no 8-bit filter     one table for all centres (assign/sparse/moving_by_table.hpp)
//
// The plan of a pass (whether it prunes, and by which bounds) is a function of the statistics of
// the last pass (assign/sparse/policy.hpp).
//
//   symbol in docs/proofs/delta_bounds.md    here
//   a     label of the row        work.labels[i]
//   H     bound of its score      RowBounds::high
//   L, L_g  bound of all others   RowBounds::low, per group
//   F, U  fall and rise           DeltaBounds::ScoreChange, GroupDeltas
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/sparse/moving_by_table.hpp"
#include "exactmeans/assign/sparse/moving_centres.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/filter/filter_probe.hpp"
#include "exactmeans/scan/float32_scores.hpp"

namespace exactmeans {

template <class R>
class Moving {
public:
    using Real = R;
    static constexpr Traits traits{"moving", "centres that moved, bounds for the others", false,
                                   true, "euclidean cosine angular"};
    static Size bytes_per_row(Size, Size, bool) {
        return Size(sizeof(RowBounds)) + RowSlacks<R>::bytes_per_row;
    }

    Moving(Size n, Size) : n_(n) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        centres_ = nullptr;
        prunes_ = false;
        const LayoutSettings& settings = work.layouts.settings();
        if (!FilterProbe<R>::fits(work.centroids, settings)) {
            bounds_.clear();
            if (!by_table_) by_table_.emplace(n_);
            return by_table_->start(work, threads);
        }
        by_table_.reset();
        if (probe_.due(work.centroids, settings)) {
            auto centres = work.layouts.template state<MovingCentres<R>>(work.centroids, threads);
            if (probe_.pays(work.x, work.centroids, centres->all())) {
                const CentreHistory<R>& history = centres->history();
                if (bounds_.empty()) {
                    bounds_.resize(std::size_t(n_));
                    bounded_version_ = none;
                }
                if (bounded_version_ == none) any_negative_ = has_negative(work.x);
                prunes_ =
                    centres->plan().prune != Prune::nothing && history.from() == bounded_version_;
                bounded_version_ = history.version();
                centres_ = std::move(centres);
                prunes_ = prunes_ && outliers_pay(work);
                return;
            }
        }
        bounded_version_ = none;
        float32_scores_.pack(work, threads);
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        if (by_table_) return by_table_->assign(work, scan, begin, end);
        if (!centres_) return compare_all(work, scan, begin, end);
        AssignStats stats;
        Size compared = 0;
        const Size batch = centres_->all().rows_per_call(end - begin, prunes_);
        for (Size first = begin; first < end; first += batch)
            compared += assign_batch(work, scan, first, batch, end, stats);
        centres_->record(
            {end - begin, work.x.offsets[end] - work.x.offsets[begin], stats.changed, compared});
        return stats;
    }

    void moved(const Movement&) {}

private:
    static constexpr Size none = -2;  // not a version, nor the -1 of an unknown one

    template <class I>
    static bool has_negative(const CsrRows<R, I>& x) {
        unsigned negative = 0;  // branch-free, so that the loop vectorises
        for (Size e = x.offsets[0]; e < x.offsets[x.n]; ++e) negative |= unsigned(x.data[e] < 0);
        return negative != 0;
    }
    template <class Rows>
    static void set_label(const Work<Rows>& work, Size i, std::int32_t label, AssignStats& stats) {
        stats.changed += work.labels[i] != label;
        work.labels[i] = label;
    }

    // With outliers, every row is compared with the outliers and survivors with all centres. Tests
    // on a few rows whether that takes fewer comparisons than all rows with all centres.
    template <class Rows>
    bool outliers_pay(const Work<Rows>& work) {
        if (centres_->plan().prune != Prune::by_outliers) return true;
        const std::vector<Size> ids = spaced_rows(n_, cost::probed_rows);
        const Size count = Size(ids.size());
        const auto row_of = [&](Size t) { return ids[std::size_t(t)]; };
        probe_filter_.load_some(work.x, count, row_of);
        probe_filter_.quantize(centres_->all());
        probe_filter_.score(centres_->outliers());
        Size survivors = 0;
        sum_deltas(probe_filter_, probe_sums_);
        for (Size t = 0; t < count; ++t) {
            const Bounds bounds = bounds_of(work, probe_filter_, t, row_of(t), probe_sums_);
            survivors += !(bounds.high < bounds.low);
        }
        const double k = double(work.centroids.k());
        return double(centres_->outliers().k()) + k * double(survivors) / double(count) <=
               cost::kept_share * k;
    }

    // A pass without the filter and without bounds.
    template <class Rows>
    AssignStats compare_all(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        AssignStats stats;
        scan.nearest(work, begin, nullptr, end - begin, false);
        for (Size i = begin; i < end; ++i)
            set_label(work, i, scan.label[std::size_t(i - begin)], stats);
        stats.distances = (end - begin) * work.centroids.k();
        return stats;
    }

    // Labels the first `batch` rows of [begin, last). Returns how many were compared with all
    // centres.
    template <class Rows>
    Size assign_batch(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size batch, Size last,
                      AssignStats& stats) {
        const Size end = std::min(last, begin + batch);
        QuantizedFilter<R>& filter = scan.filter;
        std::vector<std::int32_t>& survivors = scan.workspace.survivors;
        survivors.resize(std::size_t(end - begin));
        std::iota(survivors.begin(), survivors.end(), 0);
        const auto row_of = [&](Size t) { return begin + survivors[std::size_t(t)]; };
        filter.load(work.x, begin, end);
        const bool outliers = prunes_ && centres_->plan().prune == Prune::by_outliers;
        if (outliers) {
            filter.quantize(centres_->all());
            filter.score(centres_->outliers());
            stats.distances += (end - begin) * centres_->outliers().k();
        }
        if (prunes_) {
            prune(work, scan, begin, end, survivors);
            filter.keep(survivors);
            if (!outliers) stats.skipped += end - begin - Size(survivors.size());
        } else {
            filter.prefetch_next(work.x, end, std::min(last, end + batch));
        }
        // Without outliers, only survivors are quantised.
        if (!outliers) filter.quantize(centres_->all());
        filter.label_rows(work.x, work.centroids, centres_->all(), row_of);
        const Size count = Size(survivors.size());
        for (Size t = 0; t < count; ++t) {
            set_label(work, row_of(t), filter.label[std::size_t(t)], stats);
            set_bounds(row_of(t), filter.high[std::size_t(t)], filter.low[std::size_t(t)].of);
        }
        stats.distances += count * work.centroids.k();
        return count;
    }

    // Updates the bounds of rows [begin, end) and lists the survivors.
    template <class Rows>
    void prune(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end,
               std::vector<std::int32_t>& survivors) {
        QuantizedFilter<R>& filter = scan.filter;
        if (centres_->plan().prune == Prune::by_groups)
            return centres_->groups().update(filter.rows().data(), end - begin, any_negative_,
                                             work.labels + begin, bounds_.data() + begin,
                                             survivors);
        std::vector<DeltaSums>& sums = scan.workspace.delta_sums;
        sum_deltas(filter, sums);
        survivors.clear();
        for (Size i = begin; i < end; ++i) {
            const Bounds bounds = bounds_of(work, filter, i - begin, i, sums);
            if (bounds.high < bounds.low)
                set_bounds(i, bounds.high, {bounds.low, bounds.low, bounds.low, bounds.low});
            else
                survivors.push_back(std::int32_t(i - begin));
        }
    }
    void sum_deltas(const QuantizedFilter<R>& filter, std::vector<DeltaSums>& sums) const {
        if (!centres_->table().empty())
            centres_->table().sum(filter.rows().data(), filter.rows().size(), sums);
    }
    struct Bounds {
        double high, low;
    };
    // New bounds of row i, loaded as row t, from the change of the bounded centres and the scores
    // of the outliers.
    template <class Rows>
    Bounds bounds_of(const Work<Rows>& work, QuantizedFilter<R>& filter, Size t, Size i,
                     const std::vector<DeltaSums>& sums) const {
        typename DeltaBounds<R>::ScoreChange change;
        if (!centres_->table().empty())
            change = centres_->table().change(sums[std::size_t(t)], filter.rows()[t].nonzeros,
                                              work.labels[i]);
        // The place of the row's centre among the outliers; negative if it is not one of them.
        const std::int32_t place = centres_->outlier_place(work.labels[i]);
        const double stored_high = double(bounds_[std::size_t(i)].high);
        double low = double(bounds_[std::size_t(i)].low[0]) - change.fall, high = stored_high;
        if (place == MovingCentres<R>::bounded) high += change.rise;
        if (centres_->plan().prune == Prune::by_outliers) {
            const QuantizedCentres<R>& outliers = centres_->outliers();
            typename QuantizedFilter<R>::GroupLows others;
            const auto best = filter.best(outliers, t, others);
            const bool is_own = best.place == Size(place);
            double outlier_low = is_own ? others.lowest() : best.low;
            if (place >= 0) high = is_own ? best.high : std::numeric_limits<double>::infinity();
            // Refinement helps only if no bounded centre can be the label instead.
            if (!(high < outlier_low) && (place < 0 ? high : stored_high) < low)
                filter.refine(work.x.row(i), t, outliers, Size(place), high, outlier_low);
            low = std::min(low, outlier_low);
        }
        return {high, low};
    }

    void set_bounds(Size i, double high, const double (&low)[QuantizedPanels::most_groups]) {
        RowBounds& own = bounds_[std::size_t(i)];
        own.high = bound_above(high);
        for (std::size_t g = 0; g < std::size(low); ++g) own.low[g] = bound_below(low[g]);
    }

    Size n_;
    std::shared_ptr<const MovingCentres<R>> centres_;  // null: this pass does not use the filter
    bool prunes_ = false, any_negative_ = true;
    std::vector<RowBounds> bounds_;
    Size bounded_version_ = none;  // version of the centres for which the bounds hold
    FilterProbe<R> probe_;
    QuantizedFilter<R> probe_filter_;  // buffers of outliers_pay
    std::vector<DeltaSums> probe_sums_;
    std::optional<MovingByTable<R>> by_table_;  // while the centres do not fit the 8-bit filter
    Float32Scores float32_scores_;
};

}  // namespace exactmeans
