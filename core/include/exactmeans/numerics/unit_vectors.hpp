// Lengths, unit vectors and 1 - cos of rows and centres, as accurate as float64 allows. Labels do
// not depend on them: scores decide labels (docs/proofs/directions.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/numerics/compensated.hpp"

namespace exactmeans {

// The minimum mean length: a mean of unit vectors that is shorter than this is rounding error and
// has no direction. Python reads it too.
inline constexpr double minimum_mean_length = 0x1p-44;
// Rows shorter than the smallest normal double count as 0, because their inverse would overflow.
inline constexpr double shortest = 0x1p-1022;

// The stored values of row i as a contiguous array: the row itself, or a copy in the buffer.
template <class R>
SparseRow<R, std::int32_t> stored(const DenseRows<R>& x, Size i, std::vector<R>& buffer) {
    const R* row = x.row(i);
    if (x.col_stride != 1) {
        buffer.resize(std::size_t(x.d));
        for (Size f = 0; f < x.d; ++f) buffer[std::size_t(f)] = x.at(i, f);
        row = buffer.data();
    }
    return {nullptr, row, x.d};
}
template <class R, class I>
SparseRow<R, I> stored(const CsrRows<R, I>& x, Size i, std::vector<R>&) {
    return x.row(i);
}

// The power of two that scales a value into [1, 2).
inline double to_one(double value) { return std::ldexp(1.0, -std::ilogb(value)); }

// The length of a vector of any magnitude, with an error of one or two units in the last place.
template <class R>
double length(const R* values, Size n) {
    double scale = 1;
    if constexpr (sizeof(R) == sizeof(double)) {
        double largest = 0;
        for (Size f = 0; f < n; ++f) largest = std::max(largest, std::fabs(values[f]));
        if (!(largest >= shortest)) return largest > 0 ? largest : 0.0;
        if (largest > 0x1p300 || largest < 0x1p-300) scale = to_one(std::min(largest, 0x1p1000));
    }
    return std::sqrt(vector_kernels<R>().square_sum(values, nullptr, n, scale).value()) / scale;
}

// The length of a row for spherical metrics. Rows shorter than the smallest normal number of the
// dtype count as 0, because products with them underflow and weights divided by their length may
// overflow.
template <class R>
double row_length(const R* values, Size n) {
    const double norm = length(values, n);
    return norm < double(std::numeric_limits<R>::min()) ? 0.0 : norm;
}

// Writes v / |v| rounded to R; returns false, and writes nothing, unless v is longer than `least`.
template <class R>
bool direction(const double* v, Size d, double least, R* out) {
    const double norm = length(v, d);
    if (!(norm > least)) return false;
    for (Size f = 0; f < d; ++f) out[f] = R(v[f] / norm);
    return true;
}

// x . c, where at(f) is the value of feature f of c.
template <class R, class I, class At>
SquareSum product(const SparseRow<R, I>& row, At at, double scale) {
    constexpr Size block = 512;
    double values[block];
    Compensated high;
    double low = 0;
    for (Size begin = 0; begin < row.nonzeros; begin += block) {
        const Size n = std::min(block, row.nonzeros - begin);
        for (Size t = 0; t < n; ++t)
            values[t] = at(row.index ? Size(row.index[begin + t]) : begin + t);
        const SquareSum part = vector_kernels<R>().product(row.value + begin, values, n, scale);
        high.add(part.high);
        low += part.low;
    }
    high.add(low);
    return high.parts();
}

// 1 - cos of a row of length `norm` and a centre of squared length c2. Near 0, where the difference
// cancels, it is (|x|^2 |c|^2 - (x.c)^2) / (|x||c| (|x||c| + x.c)) in twice the precision. Results
// below the rounding error of this formula become 0.
template <class R, class I, class At>
double one_minus_cos(const SparseRow<R, I>& row, double norm, At at, const SquareSum& c2) {
    if (!(norm > 0)) return 1;
    const double scale = to_one(norm);
    const SquareSum dot = product(row, at, scale);
    const double apart = 1 - dot.value() / (norm * scale * std::sqrt(c2.value()));
    if (apart > 0x1p-10) return std::min(apart, 2.0);
    const SquareSum x2 = vector_kernels<R>().square_sum(row.value, nullptr, row.nonzeros, scale);
    const double a = x2.value(), a_low = (x2.high - a) + x2.low, b = c2.value(),
                 b_low = (c2.high - b) + c2.low, p = dot.value(), p_low = (dot.high - p) + dot.low;
    const double ab = a * b, pp = p * p;
    const double left = (ab - pp) + ((std::fma(a, b, -ab) + a * b_low + a_low * b) -
                                     (std::fma(p, p, -pp) + 2 * p * p_low));
    const double root = std::sqrt(ab), near = left / (root * (root + p));
    constexpr double unit = 0.5 * double(std::numeric_limits<R>::epsilon());
    return near > std::max(2 * unit * unit, 0x1p-98) ? near : 0.0;
}

inline double angle_of(double one_minus_cosine) {
    return 2 * std::asin(std::min(1.0, std::sqrt(0.5 * one_minus_cosine)));
}

}  // namespace exactmeans
