// The error of scores that are not canonical (derivations: docs/proofs/delta_bounds.md and
// docs/proofs/reordered_scores.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "exactmeans/centres/centres.hpp"

namespace exactmeans {

class ScoreError {
public:
    ScoreError() = default;
    template <class R>
    explicit ScoreError(const Centres<R>& centroids) {
        const Frame<R>& frame = centroids.frame();
        const double scale = std::ldexp(frame.scale(), frame.packing);
        for (Size j = 0; j < centroids.k(); ++j) {
            longest_ = std::max(longest_, std::sqrt(centroids.norm2(j)) * scale);
            score_offset_ = std::max(score_offset_, double(centroids.score_offset()[j]));
        }
    }
    // A bound of the errors of a score whose products are summed in any order and of the canonical
    // score, together. Infinite if no bound holds.
    template <class Row>
    double of(const Row& row) const {
        return of(row, 0x1p-22);
    }
    // The error of the float32 score alone, against the exact score.
    template <class Row>
    double of_float32(const Row& row) const {
        return of(row, 0x1.02p-24);
    }
    // Are the magnitudes of the centres safe in float32? Otherwise scores might overflow, or
    // underflow matter.
    bool fits_float32() const {
        return longest_ > 0x1p-20 && longest_ < safe_magnitude && score_offset_ < safe_magnitude;
    }

private:
    static constexpr double safe_magnitude = 0x1p50;

    template <class Row>
    double of(const Row& row, double rounding) const {
        double norm2 = 0;
        for (Size t = 0; t < row.nonzeros; ++t)
            norm2 += double(row.value[t]) * double(row.value[t]);
        const double norm = std::sqrt(norm2), m = double(row.nonzeros);
        if (!(norm < safe_magnitude && longest_ < safe_magnitude &&
              score_offset_ < safe_magnitude && m < 0x1p16))
            return std::numeric_limits<double>::infinity();
        return (norm * longest_ + score_offset_) * (m + 32) * rounding +
               (m + 1) * (1 + norm + longest_) * 0x1p-90;
    }

    double longest_ = 0, score_offset_ = 0;  // maxima over the scaled centres
};

}  // namespace exactmeans
