// Distances in compensated float64, straight from the data: inertia, scatter, farthest rows,
// transform. They do not decide labels (scores do that), so they are as accurate as float64 allows
// instead of canonical.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/compensated.hpp"
#include "exactmeans/exact_sum.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/parallel.hpp"
#include "exactmeans/rows.hpp"
#include "exactmeans/slot_rows.hpp"
#include "exactmeans/sparse.hpp"

namespace exactmeans {

inline constexpr Size distance_chunk = 256;
inline constexpr Size transform_chunk = 96;

// Points to measure from, and the power of two by which everything is multiplied first.
template <class C>
struct Points {
    const C* values = nullptr;                             // k x d
    const std::vector<SparseVector<C>>* sparse = nullptr;  // or this, for CSR rows
    Size k, d;
    double scale;
    std::vector<SquareSum> norms2;  // of the scaled points

    Points(const C* points, Size count, Size columns, int exponent)
        : values(points), k(count), d(columns), scale(std::ldexp(1.0, exponent)) {
        for (Size j = 0; j < k; ++j)
            norms2.push_back(kernels<C>().square_sum(values + j * d, nullptr, d, scale));
    }
    Points(const std::vector<SparseVector<C>>& points, Size columns, int exponent)
        : sparse(&points), k(Size(points.size())), d(columns), scale(std::ldexp(1.0, exponent)) {
        for (const SparseVector<C>& point : points) {
            const Stripes stripes(point.size(),
                                  [&](Size t) { return point.feature[std::size_t(t)]; });
            const auto laid = stripes.lay<C>([&](Size t) { return point.value[std::size_t(t)]; });
            norms2.push_back(
                kernels<C>().square_sum(laid.data(), nullptr, stripes.length(), scale));
        }
    }
};

// |x_i - c_j|^2, scaled.
template <class R, class C>
double squared_distance(const DenseRows<R>& x, Size i, const Points<C>& points, Size j) {
    if (points.sparse) throw std::invalid_argument("sparse points are for CSR rows");
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
// `at(f)`: the point's value of a feature.
template <class R, class I, class C, class At>
double squared_distance(const CsrRows<R, I>& x, Size i, const Points<C>& points, Size j, At at) {
    const auto row = x.row(i);
    const SquareSum norm2 = points.norms2[std::size_t(j)];
    Compensated sum;
    sum.add(norm2.high);
    constexpr Size block = 512;
    double stored[block];
    double low = norm2.low;
    for (Size begin = 0; begin < row.nonzeros; begin += block) {
        const Size n = std::min(block, row.nonzeros - begin);
        for (Size t = 0; t < n; ++t) stored[t] = at(Size(row.index[begin + t]));
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
template <class R, class I, class C>
double squared_distance(const CsrRows<R, I>& x, Size i, const Points<C>& points, Size j) {
    if (points.sparse) {
        const SparseVector<C>& c = (*points.sparse)[std::size_t(j)];
        return squared_distance(x, i, points, j, [&](Size f) { return double(c.at(f)); });
    }
    const C* c = points.values + j * points.d;
    return squared_distance(x, i, points, j, [&](Size f) { return double(c[f]); });
}

// Rows in the order of their labels.
inline std::vector<Size> by_label(const std::int32_t* labels, Size n, Size k) {
    std::vector<Size> next(static_cast<std::size_t>(k + 1)), order(static_cast<std::size_t>(n));
    for (Size i = 0; i < n; ++i) ++next[std::size_t(labels[i]) + 1];
    for (Size j = 0; j < k; ++j) next[std::size_t(j + 1)] += next[std::size_t(j)];
    for (Size i = 0; i < n; ++i) order[std::size_t(next[std::size_t(labels[i])]++)] = i;
    return order;
}

// A thread spreads out one point at a time and measures the rows that own it.
template <class Rows, class C, class Visit>
void for_own_sparse_distances(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                              const Threads& threads, Visit visit) {
    const std::vector<Size> order = labels ? by_label(labels, x.n, points.k) : std::vector<Size>();
    std::vector<std::unique_ptr<Pile>> piles(static_cast<std::size_t>(threads.n_jobs));
    const Size step = std::max<Size>(distance_chunk, x.n / (16 * threads.n_jobs));
    threads.ranges(x.n, step, [&](Size begin, Size end, int worker) {
        std::unique_ptr<Pile>& pile = piles[std::size_t(worker)];
        if (!pile) pile = std::make_unique<Pile>(x.d, 1);
        Size spread = -1;
        for (Size at = begin; at < end; ++at) {
            const Size i = labels ? order[std::size_t(at)] : at, own = labels ? labels[i] : 0;
            if (own != spread) {
                pile->drain([](Size, const double*) {});
                const SparseVector<C>& point = (*points.sparse)[std::size_t(own)];
                for (std::size_t t = 0; t < point.feature.size(); ++t)
                    *pile->at(point.feature[t]) = double(point.value[t]);
                spread = own;
            }
            visit(i, squared_distance(x, i, points, own, [&](Size f) { return *pile->peek(f); }),
                  worker);
        }
        pile->drain([](Size, const double*) {});
    });
}

// Calls visit(i, squared distance to the own point, worker) for every row; null `labels`: all own
// point 0.
template <class Rows, class C, class Visit>
void for_own_distances(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                       const Threads& threads, Visit visit) {
    if constexpr (!is_dense<Rows>)
        if (points.sparse) return for_own_sparse_distances(x, points, labels, threads, visit);
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

// Rows as float64, scaled and shifted, in a buffer: what transform's kernels read.
class DoubleRows {
public:
    template <class R>
    void load(const DenseRows<R>& x, Size begin, Size count, double scale, const double* shift,
              const Panels<double>&) {
        values_.resize(std::size_t(count * x.d));
        rows_.resize(std::size_t(count));
        norm2_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) {
            double* row = values_.data() + t * x.d;
            rows_[std::size_t(t)] = row;
            for (Size f = 0; f < x.d; ++f)
                row[f] = double(x.at(begin + t, f)) * scale - (shift ? shift[f] : 0.0);
            norm2_[std::size_t(t)] = square_sum(row, x.d);
        }
    }
    template <class R, class I>
    void load(const CsrRows<R, I>& x, Size begin, Size count, double scale, const double*,
              const Panels<double>& panels) {
        sparse_ = slots_.load(x, panels, begin, nullptr, count,
                              [&](R value) { return double(value) * scale; });
        norm2_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) {
            const auto row = x.row(begin + t);
            values_.assign(row.value, row.value + row.nonzeros);
            for (double& value : values_) value *= scale;
            norm2_[std::size_t(t)] = square_sum(values_.data(), row.nonzeros);
        }
    }

    template <bool Dense>
    void scores(Size count, const Panels<double>& panels, double* out) const {
        if constexpr (Dense)
            kernels<double>().scores_dense(rows_.data(), count, panels, out);
        else
            kernels<double>().scores_csr(sparse_, count, panels, out);
    }
    // |x|^2 of row t.
    double norm2(Size t) const { return norm2_[std::size_t(t)]; }

private:
    static double square_sum(const double* values, Size n) {
        return kernels<double>().square_sum(values, nullptr, n, 1.0).value();
    }

    std::vector<double> values_, norm2_;
    std::vector<const double*> rows_;
    SlotRows<double> slots_;
    const SlotRow<double>* sparse_ = nullptr;
};

// The points in float64, scaled.
template <class C>
Centroids<double> scaled_centroids(const Points<C>& points, Frame<double> frame,
                                   const Threads& threads) {
    const double scale = points.scale;
    if (points.sparse) {
        std::vector<SparseVector<double>> scaled;
        for (const SparseVector<C>& point : *points.sparse) {
            scaled.push_back({point.feature, {}});
            for (const C value : point.value) scaled.back().value.push_back(double(value) * scale);
        }
        return {std::move(scaled), points.d, std::move(frame), threads};
    }
    std::vector<double> scaled(points.values, points.values + points.k * points.d);
    for (double& value : scaled) value *= scale;
    return {scaled.data(), points.k, points.d, std::move(frame), threads};
}

// out[i * k + j] = |x_i - c_j|, in the data's own units: from float64 scores, and from differences
// where too little of the norms is left. shift, as in the frame, keeps that rare; null for CSR.
template <class Rows>
void transform(const Rows& x, const Points<typename Rows::Real>& points,
               const typename Rows::Real* shift, typename Rows::Real* out, const Threads& threads) {
    const Size k = points.k, d = points.d;
    Frame<double> frame;
    if (shift)
        for (Size f = 0; f < d; ++f) frame.shift.push_back(double(shift[f]) * points.scale);
    const Centroids<double> centroids = scaled_centroids(points, std::move(frame), threads);
    const Panels<double> panels = centroids.panels(is_dense<Rows>, threads);
    std::vector<DoubleRows> buffers(static_cast<std::size_t>(threads.n_jobs));
    std::vector<std::vector<double>> scores(buffers.size());
    threads.ranges(x.n, transform_chunk, [&](Size begin, Size end, int worker) {
        DoubleRows& rows = buffers[std::size_t(worker)];
        std::vector<double>& score = scores[std::size_t(worker)];
        rows.load(x, begin, end - begin, points.scale, centroids.frame().shift_or_null(), panels);
        score.resize(std::size_t((end - begin) * k));
        rows.template scores<is_dense<Rows>>(end - begin, panels, score.data());
        for (Size i = begin; i < end; ++i) {
            const double norm2 = rows.norm2(i - begin);
            for (Size j = 0; j < k; ++j) {
                double d2 = norm2 + 2 * score[std::size_t((i - begin) * k + j)];
                if (d2 < 0x1p-6 * (norm2 + centroids.norm2(j)))
                    d2 = squared_distance(x, i, points, j);
                out[i * k + j] = typename Rows::Real(std::sqrt(d2) / points.scale);
            }
        }
    });
}

}  // namespace exactmeans
