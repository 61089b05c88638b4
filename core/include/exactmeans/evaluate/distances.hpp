// Distances of rows to all points, from float64 scores where these have enough correct bits.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/evaluate/points.hpp"
#include "exactmeans/kernels/panels.hpp"

namespace exactmeans {

// A distance from a score below this share of its largest term has lost too many bits.
inline constexpr double cancellation_limit = 0x1p-6;

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

// The distance, from a cost (a row's term of the objective): its root if the objective of the
// metric has squares.
inline double distance_of(Metric metric, double cost) {
    return metric == Metric::euclidean || metric == Metric::angular ? std::sqrt(cost) : cost;
}

// The cost of row i, of squared length norm2, at point j, from the score of the pair; -1 if
// cancellation leaves too few correct bits.
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

// out[i * k + j]: the distance between row i and point j. `shift` is the shift of the frame, which
// makes cancellation rare.
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
