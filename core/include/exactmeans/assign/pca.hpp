// Yinyang k-means (assign/yinyang.hpp) with projections, for rows of many features. There is no
// paper; docs/proofs/projections.md has the proof.
//
// Projections onto a few principal axes (project/projections.hpp) bound the distances between a row
// and the centres of a group at a small part of the cost of computing them. A row is compared only
// with the groups that neither these bounds nor those of yinyang.hpp prune. Bounds by projections
// are stored like all others, and computed again when they have become too loose. A row without a
// label is compared first with the group whose projection is nearest. Comparisons of projections do
// not count as distances. Memory: that of yinyang.hpp and of the projections.
//
//   symbol in docs/proofs/projections.md    here
//   o, Q                axes_ of Projections: its origin, and one axis per row of Q
//   Qz and r of a row   rows_ of Projections; r is the last coordinate
//   σ                   Axes::error()
//   A                   norm_ of Projections
//   bound of δ          far[t] of Projections::compare()
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
