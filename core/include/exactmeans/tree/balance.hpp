// Assignment of the rows of a node to children of equal size, floor(n / k) or ceil(n / k) rows, at
// the least cost, and prices that reproduce it: every row is in the child with the lowest cost plus
// price. For two children, the rows are split at the median of the difference of their costs (as
// PECOS does); more are balanced by transport (limits/transport.hpp).
//
// Memory: 8 bytes per row and child, and for more than two children 48 more.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/limits/transport.hpp"
#include "exactmeans/scan/all_scores.hpp"
#include "exactmeans/tree/child_cost.hpp"

namespace exactmeans {

// The lowest cost plus price; the lowest child on ties.
inline std::int32_t cheapest(const double* cost, const double* price, Size k) {
    Size best = 0;
    for (Size j = 1; j < k; ++j)
        if (cost[j] + price[j] < cost[best] + price[best]) best = j;
    return std::int32_t(best);
}

template <class Rows>
class BalancedAssignment {
public:
    using R = typename Rows::Real;

    BalancedAssignment(Size n, Size k)
        : n_(n),
          k_(k),
          cost_(static_cast<std::size_t>(n * k)),
          price_(static_cast<std::size_t>(k)) {}

    // Labels all rows; returns how many labels changed.
    Size assign(const Rows& x, SharedCentres<R>& shared, std::int32_t* labels,
                const Threads& threads) {
        find_costs(x, shared, threads);
        const std::vector<std::int32_t> before(labels, labels + n_);
        if (k_ == 2)
            split_in_two(labels);
        else
            transport(labels);
        Size changed = 0;
        for (Size i = 0; i < n_; ++i) changed += labels[i] != before[std::size_t(i)];
        return changed;
    }

    // Prices that keep all rows off the borders between children, if such prices exist, and the
    // labels that they give. These differ from the balanced labels only for rows with equal costs,
    // which all go to one child.
    const std::vector<double>& finish(std::int32_t* labels) {
        set_inner_prices(labels);
        for (Size i = 0; i < n_; ++i) labels[i] = cheapest(costs(i), price_.data(), k_);
        return price_;
    }

private:
    const double* costs(Size i) const { return cost_.data() + i * k_; }

    void find_costs(const Rows& x, SharedCentres<R>& shared, const Threads& threads) {
        const HeldPanels<R> panels = shared.layouts.panels(shared.centres, is_dense<Rows>, threads);
        std::vector<AllScores<Rows>> scores(static_cast<std::size_t>(threads.n_jobs));
        const Frame<R>& frame = shared.centres.frame();
        threads.ranges(n_, cost::node_tile_rows, [&](Size begin, Size end, int worker) {
            AllScores<Rows>& own = scores[std::size_t(worker)];
            own.run(x, shared.centres, panels, begin, nullptr, end - begin);
            for (Size i = begin; i < end; ++i)
                for (Size j = 0; j < k_; ++j)
                    cost_[std::size_t(i * k_ + j)] =
                        child_cost(x, i, frame, own.of_row(i - begin)[j]);
        });
    }

    // Half of the rows go to child 0: those with the lowest cost there minus cost at child 1.
    void split_in_two(std::int32_t* labels) const {
        std::vector<std::pair<double, Size>> rise(static_cast<std::size_t>(n_));
        for (Size i = 0; i < n_; ++i) rise[std::size_t(i)] = {costs(i)[0] - costs(i)[1], i};
        Size first = n_ / 2;  // rows of child 0
        const auto middle = rise.begin() + first;
        std::nth_element(rise.begin(), middle, rise.end());
        if (n_ % 2 && middle->first < 0) ++first;
        for (Size t = 0; t < n_; ++t) labels[rise[std::size_t(t)].second] = t >= first;
    }

