// How a sparse centre differs from what it was: c = factor b + the change, whose few features are
// those of rows that came or went. What rounding makes of all others is left out, and its length
// told.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/data/sparse_vector.hpp"

namespace exactmeans {

struct Change {
    bool any = false;
    double factor = 1;
    double length = 0, lost = 0;  // of the change, and of what it leaves out; rounded up
    std::vector<std::uint32_t> feature;
    std::vector<double> value;
};

// The factor that most of the pairs agree on, up to rounding; 1 if there is nothing to go by.
template <class R>
double common_factor(const R* from, const R* to, Size count) {
    constexpr Size enough = 256;
    constexpr double near = 1 + 4 * double(std::numeric_limits<R>::epsilon());
    std::vector<double> ratio;
    for (Size t = 0, step = count / enough + 1; t < count; t += step) {
        if (from[t] == 0) continue;
        const double own = double(to[t]) / double(from[t]);
        if (own > 0.25 && own < 4) ratio.push_back(own);
    }
    std::sort(ratio.begin(), ratio.end());
    std::size_t begin = 0, best = 0, most = 0;
    for (std::size_t end = 0; end < ratio.size(); ++end) {
        while (ratio[end] > ratio[begin] * near) ++begin;
        if (end + 1 - begin > most) {
            most = end + 1 - begin;
            best = begin;
        }
    }
    // One of them, not their mean, whose own rounding would make every value differ in float64.
    return most ? ratio[best + most / 2] : 1.0;
}

// Values times `scale`, a power of two.
template <class R>
Change change_of(const SparseVector<R>& then, const SparseVector<R>& now, double scale) {
    const AlignedPair<R> both(then, now);
    Change change;
    change.any = true;
    change.factor = common_factor(both.left(), both.right(), both.size());
    constexpr double rounding = 2 * double(std::numeric_limits<R>::epsilon());
    double length2 = 0, lost2 = 0;
    for (Size t = 0; t < both.size(); ++t) {
        const double a = double(both.right()[t]) * scale,
                     b = change.factor * (double(both.left()[t]) * scale);
        const double step = a - b;
        if (std::abs(step) <= rounding * std::abs(a)) {
            lost2 += step * step;
            continue;
        }
        length2 += step * step;
        change.feature.push_back(both.feature()[t]);
        change.value.push_back(step);
    }
    // Each difference is off by two roundings of its terms, which the caller pays for.
    const double up = 1 + double(both.size() + 16) * 0x1p-52;
    change.length = std::sqrt(length2) * up;
    change.lost = std::sqrt(lost2) * up;
    return change;
}

}  // namespace exactmeans
