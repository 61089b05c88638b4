// Elkan's algorithm (C. Elkan, Using the triangle inequality to accelerate k-means, ICML 2003),
// with the aggregation of SparseKmeans: the own distance of all rows first, and then one centre at
// a time for all rows that it may concern.
//
// A row keeps a lower bound for every centre (by_group.hpp, with groups of one). It prunes more
// distances than any other algorithm here, and takes the most memory. Distances between centres are
// used for dense rows only (scan/inter_centre_distances.hpp).
// Memory: four bytes per row and centre, and eight per row.
//
//   paper        here
//   c(x)         labels[i]
//   u(x)         upper_[i], plus own_ of the label
//   l(x, c)      lower_[i * pitch_ + j], minus drift_ of j
//   d(c, c')     gaps_, twice the paper's test: d(c, c') - u(x) > u(x) is u(x) < d(c, c') / 2
//   s(c)         half of gaps_->nearest()
//   r(x)         a row in `id` has not been compared with its own centre yet
//   S_j          picks[j], the rows to be compared with centre j
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
