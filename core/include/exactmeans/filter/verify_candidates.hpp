// The last step of every filter: canonical scores of the remaining candidates decide the label.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/centres/centres.hpp"

namespace exactmeans {

template <class R>
struct Verified {
    std::int32_t label;
    R score;
};

// The candidate with the lowest canonical score, the lowest index on ties, whatever the order of
// the candidates. It is the label of plain Lloyd if all other centres have higher canonical scores.
// Label 0 if no score is below infinity. A row is a SparseRow, or the d values of a dense row,
// shifted by the shift of the frame.
template <class R, class Row>
Verified<R> verify_candidates(CanonicalScore<R>& score_of, const Centres<R>& centroids,
                              const Row& row, std::span<const std::int32_t> candidates) {
    Verified<R> best{0, std::numeric_limits<R>::infinity()};
    for (const std::int32_t j : candidates) {
        const R score = score_of(centroids, row, Size(j));
        if (score < best.score || (score == best.score && j < best.label)) best = {j, score};
    }
    return best;
}

}  // namespace exactmeans
