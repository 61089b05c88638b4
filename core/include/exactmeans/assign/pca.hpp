// Yinyang k-means (assign/yinyang.hpp) with projections, for rows of many features. There is no
// paper; docs/proofs/projections.md has the proof.
//
// Before a row is compared with a group, its projection onto a few principal axes is
// (project/projections.hpp), at a small part of the cost. Groups that this does not prune are
// compared as in yinyang.hpp. Bounds by projections are stored like all others, and computed again
// when they have become too loose. Rows without a label are compared first with the group whose
// projection is nearest. Comparisons of projections do not count as distances. Memory: that of
// yinyang.hpp and of the projections.
#pragma once

#include "exactmeans/assign/by_group.hpp"
#include "exactmeans/centres/groups.hpp"

namespace exactmeans {

template <class R>
class Pca : public ByGroup<R, Groups<R>, true> {
public:
    using ByGroup<R, Groups<R>, true>::ByGroup;
    static constexpr Traits traits{
        "pca", "groups of centres, pruned by a few principal coordinates", true, false};
    static Size bytes_per_row(Size k, Size d, bool dense) {
        return Pca::bytes_for(group_count<R>(k, dense)) + Projections<R>::bytes_per_row(d);
    }
};

}  // namespace exactmeans
