// Distances in compensated float64, computed from the data: inertia, scatter, farthest rows,
// transform. Scores decide labels, distances do not; so distances are as accurate as float64 allows
// instead of canonical.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/rows_by_label.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/panels.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/numerics/compensated.hpp"
#include "exactmeans/numerics/exact_sum.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"

namespace exactmeans {

// Below this share of its largest term, a distance from a score has lost too many bits.
inline constexpr double cancellation_limit = 0x1p-6;

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

// for_own_distances with sparse points: a thread scatters one point at a time into a dense vector,
// and computes the costs of the rows with that label.
template <class Rows, class C, class Visit>
void for_own_sparse_distances(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                              const Threads& threads, Visit visit) {
    const std::vector<Size> order = labels ? by_label(labels, x.n, points.k) : std::vector<Size>();
    std::vector<std::unique_ptr<SparseAccumulator>> accumulators(
        static_cast<std::size_t>(threads.n_jobs));
    const Size step = std::max<Size>(cost::distance_rows_per_task, x.n / (16 * threads.n_jobs));
    threads.ranges(x.n, step, [&](Size begin, Size end, int worker) {
        std::unique_ptr<SparseAccumulator>& accumulator = accumulators[std::size_t(worker)];
        if (!accumulator) accumulator = std::make_unique<SparseAccumulator>(x.d, 1);
        Size scattered = -1;  // the point in the accumulator
        for (Size at = begin; at < end; ++at) {
            const Size i = labels ? order[std::size_t(at)] : at, own = labels ? labels[i] : 0;
            if (labels) x.prefetch(order[std::size_t(std::min(at + prefetch_rows, end - 1))]);
            if (own != scattered) {
                accumulator->drain([](Size, const double*) {});
                const SparseVector<C>& point = (*points.sparse)[std::size_t(own)];
                for (std::size_t t = 0; t < point.feature.size(); ++t)
                    *accumulator->at(point.feature[t]) = double(point.value[t]);
                scattered = own;
            }
            visit(i, pair_cost(x, i, points, own, [&](Size f) { return *accumulator->peek(f); }),
                  worker);
        }
        accumulator->drain([](Size, const double*) {});
    });
}

// Calls visit(i, cost of row i at the point of its label, worker) for every row; null `labels`: all
// are 0.
template <class Rows, class C, class Visit>
void for_own_distances(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                       const Threads& threads, Visit visit) {
    if constexpr (!is_dense<Rows>)
        if (points.sparse) return for_own_sparse_distances(x, points, labels, threads, visit);
    threads.ranges(x.n, cost::distance_rows_per_task, [&](Size begin, Size end, int worker) {
        for (Size i = begin; i < end; ++i)
            visit(i, pair_cost(x, i, points, labels ? labels[i] : 0), worker);
    });
}

// Exact sums over rows of the cost, with and without weights.
struct Scatter {
    ExactSum weighted, plain;
};

template <class Rows, class C>
Scatter scatter(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                const Threads& threads) {
    const Size workers = std::min<Size>(threads.n_jobs, x.n / cost::distance_rows_per_task + 1);
    std::vector<Scatter> parts(static_cast<std::size_t>(workers));
    for_own_distances(x, points, labels, threads, [&](Size i, double d2, int worker) {
        Scatter& part = parts[std::size_t(worker)];
        part.plain.add(d2);
        if (x.weights && x.weights[i] > 0) part.weighted.add(x.weights[i] * d2);
    });
    Scatter& all = parts.front();
    for (std::size_t p = 1; p < parts.size(); ++p) {
        all.plain.add(parts[p].plain);
        if (x.weights) all.weighted.add(parts[p].weighted);
    }
    if (!x.weights) all.weighted = all.plain;
    return all;
}

// A buffer of rows in float64, scaled and shifted, for the kernels of transform.
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
            const R* const from = x.row(begin + t);
            if (x.col_stride == 1)
                for (Size f = 0; f < x.d; ++f) row[f] = double(from[f]) * scale;
            else
                for (Size f = 0; f < x.d; ++f) row[f] = double(from[f * x.col_stride]) * scale;
            for (Size f = 0; shift && f < x.d; ++f) row[f] -= shift[f];
            norm2_[std::size_t(t)] = square_sum(row, x.d);
        }
    }
    template <class R, class I>
    void load(const CsrRows<R, I>& x, Size begin, Size count, double scale, const double*,
              const Panels<double>& panels) {
        sparse_ = packed_rows_.load(x, panels, begin, nullptr, count,
                                    [&](R value) { return double(value) * scale; });
        measure(x, begin, count, scale);
    }
    // Computes norms alone.
    template <class R, class I>
    void measure(const CsrRows<R, I>& x, Size begin, Size count, double scale) {
        norm2_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) {
            const auto row = x.row(begin + t);
            values_.assign(row.value, row.value + row.nonzeros);
            for (double& value : values_) value *= scale;
            norm2_[std::size_t(t)] = square_sum(values_.data(), row.nonzeros);
        }
    }

    template <bool Dense>
    void scores(Size count, const Panels<double>& panels, bool l1, double* out) const {
        const ScoreKernels<double>& by = score_kernels<double>();
        if constexpr (Dense)
            (l1 ? by.scores_dense_l1 : by.scores_dense)(rows_.data(), count, panels, out);
        else
            (l1 ? by.scores_csr_l1 : by.scores_csr)(sparse_, count, panels, out);
    }
    // The values of dense row t.
    const double* row(Size t) const { return rows_[std::size_t(t)]; }
    // |x|^2 of row t.
    double norm2(Size t) const { return norm2_[std::size_t(t)]; }

