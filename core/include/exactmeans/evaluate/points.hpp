// The distance between a row and a point, in compensated float64 from the data. Distances do not
// decide labels, so they need not be canonical: they are as accurate as float64 allows.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/numerics/compensated.hpp"
#include "exactmeans/numerics/frame.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"

namespace exactmeans {

// Points, usually centres, whose distances to rows are computed, and the power of two by which all
// values are multiplied first.
template <class C>
struct Points {
    const C* values = nullptr;                             // k x d
    const std::vector<SparseVector<C>>* sparse = nullptr;  // or this, for CSR rows
    Size k, d;
    double scale;
    Metric metric;
    std::vector<SquareSum> norms;  // squared lengths of the scaled points; manhattan: L1 norms

    Points(const C* points, Size count, Size columns, int exponent, Metric by = Metric::euclidean)
        : values(points), k(count), d(columns), scale(std::ldexp(1.0, exponent)), metric(by) {
        for (Size j = 0; j < k; ++j)
            norms.push_back(metric == Metric::manhattan ? norm1(values + j * d, d).parts()
                                                        : vector_kernels<C>().square_sum(
                                                              values + j * d, nullptr, d, scale));
    }
    Points(const std::vector<SparseVector<C>>& points, Size columns, int exponent,
           Metric by = Metric::euclidean)
        : sparse(&points),
          k(Size(points.size())),
          d(columns),
          scale(std::ldexp(1.0, exponent)),
          metric(by) {
        for (const SparseVector<C>& point : points) {
            if (metric == Metric::manhattan) {
                norms.push_back(norm1(point.value.data(), point.size()).parts());
                continue;
            }
            norms.push_back(vector_kernels<C>().sparse_square_sum(
                point.feature.data(), point.value.data(), point.size(), scale));
        }
    }
};

// |x_i - c_j|^2, scaled.
template <class R, class C>
double squared_distance(const DenseRows<R>& x, Size i, const Points<C>& points, Size j) {
    if (points.sparse) throw std::invalid_argument("sparse points are for CSR rows");
    const C* c = points.values + j * points.d;
    std::vector<R> packed;
    const R* row = x.row(i);
    if (x.col_stride != 1) {
        packed.resize(std::size_t(x.d));
        for (Size f = 0; f < x.d; ++f) packed[std::size_t(f)] = x.at(i, f);
        row = packed.data();
    }
    if constexpr (std::is_same_v<C, R>)
        return vector_kernels<R>().distance2(row, c, x.d, points.scale);
    else if constexpr (std::is_same_v<C, double>)
        return vector_kernels<R>().distance2_double(row, c, x.d, points.scale);
    else
        throw std::invalid_argument("points must be float64, or float32 like the rows");
}
// `at(f)`: the point's value of feature f.
template <class R, class I, class C, class At>
double squared_distance(const CsrRows<R, I>& x, Size i, const Points<C>& points, Size j, At at) {
    const auto row = x.row(i);
    const SquareSum norm2 = points.norms[std::size_t(j)];
    Compensated sum;
    sum.add(norm2.high);
    constexpr Size block = 512;
    double stored[block];
    double low = norm2.low;
    for (Size begin = 0; begin < row.nonzeros; begin += block) {
        const Size n = std::min(block, row.nonzeros - begin);
        for (Size t = 0; t < n; ++t) stored[t] = at(Size(row.index[begin + t]));
        const SquareSum part =
            vector_kernels<R>().stored_distance2(row.value + begin, stored, n, points.scale);
        sum.add(part.high);
        low += part.low;
    }
    sum.add(low);
    // A row equal to its point leaves only rounding errors, but must have distance 0.
    const double d2 = sum.value();
    return d2 <= 0x1p-96 * norm2.value() ? 0.0 : d2;
}
template <class R, class C, class At>
double squared_distance(const DenseRows<R>& x, Size i, const Points<C>& points, Size j, At) {
    return squared_distance(x, i, points, j);
}

// The L1 distance: |x - c| over stored entries, |c| over all others. A row equal to its point
// leaves only rounding errors and has distance 0.
template <class Rows, class C, class At>
double manhattan_distance(const Rows& x, Size i, const Points<C>& points, Size j, At at) {
    Compensated sum;
    if constexpr (is_dense<Rows>) {
        for (Size f = 0; f < x.d; ++f) sum.add(std::fabs(double(x.at(i, f)) - at(f)));
        return sum.value();
    } else {
        const SquareSum norm = points.norms[std::size_t(j)];
        sum.add(norm.high);
        sum.add(norm.low);
        const auto row = x.row(i);
        for (Size t = 0; t < row.nonzeros; ++t) {
            const double value = at(Size(row.index[t]));
            sum.add(std::fabs(double(row.value[t]) - value));
            sum.add(-std::fabs(value));
        }
        return sum.value() > 0x1p-96 * norm.value() ? sum.value() : 0.0;
    }
}

// |x_i - c_j|, not scaled, without overflow of the squares.
template <class Rows, class At>
double far_distance(const Rows& x, Size i, At at) {
    std::vector<double> step(static_cast<std::size_t>(x.d));
    for (Size f = 0; f < x.d; ++f) step[std::size_t(f)] = -at(f);
    std::vector<typename Rows::Real> buffer;
    const auto row = stored(x, i, buffer);
    for (Size t = 0; t < row.nonzeros; ++t)
        step[std::size_t(row.index ? Size(row.index[t]) : t)] += double(row.value[t]);
    return length(step.data(), x.d);
}

// The term of the objective of row i with weight 1 at point j; infinite if it overflows.
template <class Rows, class C, class At>
double pair_cost(const Rows& x, Size i, const Points<C>& points, Size j, At at) {
    if (points.metric == Metric::euclidean) {
        const double d2 = squared_distance(x, i, points, j, at);
        if (std::isfinite(d2)) return d2;
        // A partial sum overflowed, but the distance may be finite.
        const double distance = far_distance(x, i, at) * points.scale;
        return distance * distance;
    }
    if (points.metric == Metric::manhattan) return manhattan_distance(x, i, points, j, at);
    std::vector<typename Rows::Real> buffer;
    const double apart =
        one_minus_cos(stored(x, i, buffer), x.norms[i], at, points.norms[std::size_t(j)]);
    return points.metric == Metric::cosine ? apart : angle_of(apart) * angle_of(apart);
}
// fn(at), where at(f) is the value of feature f of point j.
template <class C, class Fn>
double with_values(const Points<C>& points, Size j, Fn fn) {
    if (points.sparse) {
        const SparseVector<C>& c = (*points.sparse)[std::size_t(j)];
        return fn([&](Size f) { return double(c.at(f)); });
    }
    const C* c = points.values + j * points.d;
    return fn([&](Size f) { return double(c[f]); });
}
template <class Rows, class C>
double pair_cost(const Rows& x, Size i, const Points<C>& points, Size j) {
    return with_values(points, j, [&](auto at) { return pair_cost(x, i, points, j, at); });
}
template <class Rows, class C>
double far_distance(const Rows& x, Size i, const Points<C>& points, Size j) {
    return with_values(points, j, [&](auto at) { return far_distance(x, i, at); });
}

}  // namespace exactmeans
