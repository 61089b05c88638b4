// The drift of centres (or groups): their movements added up since bounds began. A bound that holds
// when the drift is s holds later if it is relaxed movement the drift since then. Bounds are
// therefore stored together with the drift at that time and need no rewriting when centres move:
// the current drift is applied when they are used.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/centres/movement.hpp"
#include "exactmeans/kernels/bounds.hpp"

namespace exactmeans {

class Drift {
public:
    explicit Drift(Size count) : sum_(std::size_t(count), 0.0), up_(std::size_t(count), 0.0f) {}

    // Adds a movement, in units, to the drift of entry `at`.
    void add(Size at, double movement) {
        double& sum = sum_[std::size_t(at)];
        sum = (sum + movement) * (1 + 0x1p-51);
        up_[std::size_t(at)] = round_up(sum);
    }

    // Current drifts, rounded up; the stored form of a bound that holds now.
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
