// The change of a sparse centre from b to c, as c = factor b + e. When rows join or leave a
// cluster, all values of its mean change by a common factor, and only the features of these rows
// change otherwise: e has these features. Differences by rounding in all other features are left
// out of e; their length is returned.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/sparse_vector.hpp"

namespace exactmeans {

struct Change {
    bool any = false;
    double factor = 1;
    double length = 0, lost = 0;  // lengths of e and of what is left out, rounded up
    std::vector<std::uint32_t> feature;
    std::vector<double> value;
};

// The most frequent ratio to[t] / from[t] among some sampled values, up to rounding; 1 if no
// ratio is between 1/4 and 4.
template <class R>
double common_factor(const R* from, const R* to, Size count) {
    constexpr Size enough = cost::change_samples;
    constexpr double near = 1 + 4 * double(std::numeric_limits<R>::epsilon());
    std::vector<double> ratio;
    for (Size t = 0, step = count / enough + 1; t < count; t += step) {
        if (from[t] == 0) continue;
        const double quotient = double(to[t]) / double(from[t]);
        if (quotient > 0.25 && quotient < 4) ratio.push_back(quotient);
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
    // One of the ratios, not their mean, whose rounding would make every value differ.
    return most ? ratio[best + most / 2] : 1.0;
}

// The change from `before` to `now`, with values times `scale`, a power of two.
template <class R>
Change change_of(const SparseVector<R>& before, const SparseVector<R>& now, double scale) {
    const AlignedPair<R> both(before, now);
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
    // Rounds the lengths up. The error of each difference, two roundings of its terms, is left to
    // the caller.
    const double up = 1 + double(both.size() + 16) * 0x1p-52;
    change.length = std::sqrt(length2) * up;
    change.lost = std::sqrt(lost2) * up;
    return change;
}

}  // namespace exactmeans