private:
    static double square_sum(const double* values, Size n) {
        return vector_kernels<double>().square_sum(values, nullptr, n, 1.0).value();
    }

    std::vector<double> values_, norm2_;
    std::vector<const double*> rows_;
    PackedCsrRows<double> packed_rows_;
    const PackedCsrRow<double>* sparse_ = nullptr;
};

// The points in float64, scaled.
template <class C>
Centres<double> scaled_centroids(const Points<C>& points, Frame<double> frame,
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

// The distance from a term of the objective: its root if the metric's objective has squares.
inline double distance_of(Metric metric, double cost) {
    return metric == Metric::euclidean || metric == Metric::angular ? std::sqrt(cost) : cost;
}

// The cost of row i, of squared length norm2, at point j from its score; -1 if cancellation leaves
// too few correct bits.
template <class Rows>
double cost_by_score(const Rows& x, Size i, double norm2, const Centres<double>& centroids, Size j,
                     double score) {
    const auto enough = [](double value, double of) {
        return value < cancellation_limit * of ? -1.0 : value;
    };
    const Metric metric = centroids.frame().metric;
    if (metric == Metric::euclidean) return enough(norm2 + 2 * score, norm2 + centroids.norm2(j));
    if (metric == Metric::manhattan)
        return is_dense<Rows> ? score : enough(score, double(centroids.score_offset()[j]));
    if (!(x.norms[i] > 0)) return -1;
    const double apart = 1 + score / x.norms[i] / std::sqrt(centroids.norm2(j));
    if (metric == Metric::cosine || apart < cancellation_limit) return enough(apart, 1);
    return angle_of(apart) * angle_of(apart);
}

// The distance of row i and point j in the units of the data, from the float64 score of the pair,
// or by pair_cost() where the score suffers from cancellation.
template <class Rows, class C>
double distance_by_score(const Rows& x, Size i, double norm2, const Centres<double>& centroids,
                         const Points<C>& points, Size j, double score) {
    double term = cost_by_score(x, i, norm2, centroids, j, score);
    if (!(term >= 0 && std::isfinite(term))) term = pair_cost(x, i, points, j);
    if (points.metric == Metric::euclidean && !std::isfinite(term))
        return far_distance(x, i, points, j);
    return distance_of(points.metric, term) / points.scale;
}

// The frame of the scores that distances come from. `shift` is null for CSR rows.
template <class C>
Frame<double> distance_frame(const Points<C>& points, const C* shift) {
    Frame<double> frame;
    frame.metric = points.metric;
    if (shift)
        for (Size f = 0; f < points.d; ++f) frame.shift.push_back(double(shift[f]) * points.scale);
    return frame;
}

// out[i * k + j]: the distance of row i and point j. The shift, that of the frame, makes
// cancellation rare.
template <class Rows>
void transform(const Rows& x, const Points<typename Rows::Real>& points,
               const typename Rows::Real* shift, typename Rows::Real* out, const Threads& threads) {
    const Size k = points.k;
    const Centres<double> centroids =
        scaled_centroids(points, distance_frame(points, shift), threads);
    const HeldPanels<double> panels =
        LayoutCache<double>().panels(centroids, is_dense<Rows>, threads);
    std::vector<DoubleRows> buffers(static_cast<std::size_t>(threads.n_jobs));
    std::vector<std::vector<double>> scores(buffers.size());
    threads.ranges(x.n, cost::transform_rows_per_task, [&](Size begin, Size end, int worker) {
        DoubleRows& rows = buffers[std::size_t(worker)];
        std::vector<double>& score = scores[std::size_t(worker)];
        rows.load(x, begin, end - begin, points.scale, centroids.frame().shift_or_null(), panels);
        score.resize(std::size_t((end - begin) * k));
        rows.template scores<is_dense<Rows>>(end - begin, panels,
                                             points.metric == Metric::manhattan, score.data());
        for (Size i = begin; i < end; ++i)
            for (Size j = 0; j < k; ++j)
                out[i * k + j] = typename Rows::Real(
                    distance_by_score(x, i, rows.norm2(i - begin), centroids, points, j,
                                      score[std::size_t((i - begin) * k + j)]));
    });
}

}  // namespace exactmeans
