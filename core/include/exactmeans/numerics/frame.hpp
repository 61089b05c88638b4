// What a model adds to a bare matrix of centres so that its scores are defined: the shift that
// dense rows get while they are packed, and the power of two that keeps products in range. Both are
// fixed once, by the training data, and are part of the model.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/numerics/metric.hpp"

namespace exactmeans {

template <class R>
struct Frame {
    int exponent = 0;      // scores are those of 2^exponent times the data
    std::vector<R> shift;  // empty: none
    Metric metric = Metric::euclidean;
    int packing = 0;  // centres are packed times 2^packing: that of rows which unit vectors meet

    const R* shift_or_null() const { return shift.empty() ? nullptr : shift.data(); }
    double scale() const { return std::ldexp(1.0, exponent); }

    // L1 distances square nothing and are about no origin.
    bool packs_as_is() const {
        return metric == Metric::manhattan || (shift.empty() && exponent == 0 && packing == 0);
    }
};

// 0 while squares of values up to `largest`, and sums of many of them, are safe from overflow and
// underflow; else the exponent that brings `largest` to a size at which neither squares nor centres
// times the square of the scale leave the range.
template <class R>
int safe_exponent(double largest) {
    if (!(largest > 0)) return 0;
    constexpr int room = std::numeric_limits<R>::max_exponent / 3,
                  aim = std::numeric_limits<R>::max_exponent * 9 / 32;
    int exponent;
    std::frexp(largest, &exponent);
    if (exponent > room) return aim - exponent;
    return exponent < -room ? -aim - exponent : 0;
}

}  // namespace exactmeans
