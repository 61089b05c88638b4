// The drift of centres (or groups of them): the sum of their movements since the first bound was
// stored (J. Newling, F. Fleuret, Fast k-means with accurate bounds, ICML 2016). An upper bound
// that held when the drift was s holds now if it is raised by the current drift minus s, a lower
// bound if it is lowered by as much. The term with s is included when a bound is stored, and the
// current drift when it is used, so bounds need no update when centres move.
#pragma once

#include <vector>

#include "exactmeans/centres/movement.hpp"
#include "exactmeans/kernels/bounds.hpp"

namespace exactmeans {

class Drift {
public:
    explicit Drift(Size count) : sum_(std::size_t(count), 0.0), up_(std::size_t(count), 0.0f) {}

    // Adds a movement, in units of the block (kernels/bounds.hpp), to the drift of entry `at`.
    void add(Size at, double movement) {
        double& sum = sum_[std::size_t(at)];
        sum = (sum + movement) * (1 + 0x1p-51);
        up_[std::size_t(at)] = round_up(sum);
    }

    // The current drifts, rounded up.
    const float* sums() const { return up_.data(); }
    // The form in which a bound that holds now is stored.
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
