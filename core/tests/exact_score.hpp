// The score of a row and a centre, exact but for a few bits of long double.
#pragma once

#include <cmath>

#include "exactmeans/centres/centres.hpp"
#include "samples.hpp"

namespace samples {

// Row i of x and centre j, with the values that the centre is packed with.
template <class R>
long double exact_score(const exactmeans::Centres<R>& centroids, const Matrix<R>& x, Size i,
                        Size j) {
    long double score = static_cast<long double>(centroids.score_offset()[j]);
    const SparseVector<R> centre = centroids.nonzeros(j);
    for (Size f = 0; f < x.d; ++f)
        score += static_cast<long double>(x(i, f)) *
                 static_cast<long double>(centroids.frame().packed(f, centre.at(f)));
    return score;
}

// The rounding of the canonical score of CSR row i and centre j: kappa_j of
// docs/proofs/delta_bounds.md.
template <class R>
long double canonical_rounding(const exactmeans::Centres<R>& centroids, const Matrix<R>& x, Size i,
                               Size j) {
    long double products = 0;
    Size m = 0;
    const SparseVector<R> centre = centroids.nonzeros(j);
    for (Size f = 0; f < x.d; ++f) {
        m += x(i, f) != 0;
        products += std::abs(static_cast<long double>(x(i, f)) *
                             static_cast<long double>(centroids.frame().packed(f, centre.at(f))));
    }
    return 0x1p-24L * static_cast<long double>(m + 2) * products +
           0x1p-22L * static_cast<long double>(centroids.score_offset()[j]);
}

}  // namespace samples
