// The rows of one range that bounds do not settle: one comparison for most rows, then one per
// group.
#pragma once

#include <numeric>

#include "exactmeans/assign/group_bounds.hpp"

namespace exactmeans {

template <class R, class Grouping>
struct Survivors {
    GroupBounds<R, Grouping>& bounds;
    const std::int32_t* labels;
    Margins margins;
    Workspace<R>& room;

    std::vector<Size>& id = room.id;
    std::vector<float>&bound = room.bound, &reach = room.reach;
    std::vector<std::int32_t>& open = room.open;

    void find(Size begin, Size end) {
        id.resize(std::size_t(end - begin));
        open.resize(std::size_t(bounds.pitch()));
        if (bounds.fresh()) {
            std::iota(id.begin(), id.end(), begin);
            return;
        }
        id.resize(std::size_t(
            bound_kernels().unsettled(bounds.summary(labels, margins), begin, end, id.data())));
        // The bounds of groups say more than the least of them.
        bound.resize(id.size());
        for (std::size_t t = 0; t < id.size(); ++t) bound[t] = bounds.upper(id[t], labels[id[t]]);
        find_reach(id, bound);
        std::size_t left = 0;
        for (std::size_t t = 0; t < id.size(); ++t) {
            float least;
            if (within(id[t], labels[id[t]], bound[t], reach[t], least) > 0)
                id[left++] = id[t];
            else
                bounds.set_least(id[t], labels[id[t]], least);
        }
        id.resize(left);
    }

    void find_reach(const std::vector<Size>& ids, const std::vector<float>& near) {
        reach.resize(ids.size());
        bound_kernels().reach(margins, ids.data(), near.data(), Size(ids.size()), reach.data());
    }

    // Groups, in `open`, that row i may find a centre in, at most `near` away from centre j.
    Size within(Size i, Size j, float near, float far, float& least) {
        return bound_kernels().within(bounds.lowers(i, j, near), bounds.pitch(), far, open.data(),
                                      least);
    }
};

}  // namespace exactmeans
