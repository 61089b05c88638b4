// The state that `moving` derives from the centres, shared by all blocks of rows: their codes,
// their change since the last pass, and the plan of this pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "exactmeans/assign/sparse/delta_bounds.hpp"
#include "exactmeans/assign/sparse/grouped_delta_bounds.hpp"
#include "exactmeans/assign/sparse/policy.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/totals.hpp"
#include "exactmeans/centres/history.hpp"
#include "exactmeans/filter/quantized_centres.hpp"

namespace exactmeans {

template <class R>
class MovingCentres {
public:
    MovingCentres(const Centres<R>& centroids,
                  const std::shared_ptr<const LayoutSettings>& settings, bool)
        : scratch_limit_(settings->scratch_limit),
          history_(centroids.k()),
          all_(centroids, settings, false),
          groups_(centroids.k()),
          table_(centroids.k()),
          outlier_place_(std::size_t(centroids.k())) {}
    Size version() const { return history_.version(); }

    // Plans a pass with these centres and prepares what it needs.
    void update(const Centres<R>& centroids, const Threads& threads) {
        if (!history_.begin(centroids)) return;
        const PassStats last = totals_.take();
        const std::vector<Size>& moved = history_.moved();
        const CentreStats stats{centroids.k(), Size(moved.size()), history_.from() >= 0,
                                most_outliers(centroids)};
        const Planned next =
            in_groups() ? plan_groups(last, stats, state_) : plan_outliers(last, stats, state_);
        plan_ = next.plan;
        state_ = next.state;
        // A pass that prunes nothing sets all bounds anew, so centres may change group.
        if (in_groups() && plan_.prune == Prune::nothing &&
            cost::moved_for_groups * stats.moved > stats.k)
            all_.arrange(longest_first(centroids));
        all_.update(centroids, moved, history_.previous(), threads);
        if (plan_.prune == Prune::by_groups)
            groups_.build(
                history_, centroids, [&](Size j) { return all_.group(all_.place(j)); }, threads);
        else if (plan_.prune != Prune::nothing)
            separate_outliers(centroids, threads);
        history_.remember(centroids, threads);
        history_.finish(centroids);
    }

    const CentreHistory<R>& history() const { return history_; }
    const PassPlan& plan() const { return plan_; }
    // Adds to the statistics of this pass.
    void record(const PassStats& part) const { totals_.record(part); }

    const QuantizedCentres<R>& all() const { return all_; }
    // Do rows have a bound per group of centres?
    bool in_groups() const { return all_.panels().groups() > 1; }
    const GroupedDeltaBounds<R>& groups() const { return groups_; }

    // by_outliers and by_table: the outliers, and the table of all other moved centres.
    const QuantizedCentres<R>& outliers() const { return outliers_; }
    const DeltaBounds<R>& table() const { return table_; }
    // The place of a centre among the outliers; negative if it is bounded or did not move.
    static constexpr std::int32_t bounded = -1, unmoved = -2;
    std::int32_t outlier_place(Size j) const { return outlier_place_[std::size_t(j)]; }

private:
    // The most outliers whose codes fit in scratch_limit_ beside the codes of all centres; -1 if
    // these do not fit.
    Size most_outliers(const Centres<R>& centroids) const {
        const double d = double(std::max<Size>(1, centroids.d())),
                     spare = scratch_limit_ / d -
                             double(QuantizedCentres<R>::bytes_per_feature(centroids.k()));
        return QuantizedCentres<R>::most_within(spare, centroids.k());
    }

    void separate_outliers(const Centres<R>& centroids, const Threads& threads) {
        const std::vector<Size>& moved = history_.moved();
        std::fill(outlier_place_.begin(), outlier_place_.end(), unmoved);
        for (const Size j : moved) outlier_place_[std::size_t(j)] = bounded;
        const std::vector<Size> order = most_changed_first(centroids, threads);
        std::vector<Size> outliers;
        for (std::size_t o = 0; o < order.size() && Size(o) < plan_.outliers; ++o)
            outliers.push_back(moved[std::size_t(order[o])]);
        outliers_.quantize_some(centroids, outliers, all_, threads);
        for (const Size j : outliers)
            outlier_place_[std::size_t(j)] = std::int32_t(outliers_.place(j));
        table_.build(
            history_, centroids, [&](std::size_t m) { return outlier_place(moved[m]) == bounded; },
            threads);
    }
    // Positions in history_.moved(), in descending order of the largest change of a score that the
    // centre can cause for a row as long as the longest centre.
    std::vector<Size> most_changed_first(const Centres<R>& centroids,
                                         const Threads& threads) const {
        const std::vector<Size>& moved = history_.moved();
        double norm2 = 0;
        for (Size j = 0; j < centroids.k(); ++j) norm2 = std::max(norm2, centroids.norm2(j));
        const double length = std::sqrt(norm2) / centroids.frame().scale();
        const auto norms = history_.change_norms(centroids, threads);
        std::vector<double> change(moved.size());
        for (std::size_t m = 0; m < moved.size(); ++m) {
            const double offset_rise = history_.score_offset_rise(centroids, moved[m]);
            change[m] = std::max(length * std::sqrt(norms[m].fall2) - offset_rise,
                                 length * std::sqrt(norms[m].rise2) + offset_rise);
        }
        std::vector<Size> order(moved.size());
        std::iota(order.begin(), order.end(), Size(0));
        std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) {
            return change[std::size_t(a)] > change[std::size_t(b)];
        });
        return order;
    }

    double scratch_limit_;  // bytes that all codes may take
    CentreHistory<R> history_;
    QuantizedCentres<R> all_, outliers_;
    GroupedDeltaBounds<R> groups_;
    DeltaBounds<R> table_;
    PassPlan plan_;
    PlanState state_;
    mutable Totals<PassStats> totals_;         // of readers, which see everything else as const
    std::vector<std::int32_t> outlier_place_;  // per centre
};

}  // namespace exactmeans
