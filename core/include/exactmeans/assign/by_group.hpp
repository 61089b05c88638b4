// The common part of Yinyang, Elkan and pca. Per row there are an upper bound of the distance to
// its own centre, and a lower bound per group of the distance to the other centres of the group
// (group_bounds.hpp). A row is pruned if its lower bounds exceed the upper one (survivors.hpp); a
// survivor is compared with the groups in reach (group_range.hpp). If `Projected`, projections are
// compared first (project/projections.hpp).
//
// All tests include the rounding slack, so a pruned row keeps the label that its computed scores
// would give.
#pragma once

#include <atomic>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/group_range.hpp"
#include "exactmeans/base/cost_model.hpp"

namespace exactmeans {

template <class R, class Grouping, bool Projected = false>
class ByGroup {
public:
    using Real = R;

    ByGroup(Size n, Size k) : k_(k), bounds_(n, k) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.measure_rows(threads);
        unit_ = work.slacks.unit();
        dense_ = is_dense<Rows>;
        // Inter-centre distances take k^2 products. How many they save is estimated from the
        // distances that the last pass computed (base/cost_model.hpp).
        const Size saved = compared_.exchange(0) * (Projected ? 1 : cost::saved_by_distances);
        const bool pay = centre_distances_pay(work.x, k_) &&
                         (Grouping::distances_always_pay || bounds_.empty() || saved >= k_ * k_);
        // Before the first pass without inter-centre distances, the bounds that follow from them
        // are stored.
        const bool last = distances_pay_ && !pay && !bounds_.empty();
        bounds_.update(work.shared, unit_, dense_, pay || last, threads);
        if (last) bounds_.store_centre_distances(work.labels, threads);
        distances_pay_ = pay;
        if constexpr (Projected) {
            if (!projections_)
                projections_ = std::make_unique<Projections<R>>(work, unit_, threads);
            projections_->update(bounds_.groups(), work.centroids, threads);
        }
        filters_ = false;
        if constexpr (GroupFilter<R, Grouping>::possible && is_dense<Rows> && !Projected)
            filters_ = bounds_.fresh() && filter_.start(work, bounds_, distances_pay_, threads);
    }

    // Reads bounds only, not the rows.
    bool labels_certain(SharedCentres<R>& shared, const RowSlacks<R>& slacks,
                        const std::int32_t* labels, const Threads& threads) {
        if (bounds_.empty()) return false;
        bounds_.update(shared, unit_, dense_, distances_pay_, threads);
        Workspace<R> workspace;
        Survivors<R, Grouping> survivors{bounds_, labels, slacks.margins(), workspace};
        for (Size begin = 0; begin < bounds_.rows(); begin += cost::bounds_per_batch) {
            survivors.find(begin, std::min(bounds_.rows(), begin + cost::bounds_per_batch));
            if (!survivors.id.empty()) return false;
        }
        return true;
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        GroupRange<Rows, Grouping, Projected> range{
            {bounds_, work.labels, work.slacks.margins(), scan.workspace},
            work,
            scan,
            projections_.get(),
            filters_ ? &filter_ : nullptr};
        const AssignStats stats = range.run(begin, end);
        compared_.fetch_add(stats.distances, std::memory_order_relaxed);
        return stats;
    }

    void moved(const Movement& movement) { bounds_.moved(movement, unit_); }

    static Size bytes_for(Size groups) {
        return GroupBounds<R, Grouping>::bytes_per_row(groups) + RowSlacks<R>::bytes_per_row;
    }

    // Few rows of a range survive, and they should fill whole register tiles. So a range has as
    // many rows as fit in L3.
    template <class Rows>
    Size range_rows(const Rows& x, Size, int n_jobs) const {
        Size bytes = x.d * Size(sizeof(R));
        if constexpr (!is_dense<Rows>)
            bytes = x.n ? x.nonzeros() / x.n * Size(sizeof(R) + 4) + 16 : 16;
        const Size most = std::clamp<Size>(cost::pruned_range_bytes / bytes,
                                           cost::pruned_range_least_rows, cost::pruned_range_rows);
        return std::clamp<Size>(x.n / (cost::tasks_per_thread * n_jobs),
                                cost::pruned_range_least_rows, most);
    }

private:
    Size k_;
    GroupBounds<R, Grouping> bounds_;
    std::unique_ptr<Projections<R>> projections_;
    GroupFilter<R, Grouping> filter_;
    bool filters_ = false;            // the 8-bit filter gives the first bounds
    std::atomic<Size> compared_ = 0;  // distances of the current pass
    double unit_ = 1;
    bool dense_ = true, distances_pay_ = false;
};

}  // namespace exactmeans
