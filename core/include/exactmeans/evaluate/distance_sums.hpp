// Sums of the distances of rows to the members of each cluster, for the exact silhouette
// (P. J. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster
// analysis, J. Comput. Appl. Math. 20, 1987).
//
// The caller passes the members a few hundred at a time, as points, so there is no matrix of rows
// by rows. The distances are those of transform. Each sum adds them in the order of the members, so
// it depends neither on the number of threads nor on how the members are cut.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/evaluate/distances.hpp"

namespace exactmeans {

// Distances of row i to all points, from its float64 scores.
template <class Rows, class C>
void distances_by_scores(const Rows& x, Size i, double norm2, const Centres<double>& centroids,
                         const Points<C>& points, const double* score, double* out) {
    Size left = points.k;
    if (points.metric == Metric::euclidean) {
        // distance_by_score without branches, so that the loop vectorises. Pairs whose scores
        // suffer from cancellation are left to the loop below.
        left = 0;
        for (Size j = 0; j < points.k; ++j) {
            const double term = norm2 + 2 * score[j];
            const bool holds = term >= cancellation_limit * (norm2 + centroids.norm2(j)) &&
                               term < std::numeric_limits<double>::infinity();
            out[j] = holds ? std::sqrt(term) / points.scale : -1.0;
            left += !holds;
        }
    } else {
        for (Size j = 0; j < points.k; ++j) out[j] = -1;
    }
    for (Size j = 0; left > 0 && j < points.k; ++j)
        if (out[j] < 0) out[j] = distance_by_score(x, i, norm2, centroids, points, j, score[j]);
}

// Adds the distance of row i and point j to out[i * k + labels[j]], for all i and j.
template <class Rows>
void add_distances(const Rows& x, const Points<typename Rows::Real>& points,
                   const typename Rows::Real* shift, const std::int32_t* labels, Size k,
                   double* out, const Threads& threads) {
    const Centres<double> centroids =
        scaled_centroids(points, distance_frame(points, shift), threads);
    const HeldPanels<double> panels =
        LayoutCache<double>().panels(centroids, is_dense<Rows>, threads);
    struct Buffers {
        DoubleRows rows;
        std::vector<double> score, distance;
    };
    std::vector<Buffers> buffers(static_cast<std::size_t>(threads.n_jobs));
    threads.ranges(x.n, cost::transform_rows_per_task, [&](Size begin, Size end, int worker) {
        auto& [rows, score, distance] = buffers[std::size_t(worker)];
        rows.load(x, begin, end - begin, points.scale, centroids.frame().shift_or_null(), panels);
        score.resize(std::size_t((end - begin) * points.k));
        distance.resize(std::size_t(points.k));
        rows.template scores<is_dense<Rows>>(end - begin, panels,
                                             points.metric == Metric::manhattan, score.data());
        for (Size i = begin; i < end; ++i) {
            distances_by_scores(x, i, rows.norm2(i - begin), centroids, points,
                                score.data() + (i - begin) * points.k, distance.data());
            double* const sums = out + i * k;
            for (Size j = 0; j < points.k; ++j) sums[labels[j]] += distance[std::size_t(j)];
        }
    });
}

}  // namespace exactmeans
