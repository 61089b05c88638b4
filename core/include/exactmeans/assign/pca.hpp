// Yinyang k-means with a sieve for rows of many features. Before a row is compared with a group,
// its shadow on a few principal axes is (project/projections.hpp), at a small part of the cost;
// what is left over is compared as in yinyang.hpp.
//
// A bound that shadows give is kept like any other. Where it does not last, it is found anew at the
// same small cost. Rows without a label begin with the group whose shadow comes nearest.
// Memory: that of yinyang.hpp and of the shadows. What is compared with shadows does not count as a
// distance.
#pragma once

#include "exactmeans/assign/by_group.hpp"
#include "exactmeans/centres/groups.hpp"

namespace exactmeans {

template <class R>
class Pca : public ByGroup<R, Groups<R>, true> {
public:
    using ByGroup<R, Groups<R>, true>::ByGroup;
    static constexpr Traits traits{
        "pca", "groups of centres, sifted by a few principal coordinates", true, false};
    static Size bytes_per_row(Size k, Size d, bool dense) {
        return Pca::bytes_for(group_count<R>(k, dense)) + Projections<R>::bytes_per_row(d);
    }
};

}  // namespace exactmeans
