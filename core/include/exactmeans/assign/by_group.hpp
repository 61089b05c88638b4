// What Yinyang's and Elkan's algorithms share: a row keeps an upper bound of the distance to its
// own centre, and a lower bound per group of the distance to that group's other centres
// (group_bounds.hpp). A row whose bounds stay apart is settled (assign/survivors.hpp); any other is
// compared with some of the groups (group_range.hpp). If `Sifted`, shadows are compared before rows
// are (project/projections.hpp).
//
// All comparisons carry the rounding slack, so that a pruned row keeps the label that the computed
// scores would give it.
#pragma once

#include <atomic>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/group_range.hpp"

namespace exactmeans {

template <class R, class Grouping, bool Projected = false>
class ByGroup {
public:
    using Real = R;

    ByGroup(Size n, Size k) : k_(k), bounds_(n, k) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.look_at_rows(threads);
        unit_ = work.slacks.unit();
        dense_ = is_dense<Rows>;
        // They take k^2 products, and save several times what a pass takes with them; little where
        // shadows do the same.
        const Size before = compared_.exchange(0) * (Projected ? 1 : 4);
        const bool pay =
            gaps_pay(work.x, k_) && (Grouping::always_gaps || bounds_.empty() || before >= k_ * k_);
        // The last ones leave behind what they know.
        const bool last = gaps_pay_ && !pay && !bounds_.empty();
        bounds_.look_at_centres(work.centroids, unit_, dense_, pay || last, threads);
        if (last) bounds_.keep_gaps(work.labels, threads);
        gaps_pay_ = pay;
        if constexpr (Projected) {
            if (!shadows_) shadows_ = std::make_unique<Projections<R>>(work, unit_, threads);
            shadows_->update(bounds_.shared_groups(), work.centroids, threads);
        }
    }

    // Is every label certain to stay? Needs no rows, but that they were labelled before.
    bool settled(const Centres<R>& centroids, const RowSlacks<R>& slacks,
                 const std::int32_t* labels, const Threads& threads) {
        if (bounds_.empty()) return false;
        bounds_.look_at_centres(centroids, unit_, dense_, gaps_pay_, threads);
        Workspace<R> room;
        Survivors<R, Grouping> rows{bounds_, labels, slacks.margins(), room};
        for (Size begin = 0; begin < bounds_.rows(); begin += 4096) {
            rows.find(begin, std::min(bounds_.rows(), begin + 4096));
            if (!rows.id.empty()) return false;
        }
        return true;
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        GroupRange<Rows, Grouping, Projected> range{
            {bounds_, work.labels, work.slacks.margins(), scan.room}, work, scan, shadows_.get()};
        const AssignStats tally = range.run(begin, end);
        compared_.fetch_add(tally.distances, std::memory_order_relaxed);
        return tally;
    }

    void moved(const Movement& movement) { bounds_.moved(movement, unit_); }

    static Size bytes_for(Size groups) {
        return GroupBounds<R, Grouping>::bytes_per_row(groups) + RowSlacks<R>::bytes_per_row;
    }

    // Bounds leave few rows of a range over, and these should fill tiles: long ranges, as far as
    // their rows stay in the third-level cache.
    template <class Rows>
    Size range_rows(const Rows& x, Size, int n_jobs) const {
        Size bytes = x.d * Size(sizeof(R));
        if constexpr (!is_dense<Rows>)
            bytes = x.n ? x.nonzeros() / x.n * Size(sizeof(R) + 4) + 16 : 16;
        const Size most = std::clamp<Size>((Size(4) << 20) / bytes, 256, 8192);
        return std::clamp<Size>(x.n / (4 * n_jobs), 256, most);
    }

private:
    Size k_;
    GroupBounds<R, Grouping> bounds_;
    std::unique_ptr<Projections<R>> shadows_;
    std::atomic<Size> compared_ = 0;  // distances of the pass that runs
    double unit_ = 1;
    bool dense_ = true, gaps_pay_ = false;
};

}  // namespace exactmeans
