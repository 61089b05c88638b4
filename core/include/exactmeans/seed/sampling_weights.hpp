// What rows weigh in a draw, as sums that do not depend on order. A row's mass is cut into two
// words on a grid that is laid for the total: masses only shrink, so no sum of words ever exceeds
// what the grid was laid for, and no addition or subtraction of words rounds (docs/numerics.md,
// "Seeding"; the idea is that of numerics/bins.hpp).
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
    void take(const SamplingWeight& other) {
        high -= other.high;
        low -= other.low;
    }
};

class WeightGrid {
public:
    WeightGrid() = default;
    // For n masses of sum at most `bound`. The high word has 50 bits below the sum; what it leaves
    // of a mass is at most half its unit, and n of those fit the low word.
    WeightGrid(double bound, Size n) {
        int top, count_bits = 3;
        std::frexp(bound, &top);
        while (count_bits < 62 && (Size(1) << count_bits) < n) ++count_bits;
        // Every double is a multiple of 2^-1074: a finer unit is never needed and could not be
        // written down.
        const int high_unit = std::max(top - 50, -1074);
        const int low_unit = std::max(high_unit - 1 + count_bits - 53, -1074);
        high_ = std::ldexp(1.5, high_unit + 52);
        low_ = std::ldexp(1.5, low_unit + 52);
    }

    SamplingWeight split(double mass) const {
        const double high = (mass + high_) - high_, rest = mass - high;
        return {high, (rest + low_) - low_};
    }

private:
    double high_ = 1.5, low_ = 1.5;
};

// Sums of masses by chunk of rows: finding the row at a given place of the running total takes n /
// chunk steps.
class WeightIndex {
public:
    static constexpr Size chunk = row_chunk;

    void reset(Size n) { chunks_.assign(std::size_t((n + chunk - 1) / chunk), SamplingWeight{}); }
    std::size_t size() const { return chunks_.size(); }
    SamplingWeight& of_row(Size i) { return chunks_[std::size_t(i / chunk)]; }
    SamplingWeight total() const {
        SamplingWeight sum;
        for (const SamplingWeight& mass : chunks_) sum.add(mass);
        return sum;
    }

    // The first row with before + (masses up to and with it) >= target; n if there is none.
    template <class MassOf>
    Size find(SamplingWeight before, double target, Size n, MassOf mass_of) const {
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            SamplingWeight after = before;
            after.add(chunks_[c]);
            if (after.value() >= target) {
                for (Size i = Size(c) * chunk; i < std::min(n, Size(c + 1) * chunk); ++i) {
                    before.add(mass_of(i));
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
