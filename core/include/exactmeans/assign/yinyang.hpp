// Yinyang k-means (Y. Ding, Y. Zhao, X. Shen, M. Musuvathi, T. Mytkowicz, Yinyang K-means: A
// drop-in replacement of the classic K-means with consistent speedup, ICML 2015).
//
// Centres stand in fixed groups of neighbours, each one panel of the kernels (centres/groups.hpp),
// and a row keeps a lower bound per group (by_group.hpp). A group that is in reach is computed
// whole, for all rows that need it at once. Memory: four bytes per row and group, and eight per
// row.
//
//   paper        here
//   b(x)         labels[i]
//   ub(x)        upper_[i], plus own_ of the label
//   lb(x, G)     lower_[i * pitch_ + g], minus drift_ of g
//   min lb       least_[i], minus others_ of the label: one comparison before the groups'
//   δ(c)         movement.distance[j]
//   local filter none: a panel costs less than choosing among its centres
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
