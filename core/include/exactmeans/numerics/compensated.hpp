// Error-free transformations and sums in twice the working precision (Dekker 1971; Knuth; Ogita,
// Rump & Oishi 2005): the "compensated float64" of docs/numerics.md.
#pragma once

#include <cmath>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

// a + b == sum + error, exactly.
struct TwoSum {
    double sum, error;
    TwoSum(double a, double b) : sum(a + b) {
        const double b_part = sum - a;
        error = (a - (sum - b_part)) + (b - b_part);
    }
};

// A running sum with its accumulated rounding error.
class Compensated {
public:
    void add(double value) {
        const TwoSum s(sum_, value);
        sum_ = s.sum;
        error_ += s.error;
    }
    void add_product(double a, double b) {
        const double product = a * b;
        add(product);
        error_ += std::fma(a, b, -product);
    }
    double value() const { return sum_ + error_; }
    SquareSum parts() const { return {sum_, error_}; }
    void add(const Compensated& other) {
        add(other.sum_);
        error_ += other.error_;
    }

private:
    double sum_ = 0, error_ = 0;
};

// Sum of |value|.
template <class R>
Compensated norm1(const R* values, Size n) {
    Compensated sum;
    for (Size f = 0; f < n; ++f) sum.add(std::fabs(double(values[f])));
    return sum;
}

}  // namespace exactmeans
