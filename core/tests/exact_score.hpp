// The score of a row and a centre, exact but for a few bits of long double.
#pragma once

#include <cmath>
#include <vector>

#include "exactmeans/centres/centres.hpp"
#include "samples.hpp"

namespace samples {

// An exact score, and the rounding of the canonical one of a CSR row: kappa of
// docs/proofs/delta_bounds.md.
struct ExactScore {
    long double score, rounding;
};

// A centre, with the values that it is packed with.
template <class R>
struct ExactCentre {
    long double score_offset;
    std::vector<long double> packed;

    ExactCentre(const exactmeans::Centres<R>& centroids, Size j)
        : score_offset(static_cast<long double>(centroids.score_offset()[j])) {
        const SparseVector<R> centre = centroids.nonzeros(j);
        for (Size f = 0; f < centroids.d(); ++f)
            packed.push_back(static_cast<long double>(centroids.frame().packed(f, centre.at(f))));
    }
    // The score of row i of x.
    ExactScore operator()(const Matrix<R>& x, Size i) const {
        long double score = score_offset, products = 0;
        Size m = 0;
        for (Size f = 0; f < x.d; ++f) {
            const long double product = static_cast<long double>(x(i, f)) * packed[std::size_t(f)];
            m += x(i, f) != 0;
            score += product;
            products += std::abs(product);
        }
        return {score,
                0x1p-24L * static_cast<long double>(m + 2) * products + 0x1p-22L * score_offset};
    }
};

template <class R>
long double exact_score(const exactmeans::Centres<R>& centroids, const Matrix<R>& x, Size i,
                        Size j) {
    return ExactCentre<R>(centroids, j)(x, i).score;
}

}  // namespace samples
