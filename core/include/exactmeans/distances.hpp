// Distances in compensated float64, straight from the data: inertia, scatter, farthest rows,
// transform. They do not decide labels (scores do that), so they are as accurate as float64 allows
// instead of canonical.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "exactmeans/compensated.hpp"
#include "exactmeans/exact_sum.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/parallel.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

inline constexpr Size distance_chunk = 256;

// Points to measure from, and the power of two by which everything is multiplied first.
template <class C>
struct Points {
    const C* values;  // k x d
    Size k, d;
    double scale;
    std::vector<SquareSum> norms2;  // of the scaled points

    Points(const C* points, Size count, Size columns, int exponent)
        : values(points), k(count), d(columns), scale(std::ldexp(1.0, exponent)) {
        for (Size j = 0; j < k; ++j)
            norms2.push_back(kernels<C>().square_sum(values + j * d, nullptr, d, scale));
    }
};

// |x_i - c_j|^2, scaled.
template <class R, class C>
double squared_distance(const DenseRows<R>& x, Size i, const Points<C>& points, Size j) {
    const C* c = points.values + j * points.d;
    std::vector<R> packed;
    const R* row = x.data + i * x.row_stride;
    if (x.col_stride != 1) {
        packed.resize(std::size_t(x.d));
        for (Size f = 0; f < x.d; ++f) packed[std::size_t(f)] = x.at(i, f);
        row = packed.data();
    }
    if constexpr (std::is_same_v<C, R>)
        return kernels<R>().distance2(row, c, x.d, points.scale);
    else if constexpr (std::is_same_v<C, double>)
        return kernels<R>().distance2_double(row, c, x.d, points.scale);
    else
        throw std::invalid_argument("points must be float64, or float32 like the rows");
}
template <class R, class I, class C>
double squared_distance(const CsrRows<R, I>& x, Size i, const Points<C>& points, Size j) {
    const C* c = points.values + j * points.d;
    const auto row = x.row(i);
    const SquareSum norm2 = points.norms2[std::size_t(j)];
    Compensated sum;
    sum.add(norm2.high);
    constexpr Size block = 512;
    double stored[block];
    double low = norm2.low;
    for (Size begin = 0; begin < row.nonzeros; begin += block) {
        const Size n = std::min(block, row.nonzeros - begin);
        for (Size t = 0; t < n; ++t) stored[t] = double(c[row.index[begin + t]]);
        const SquareSum part =
            kernels<R>().stored_distance2(row.value + begin, stored, n, points.scale);
        sum.add(part.high);
        low += part.low;
    }
    sum.add(low);
    // What is left when a row sits on its point is rounding; such rows must be known to be at
    // distance 0.
    const double d2 = sum.value();
    return d2 > 0x1p-96 * norm2.value() ? d2 : 0.0;
}

// Calls visit(i, squared distance to the own point, worker) for every row; null `labels`: all own
// point 0.
template <class Rows, class C, class Visit>
void for_own_distances(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                       const Threads& threads, Visit visit) {
    threads.ranges(x.n, distance_chunk, [&](Size begin, Size end, int worker) {
        for (Size i = begin; i < end; ++i)
            visit(i, squared_distance(x, i, points, labels ? labels[i] : 0), worker);
    });
}

// Sum over rows of w |x - c|^2 and, apart from it, without the weights; exact sums of the rows'
// terms.
struct Scatter {
    ExactSum weighted, plain;
};

template <class Rows, class C>
Scatter scatter(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                const Threads& threads) {
    std::vector<Scatter> parts(static_cast<std::size_t>(threads.n_jobs));
    for_own_distances(x, points, labels, threads, [&](Size i, double d2, int worker) {
        Scatter& part = parts[std::size_t(worker)];
        part.plain.add(d2);
        if (x.weights) part.weighted.add(x.weights[i] * d2);
    });
    Scatter all;
    for (const Scatter& part : parts) {
        all.plain.add(part.plain);
        all.weighted.add(x.weights ? part.weighted : part.plain);
    }
    return all;
}

// out[i * k + j] = |x_i - c_j|, in the data's own units.
template <class Rows>
void transform(const Rows& x, const Points<typename Rows::Real>& points, typename Rows::Real* out,
               const Threads& threads) {
    threads.ranges(x.n, distance_chunk, [&](Size begin, Size end, int) {
        for (Size i = begin; i < end; ++i)
            for (Size j = 0; j < points.k; ++j)
                out[i * points.k + j] = typename Rows::Real(
                    std::sqrt(squared_distance(x, i, points, j)) / points.scale);
    });
}

}  // namespace exactmeans
