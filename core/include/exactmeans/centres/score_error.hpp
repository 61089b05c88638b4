// What scores that are not canonical may be off by (docs/numerics.md, "Centres that moved" and
// "Loose scores").
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
    // Whatever the order in which products are added up, a row's exact score and its canonical one
    // differ from what comes out by no more than this, together. Infinite where that may not be so.
    template <class Row>
    double of(const Row& row) const {
        return of(row, 0x1p-22);
    }
    // The same of an exact score alone, where products are added up in float32.
    template <class Row>
    double of_single(const Row& row) const {
        return of(row, 0x1.02p-24);
    }
    // Are centres of a size that float32 does well with?
    bool is_usual() const {
        return longest_ > 0x1p-20 && longest_ < usual && score_offset_ < usual;
    }

private:
    static constexpr double usual = 0x1p50;

    template <class Row>
    double of(const Row& row, double rounding) const {
        double norm2 = 0;
        for (Size t = 0; t < row.nonzeros; ++t)
            norm2 += double(row.value[t]) * double(row.value[t]);
        const double norm = std::sqrt(norm2), m = double(row.nonzeros);
        if (!(norm < usual && longest_ < usual && score_offset_ < usual && m < 0x1p16))
            return std::numeric_limits<double>::infinity();
        return (norm * longest_ + score_offset_) * (m + 32) * rounding +
               (m + 1) * (1 + norm + longest_) * 0x1p-90;
    }

    double longest_ = 0, score_offset_ = 0;  // of the centres, as scores see them
};

}  // namespace exactmeans
