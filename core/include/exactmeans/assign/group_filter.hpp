// The first bounds by groups, from the 8-bit filter for dense rows (filter/dense_bounds.hpp). Codes
// of the centres are in the order of the groups, each group in whole units, so that the lower
// bounds of a group are contiguous.
#pragma once

#include <vector>

#include "exactmeans/assign/group_bounds.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/groups.hpp"
#include "exactmeans/filter/dense_bounds.hpp"
#include "exactmeans/scan/scan.hpp"

namespace exactmeans {

template <class R, class Grouping>
class GroupFilter {
public:
    // Not for groups of one centre: with a bound per centre, a pass would write as much as all
    // scores.
    static constexpr bool possible = std::is_same_v<Grouping, Groups<R>>;

    // Does the filter cost less than canonical scores of the centres that inter-centre distances do
    // not prune?
    template <class Rows>
    bool start(const Work<Rows>& work, const GroupBounds<R, Grouping>& bounds, bool with_distances,
               const Threads& threads) {
        const std::vector<std::int32_t> order = order_of(bounds.groups());
        if (!pass_.start(work.x, work.x.n, work.centroids, work.codes, &order, threads))
            return false;
        const std::vector<Size> ids = spaced_rows(work.x.n, cost::filter_probe_rows);
        Size near = 0;
        const FilterStats stats = probe(work, bounds, ids, near);
        const double all = double(Size(ids.size()) * bounds.groups().count()),
                     left = with_distances ? std::sqrt(double(near) / all) : 1.0;
        return DenseBoundsPass<R>::share(work.x.d, work.centroids.k(), work.codes->stored(),
                                         stats) < cost::dense_promised_share * left;
    }

    // Calls fn(t, row) for the rows ids[t] that the filter decides, and lists the others in
    // `by.undecided`.
    template <class Rows, class Fn>
    FilterStats run(const Work<Rows>& work, DenseBounds<R>& by, const std::vector<Size>& ids,
                    Fn fn) const {
        return by.run({work.x, work.centroids, *work.codes, pass_.centres()}, ids.data(),
                      Size(ids.size()), fn);
    }
    std::int32_t centre(Size place) const { return pass_.centres().centre(place); }
    // The lower bound of the scores of group g, except the label's.
    R lower(const BoundedRow<R>& row, Size g) const {
        const std::size_t at = std::size_t(g);
        return row.lower(first_[at], first_[at + 1] - first_[at]);
    }

private:
    std::vector<std::int32_t> order_of(const Grouping& groups) {
        constexpr std::size_t unit = std::size_t(CodedCentres::unit);
        std::vector<std::int32_t> order;
        first_.assign(1, 0);
        for (Size g = 0; g < groups.count(); ++g) {
            for (Size place = groups.first(g); place < groups.first(g) + groups.size(g); ++place) {
                const std::int32_t j = groups.centre(place);
                order.push_back(groups.copy(j) ? -1 : j);
            }
            order.resize((order.size() + unit - 1) / unit * unit, -1);
            first_.push_back(Size(order.size()));
        }
        return order;
    }

    // Runs the filter on rows ids[t]. Adds to `near`, for each row that the filter decides, the
    // number of groups that inter-centre distances do not prune.
    template <class Rows>
    FilterStats probe(const Work<Rows>& work, const GroupBounds<R, Grouping>& bounds,
                      const std::vector<Size>& ids, Size& near) const {
        DenseBounds<R> by;
        const ScoredRows<R> scored = work.slacks.scored();
        return run(work, by, ids, [&](Size t, const BoundedRow<R>& row) {
            const Size* const id = ids.data() + t;
            const R score = row.upper();
            float upper, reach;
            score_kernels<R>().upper_bounds(scored, id, &score, 1, &upper);
            bound_kernels().reach(scored.margins, id, &upper, 1, &reach);
            const float* const gap = bounds.centre_distances().of(centre(row.place()));
            for (Size g = 0; g < bounds.groups().count(); ++g)
                near += !(gap[g] > (upper + reach) * up32);
        });
    }

    DenseBoundsPass<R> pass_;
    std::vector<Size> first_;  // first place of each group, and the end of the last one
};

}  // namespace exactmeans
