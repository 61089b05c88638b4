// Yinyang k-means (Y. Ding, Y. Zhao, X. Shen, M. Musuvathi, T. Mytkowicz, Yinyang K-means: A
// drop-in replacement of the classic K-means with consistent speedup, ICML 2015).
//
// Centres are divided into fixed groups of neighbours, each one panel of the kernels
// (centres/groups.hpp). Per row there is a lower bound for each group (by_group.hpp). A group is
// compared as a whole, at once with all rows that have it in reach. Memory: four bytes per row and
// group, and eight per row.
//
//   paper        here; names with _ are members of GroupBounds
//   b(x)         labels[i]
//   ub(x)        upper_[i], plus own_drift_ of the label
//   lb(x, G)     lower_[i * pitch_ + g], minus group_drift_ of g
//   min lb       least_[i], minus others_drift_ of the label: the global filter
//   δ(c)         movement.distance[j]
//   local filter none: scoring a panel costs less than filtering its centres
#pragma once

#include "exactmeans/assign/by_group.hpp"
#include "exactmeans/centres/groups.hpp"

namespace exactmeans {

template <class R>
class Yinyang : public ByGroup<R, Groups<R>> {
public:
    using ByGroup<R, Groups<R>>::ByGroup;
    static constexpr Traits traits{"yinyang", "one lower bound per row and group of centres", true,
                                   true, "euclidean cosine angular"};
    static Size bytes_per_row(Size k, Size, bool dense) {
        return Yinyang::bytes_for(group_count<R>(k, dense));
    }
};

}  // namespace exactmeans
