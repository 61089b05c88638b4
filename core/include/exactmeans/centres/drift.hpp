// How far centres went, added up since bounds began. A bound that was true when the sum was s is
// true now if it gives way by what came since, so bounds need not be rewritten when centres move:
// they are stored together with the sum of their time, and the present sum is taken off when they
// are used.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/centres/movement.hpp"
#include "exactmeans/kernels/bounds.hpp"

namespace exactmeans {

class Drift {
public:
    explicit Drift(Size count) : sum_(std::size_t(count), 0.0), up_(std::size_t(count), 0.0f) {}

    // Entry `at` gives way by this much more, in units.
    void add(Size at, double by) {
        double& sum = sum_[std::size_t(at)];
        sum = (sum + by) * (1 + 0x1p-51);
        up_[std::size_t(at)] = round_up(sum);
    }

    // Present sums, rounded up; what a bound of now is stored as.
    const float* sums() const { return up_.data(); }
    float store_upper(Size at, float upper) const {
        return round_up(double(upper) - sum_[std::size_t(at)]);
    }
    float store_lower(Size at, float lower) const {
        return round_down(double(lower) + sum_[std::size_t(at)]);
    }

private:
    std::vector<double> sum_;
    std::vector<float> up_;
};

}  // namespace exactmeans