    // A row's options are the children that cost at most `reach` more than its cheapest one: it can
    // go to others only if prices change by more than that, and then the problem is solved again
    // with a wider reach. Prices change little after the first assignments.
    void transport(std::int32_t* labels) {
        for (double reach = reach_;;
             reach = reach > 0 ? cost::balance_widening * reach : infinite) {
            Transport solver(std::vector<Size>(std::size_t(k_), n_ / k_),
                             std::vector<Size>(std::size_t(k_), (n_ + k_ - 1) / k_), price_);
            add_options(solver, reach);
            if (!solver.solve(reach, [] {})) continue;
            for (Size i = 0; i < n_; ++i) labels[i] = solver.label(i);
            for (Size j = 0; j < k_; ++j) price_[std::size_t(j)] = solver.price(j);
            reach_ = 2 * solver.price_range();
            return;
        }
    }
    void add_options(Transport& solver, double reach) const {
        std::vector<TransportOption> options(static_cast<std::size_t>(k_));
        std::vector<double> cost(static_cast<std::size_t>(k_));
        for (Size i = 0; i < n_; ++i) {
            Size best = 0, count = 1;
            for (Size j = 0; j < k_; ++j) {
                cost[std::size_t(j)] = costs(i)[j] + price_[std::size_t(j)];
                if (cost[std::size_t(j)] < cost[std::size_t(best)]) best = j;
            }
            options[0] = {std::int32_t(best), cost[std::size_t(best)]};
            for (Size j = 0; j < k_; ++j)
                if (j != best && cost[std::size_t(j)] - options[0].cost <= reach)
                    options[std::size_t(count++)] = {std::int32_t(j), cost[std::size_t(j)]};
            solver.add(options.data(), count);
        }
    }

    // Rows of child a stay there while price[a] - price[b] is below the least rise of their costs
    // from a to b. The largest slack that all these constraints allow is the least mean of a cycle
    // of rises (R. M. Karp, 1978). Takes half of it; shortest paths give the prices.
    void set_inner_prices(const std::int32_t* labels) {
        std::vector<double> rise(static_cast<std::size_t>(k_ * k_), infinite);
        for (Size i = 0; i < n_; ++i)
            for (Size b = 0, a = labels[i]; b < k_; ++b) {
                double& least = rise[std::size_t(a * k_ + b)];
                if (a != b) least = std::min(least, costs(i)[b] - costs(i)[a]);
            }
        const double slack = std::max(0.0, least_cycle_mean(rise) / 2);
        std::fill(price_.begin(), price_.end(), 0.0);
        bool falls = true;
        for (Size round = 0; falls && round < k_; ++round) {
            falls = false;
            for (Size a = 0; a < k_; ++a)
                for (Size b = 0; b < k_; ++b) {
                    const double most =
                        price_[std::size_t(b)] + rise[std::size_t(a * k_ + b)] - slack;
                    if (most < price_[std::size_t(a)]) price_[std::size_t(a)] = most, falls = true;
                }
        }
    }
    // Karp's recursion: the least over ends of the largest (path of k arcs - path of m arcs) / (k -
    // m).
    double least_cycle_mean(const std::vector<double>& rise) const {
        std::vector<std::vector<double>> path(1, std::vector<double>(std::size_t(k_), 0.0));
        for (Size arcs = 1; arcs <= k_; ++arcs) {
            path.emplace_back(std::size_t(k_), infinite);
            for (Size a = 0; a < k_; ++a)
                for (Size b = 0; b < k_; ++b)
                    path[std::size_t(arcs)][std::size_t(b)] =
                        std::min(path[std::size_t(arcs)][std::size_t(b)],
                                 path[std::size_t(arcs) - 1][std::size_t(a)] +
                                     rise[std::size_t(a * k_ + b)]);
        }
        double least = infinite;
        for (std::size_t end = 0; end < std::size_t(k_); ++end) {
            double most = -infinite;
            for (Size arcs = 0; arcs < k_; ++arcs)
                most = std::max(
                    most, (path.back()[end] - path[std::size_t(arcs)][end]) / double(k_ - arcs));
            least = std::min(least, most);
        }
        return std::isfinite(least) ? least : 0.0;
    }

    static constexpr double infinite = std::numeric_limits<double>::infinity();

    Size n_, k_;
    std::vector<double> cost_;  // n x k
    std::vector<double> price_;
    double reach_ = infinite;  // of the next transport
};

}  // namespace exactmeans
