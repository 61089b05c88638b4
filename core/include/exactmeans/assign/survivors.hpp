// The survivors of one range: the rows that the bounds do not prune. The least lower bound of all
// groups prunes most rows; the others are tested group by group.
#pragma once

#include <numeric>

#include "exactmeans/assign/group_bounds.hpp"

namespace exactmeans {

template <class R, class Grouping>
struct Survivors {
    GroupBounds<R, Grouping>& bounds;
    const std::int32_t* labels;
    Margins margins;
    Workspace<R>& workspace;

    std::vector<Size>& id = workspace.id;  // the survivors
    std::vector<float>&bound = workspace.bound, &reach = workspace.reach;
    std::vector<std::int32_t>& groups_in_reach = workspace.survivors;

    // Sets `id` to the survivors of rows [begin, end).
    void find(Size begin, Size end) {
        id.resize(std::size_t(end - begin));
        groups_in_reach.resize(std::size_t(bounds.pitch()));
        if (bounds.fresh()) {
            std::iota(id.begin(), id.end(), begin);
            return;
        }
        id.resize(std::size_t(
            bound_kernels().survivors(bounds.summary(labels, margins), begin, end, id.data())));
        // The bounds of single groups are tighter.
        bound.resize(id.size());
        for (std::size_t t = 0; t < id.size(); ++t) bound[t] = bounds.upper(id[t], labels[id[t]]);
        find_reach(id, bound);
        std::size_t kept = 0;
        for (std::size_t t = 0; t < id.size(); ++t) {
            float least;
            if (within(id[t], labels[id[t]], bound[t], reach[t], least) > 0)
                id[kept++] = id[t];
            else
                bounds.set_least(id[t], labels[id[t]], least);
        }
        id.resize(kept);
    }

    // reach[t]: a centre farther away is certain to lose against one at most near[t] away.
    void find_reach(const std::vector<Size>& ids, const std::vector<float>& near) {
        reach.resize(ids.size());
        bound_kernels().reach(margins, ids.data(), near.data(), Size(ids.size()), reach.data());
    }

    // Finds the groups in which row i, at most `near` away from centre j, may have a centre within
    // `far`. Returns their number; `least` is the least lower bound of all groups.
    Size within(Size i, Size j, float near, float far, float& least) {
        return bound_kernels().within(bounds.lowers(i, j, near), bounds.pitch(), far,
                                      groups_in_reach.data(), least);
    }
};

}  // namespace exactmeans
