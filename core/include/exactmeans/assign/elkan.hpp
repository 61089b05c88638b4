// Elkan's algorithm (C. Elkan, Using the triangle inequality to accelerate k-means, ICML 2003).
//
// Per row there is a lower bound for every centre: by_group.hpp with groups of one centre. All
// survivors are compared with their own centre first; then each centre is compared with all rows to
// which it may be the nearest (the aggregation of the package sparsekmeans). Elkan computes the
// fewest distances of all algorithms here and takes the most memory: four bytes per row and centre,
// and eight per row.
//
// Inter-centre distances are used for dense rows only (scan/inter_centre_distances.hpp).
//
//   paper        here; names with _ are members of GroupBounds
//   c(x)         labels[i]
//   u(x)         upper_[i], plus own_drift_ of the label
//   l(x, c)      lower_[i * pitch_ + j], minus group_drift_ of j
//   d(c, c')     centre_distances_; d(c, c') - u(x) > u(x) is the paper's u(x) < d(c, c') / 2
//   s(c)         half of centre_distances_->nearest()
//   r(x)         true for every survivor, until GroupRange::compare_with_own_groups()
//   S_j          GroupRange::picks[j], the rows to be compared with centre j
#pragma once

#include "exactmeans/assign/by_group.hpp"
#include "exactmeans/centres/single_centres.hpp"

namespace exactmeans {

template <class R>
class Elkan : public ByGroup<R, SingleCentres<R>> {
public:
    using ByGroup<R, SingleCentres<R>>::ByGroup;
    static constexpr Traits traits{"elkan", "one lower bound per row and centre", true, true,
                                   "euclidean cosine angular"};
    static Size bytes_per_row(Size k, Size, bool) { return Elkan::bytes_for(k); }
};

}  // namespace exactmeans
