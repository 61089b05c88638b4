// The fit of one node: seeds, Lloyd's loop with relocation to empty clusters, and a last assignment
// by the final centres. The steps are those of fit/loop.py and fit/update.py, with the same parts
// of the core.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "exactmeans/assign/registry.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/evaluate/own_distances.hpp"
#include "exactmeans/tree/balance.hpp"
#include "exactmeans/tree/node_problem.hpp"
#include "exactmeans/tree/node_seeds.hpp"
#include "exactmeans/update/means.hpp"

namespace exactmeans {

template <class Rows>
class NodeFit {
public:
    using R = typename Rows::Real;

    // all_features: the features of the whole matrix, of which x may have only some.
    NodeFit(const Rows& x, const NodeTask& task, Size all_features, const SplitOptions& options,
            const Threads& threads)
        : threads_(threads),
          x_(x),
          k_(task.k),
          problem_(x, all_features, options, threads),
          shared_(first_centres(seed_rows(x, task, problem_.cost_exponent(), options, threads))),
          sums_(k_, x.d, problem_.grid, problem_.weight_grid, !is_dense<Rows>),
          update_(k_),
          assigner_(make_assigner<R>("lloyd", x.n, k_)),
          summed_(static_cast<std::size_t>(x.n), -1) {
        if (options.balanced) balanced_.emplace(x.n, k_);
    }

    // Labels every row and returns the centres. `labels`: n of them.
    NodeSplit<R> run(Size max_iter, std::int32_t* labels) {
        std::fill(labels, labels + x_.n, -1);
        NodeSplit<R> out;
        Size changed = 0;
        bool moved = false;
        while (out.iterations < max_iter && !out.converged) {
            ++out.iterations;
            changed = assign(labels);
            if (2 * changed >= x_.n) {
                sums_.reset();
                std::fill(summed_.begin(), summed_.end(), -1);
            }
            sums_.relabel(x_, labels, summed_.data(), threads_);
            const Movement movement = update(labels);
            assigner_->moved(movement);
            moved = movement.moved;
            out.converged = changed == 0 || movement.shift2 <= problem_.tolerance;
        }
        if (changed || moved) assign(labels);
        if (balanced_) out.price = balanced_->finish(labels);
        out.frame = problem_.frame;
        finish(labels, out);
        return out;
    }

private:
    struct Relocated {
        Size row, from, to;
    };

    Size assign(std::int32_t* labels) {
        if (balanced_) return balanced_->assign(x_, shared_, labels, threads_);
        return assigner_->assign(AnyRows(x_), shared_, labels, threads_).changed;
    }

    SharedCentres<R> first_centres(const std::vector<Size>& rows) const {
        if constexpr (is_dense<Rows>) {
            std::vector<R> values(static_cast<std::size_t>(k_ * x_.d));
            for (Size j = 0; j < k_; ++j)
                as_centre(x_, rows[std::size_t(j)], values.data() + j * x_.d);
            return SharedCentres<R>(Centres<R>(values.data(), k_, x_.d, problem_.frame, threads_));
        } else {
            std::vector<SparseVector<R>> centres;
            for (const Size i : rows) centres.push_back(as_centre(x_, i));
            return SharedCentres<R>(Centres<R>(std::move(centres), x_.d, problem_.frame, threads_));
        }
    }

    // Moves the centres to the means of their clusters. Rows are relocated to empty clusters in the
    // sums only, which are exact: moving the rows back restores every bit.
    Movement update(const std::int32_t* labels) {
        std::vector<Relocated> relocated;
        if (sums_.any_empty()) relocated = rows_to_relocate(labels);
        for (const Relocated& move : relocated) {
            sums_.move(x_, move.row, move.from, -1.0);
            sums_.move(x_, move.row, move.to, 1.0);
        }
        const Movement movement =
            update_.run(sums_, shared_.centres, problem_.origin.data(), threads_);
        for (const Relocated& move : relocated) {
            sums_.move(x_, move.row, move.to, -1.0);
            sums_.move(x_, move.row, move.from, 1.0);
        }
        return movement;
    }

