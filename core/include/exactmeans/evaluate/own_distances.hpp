// Distances of rows to the points of their labels: for inertia, scatter and farthest rows.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows_by_label.hpp"
#include "exactmeans/evaluate/points.hpp"
#include "exactmeans/numerics/exact_sum.hpp"

namespace exactmeans {

// for_own_distances with sparse points: a thread scatters one point at a time into a dense vector,
// and computes the costs of the rows with that label.
template <class Rows, class C, class Visit>
void for_own_sparse_distances(const Rows& x, const Points<C>& points, const std::int32_t* labels,
                              const Threads& threads, Visit visit) {
    const std::vector<Size> order = labels ? by_label(labels, x.n, points.k) : std::vector<Size>();
    std::vector<std::unique_ptr<SparseAccumulator>> accumulators(
        static_cast<std::size_t>(threads.n_jobs));
    const Size step = std::max<Size>(cost::distance_rows_per_task,
                                     x.n / (cost::short_tasks_per_thread * threads.n_jobs));
    threads.ranges(x.n, step, [&](Size begin, Size end, int worker) {
        std::unique_ptr<SparseAccumulator>& accumulator = accumulators[std::size_t(worker)];
        if (!accumulator) accumulator = std::make_unique<SparseAccumulator>(x.d, 1);
        Size scattered = -1;  // the point in the accumulator
        for (Size at = begin; at < end; ++at) {
            const Size i = labels ? order[std::size_t(at)] : at, own = labels ? labels[i] : 0;
            if (labels) x.prefetch(order[std::size_t(std::min(at + cost::prefetch_rows, end - 1))]);
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
        for (Size i = begin; i < end; ++i) {
            if constexpr (is_dense<Rows>)
                if (x.picks) x.prefetch(std::min(i + cost::picked_rows_ahead, end - 1));
            visit(i, pair_cost(x, i, points, labels ? labels[i] : 0), worker);
        }
    });
}

// The scatter about the mean may be computed as the scatter about 0 minus n |mean|^2 if it is at
// least this share of the first; below, cancellation leaves too few correct bits. Python reads it
// too.
inline constexpr double least_scatter_share = 1e-6;

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

}  // namespace exactmeans
