// Sampling weights of rows, with sums that do not depend on the order. A weight is split into two
// bins, a high and a low one, as in numerics/bins.hpp. The units of the bins are chosen for the
// total of all weights. Weights only shrink while seeds are added, so sums never exceed that total,
// and adding or subtracting bins never rounds (docs/numerics.md, "Seeding").
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

struct SamplingWeight {
    double high = 0, low = 0;

    double value() const { return high + low; }
    void add(const SamplingWeight& other) {
        high += other.high;
        low += other.low;
    }
    void subtract(const SamplingWeight& other) {
        high -= other.high;
        low -= other.low;
    }
};

// The bins are set anew when the potential has fallen to this share of their bound: the old ones
// then have too few bits for it. Python reads it too.
inline constexpr double regrid_fall = 0x1p-20;

// The units of the two bins.
class WeightGrid {
public:
    WeightGrid() = default;
    // For n weights of sum at most `bound`. The unit of the high bin is 50 bits below the sum. The
    // remainder of a weight is at most half that unit, and the low bin holds the sum of n of them.
    WeightGrid(double bound, Size n) {
        int top, count_bits = 3;
        std::frexp(bound, &top);
        while (count_bits < 62 && (Size(1) << count_bits) < n) ++count_bits;
        // Every double is a multiple of 2^-1074, so no unit need be finer.
        const int high_unit = std::max(top - 50, -1074);
        const int low_unit = std::max(high_unit - 1 + count_bits - 53, -1074);
        high_ = std::ldexp(1.5, high_unit + 52);
        low_ = std::ldexp(1.5, low_unit + 52);
    }

    SamplingWeight split(double weight) const {
        const double high = (weight + high_) - high_, remainder = weight - high;
        return {high, (remainder + low_) - low_};
    }

private:
    double high_ = 1.5, low_ = 1.5;
};

// Sums of weights by chunk of rows. With them, the row at a given value of the running total is
// found in about n / chunk + chunk steps.
class WeightIndex {
public:
    static constexpr Size chunk = row_chunk;

    void reset(Size n) { chunks_.assign(std::size_t((n + chunk - 1) / chunk), SamplingWeight{}); }
    std::size_t size() const { return chunks_.size(); }
    SamplingWeight& of_row(Size i) { return chunks_[std::size_t(i / chunk)]; }
    SamplingWeight total() const {
        SamplingWeight sum;
        for (const SamplingWeight& weight : chunks_) sum.add(weight);
        return sum;
    }

    // The first row i with before + (weights of rows 0 to i) >= target; n if there is none.
    template <class WeightOf>
    Size find(SamplingWeight before, double target, Size n, WeightOf weight_of) const {
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            SamplingWeight after = before;
            after.add(chunks_[c]);
            if (after.value() >= target) {
                for (Size i = Size(c) * chunk; i < std::min(n, Size(c + 1) * chunk); ++i) {
                    before.add(weight_of(i));
                    if (before.value() >= target) return i;
                }
            }
            before = after;
        }
        return n;
    }

private:
    std::vector<SamplingWeight> chunks_;
};

}  // namespace exactmeans
