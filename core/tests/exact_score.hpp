// The score of a row and a centre, exact but for a few bits of long double.
#pragma once

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

}  // namespace samples