    // A far row for each empty cluster: the rows with the largest distance to their centre, except
    // the last row of a cluster, rows equal to one already taken, and rows without weight.
    std::vector<Relocated> rows_to_relocate(const std::int32_t* labels) const {
        std::vector<double> distance(static_cast<std::size_t>(x_.n));
        with_points([&](const auto& points) {
            for_own_distances(x_, points, labels, threads_,
                              [&](Size i, double d2, int) { distance[std::size_t(i)] = d2; });
        });
        std::vector<Size> order(distance.size());
        std::iota(order.begin(), order.end(), Size(0));
        std::erase_if(order,
                      [&](Size i) { return !(distance[std::size_t(i)] > 0 && x_.weight(i) > 0); });
        std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) {
            return distance[std::size_t(a)] > distance[std::size_t(b)];
        });
        std::vector<Size> members = sums_.members();
        std::vector<Relocated> out;
        auto far = order.begin();
        for (Size empty = 0; empty < k_; ++empty) {
            if (sums_.members()[std::size_t(empty)]) continue;
            far = std::find_if(far, order.end(), [&](Size i) {
                return members[std::size_t(labels[i])] > 1 &&
                       std::none_of(out.begin(), out.end(), [&](const Relocated& before) {
                           return same_row(x_, before.row, i);
                       });
            });
            if (far == order.end()) break;
            --members[std::size_t(labels[*far])];
            out.push_back({*far, labels[*far], empty});
            ++far;
        }
        return out;
    }
    static bool same_row(const Rows& x, Size a, Size b) {
        if constexpr (is_dense<Rows>) {
            return std::equal(x.row(a), x.row(a) + x.d, x.row(b));
        } else {
            const auto left = x.row(a), right = x.row(b);
            return left.nonzeros == right.nonzeros &&
                   std::equal(left.index, left.index + left.nonzeros, right.index) &&
                   std::equal(left.value, left.value + left.nonzeros, right.value);
        }
    }

    // fn(points) with the centres in the units of the data.
    template <class Fn>
    void with_points(Fn fn) const {
        const Centres<R>& centres = shared_.centres;
        const Metric metric = problem_.frame.metric;
        const int exponent = problem_.cost_exponent();
        if (centres.sparse())
            fn(Points<R>(centres.sparse_master(), x_.d, exponent, metric));
        else
            fn(Points<R>(centres.master(), k_, x_.d, exponent, metric));
    }

    // Leaves out children without rows, and computes the inertia of the others.
    void finish(std::int32_t* labels, NodeSplit<R>& out) const {
        std::vector<std::int32_t> child(static_cast<std::size_t>(k_), -1);
        for (Size i = 0; i < x_.n; ++i) child[std::size_t(labels[i])] = 0;
        for (Size j = 0; j < k_; ++j) {
            if (child[std::size_t(j)] < 0) continue;
            child[std::size_t(j)] = std::int32_t(out.children++);
            if (!out.price.empty())
                out.price[std::size_t(child[std::size_t(j)])] = out.price[std::size_t(j)];
            if constexpr (is_dense<Rows>)
                out.centres.insert(out.centres.end(), shared_.centres.master(j),
                                   shared_.centres.master(j) + x_.d);
            else
                out.sparse_centres.push_back(shared_.centres.sparse_master(j));
        }
        if (!out.price.empty()) out.price.resize(std::size_t(out.children));
        // One sum per child and worker, because rows come in any order.
        std::vector<std::vector<ExactSum>> cost(
            std::size_t(std::min<Size>(threads_.n_jobs, x_.n / cost::distance_rows_per_task + 1)));
        for (auto& own : cost) own.resize(std::size_t(out.children));
        with_points([&](const auto& points) {
            for_own_distances(x_, points, labels, threads_, [&](Size i, double d2, int worker) {
                const auto j = std::size_t(child[std::size_t(labels[i])]);
                if (x_.weight(i) > 0) cost[std::size_t(worker)][j].add(x_.weight(i) * d2);
            });
        });
        for (std::size_t j = 0; j < std::size_t(out.children); ++j) {
            for (std::size_t w = 1; w < cost.size(); ++w) cost[0][j].add(cost[w][j]);
            out.inertia.push_back(std::ldexp(cost[0][j].value(), -2 * problem_.cost_exponent()));
        }
        for (Size i = 0; i < x_.n; ++i) labels[i] = child[std::size_t(labels[i])];
    }

    const Threads& threads_;
    const Rows& x_;
    Size k_;
    NodeProblem<Rows> problem_;
    SharedCentres<R> shared_;
    Sums sums_;
    CentreUpdate<R> update_;
    std::unique_ptr<Assigner<R>> assigner_;
    std::vector<std::int32_t> summed_;  // the labels that the sums contain
    std::optional<BalancedAssignment<Rows>> balanced_;
};

}  // namespace exactmeans
