// The frame of a model defines its scores for given centres: the shift that is subtracted from
// dense rows, the power of two that keeps products in range, and the metric. The training data
// fixes all of them once; they are part of the model.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/numerics/metric.hpp"

namespace exactmeans {

template <class R>
struct Frame {
    int exponent = 0;      // scores are computed for 2^exponent times the data
    std::vector<R> shift;  // empty: none
    Metric metric = Metric::euclidean;
    int packing = 0;  // spherical metrics: packed centres are multiplied by 2^packing, which brings
                      // products with very long or short rows into range

    const R* shift_or_null() const { return shift.empty() ? nullptr : shift.data(); }
    double scale() const { return std::ldexp(1.0, exponent); }

    // Are packed values just the negated values of the centre? The L1 distance needs neither a
    // scale, because it squares nothing, nor a shift, because it does not depend on the origin.
    bool packs_as_is() const {
        return metric == Metric::manhattan || (shift.empty() && exponent == 0 && packing == 0);
    }
    // Value c of feature f of a centre, as layouts store it. Multiplying the centre by the squared
    // scale equals scaling both row and centre.
    R packed(Size f, R c) const {
        if (packs_as_is()) return -c;
        if (!shift.empty()) c -= shift[std::size_t(f)];
        const int by = 2 * exponent + packing;
        return by ? R(-std::ldexp(double(c), by)) : -c;
    }
};

// 0 if squares of values up to `largest`, and sums of many of them, can neither overflow nor
// underflow; else the exponent that scales `largest` so that neither squares nor centres times the
// squared scale leave the range.
template <class R>
int safe_exponent(double largest) {
    if (!(largest > 0)) return 0;
    constexpr int safe = std::numeric_limits<R>::max_exponent / 3,
                  target = std::numeric_limits<R>::max_exponent * 9 / 32;
    int exponent;
    std::frexp(largest, &exponent);
    if (exponent > safe) return target - exponent;
    return exponent < -safe ? -target - exponent : 0;
}

}  // namespace exactmeans
