// Assignments within size limits by passes over rows, against one transport problem over all rows.
#include "exactmeans/limits/limited_assignment.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"

using namespace exactmeans;

namespace {

// Canonical scores of dense rows, in float64.
template <class R>
std::vector<double> costs_of(const DenseRows<R>& x, SharedCentres<R>& shared) {
    const Size k = shared.centres.k();
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::vector<double> prices(std::size_t(k), 0.0), costs;
    const PricedRows<DenseRows<R>> rows(x, shared, prices, infinity, false, {});
    PricedScan<DenseRows<R>> scan;
    for (Size i = 0; i < x.n; ++i)
        scan.run(rows, &i, 1, [&](Size, const RowCosts& own) {
            costs.insert(costs.end(), own.cost, own.cost + k);
        });
    return costs;
}

double cost_of(const std::vector<double>& costs, const std::vector<std::int32_t>& labels, Size k) {
    double total = 0;
    for (std::size_t i = 0; i < labels.size(); ++i)
        total += costs[i * std::size_t(k) + std::size_t(labels[i])];
    return total;
}

double least_cost(const std::vector<double>& costs, Size n, Size k, SizeLimits limits) {
    Transport all(std::vector<Size>(std::size_t(k), limits.least),
                  std::vector<Size>(std::size_t(k), limits.most),
                  std::vector<double>(std::size_t(k)));
    std::vector<TransportOption> options;
    for (Size i = 0; i < n; ++i) {
        options.clear();
        for (Size j = 0; j < k; ++j)
            options.push_back({std::int32_t(j), costs[std::size_t(i * k + j)]});
        std::iter_swap(options.begin(), std::min_element(options.begin(), options.end(),
                                                         [](const auto& a, const auto& b) {
                                                             return a.cost < b.cost;
                                                         }));
        all.add(options.data(), k);
    }
    CHECK(all.solve());
    double total = 0;
    for (Size i = 0; i < n; ++i) total += costs[std::size_t(i * k + all.label(i))];
    return total;
}

template <class R>
struct Sample {
    Size n, d, k;
    std::vector<R> values, centres;

    Sample(std::mt19937& rng, Size rows, Size features, Size clusters, bool ties)
        : n(rows), d(features), k(clusters) {
        std::normal_distribution<double> normal;
        const auto value = [&] { return R(ties ? std::round(normal(rng)) : normal(rng)); };
        for (Size v = 0; v < n * d; ++v) values.push_back(value() + R(v / d % 3 == 0 ? 2 : 0));
        for (Size v = 0; v < k * d; ++v) centres.push_back(value());
    }
    DenseRows<R> rows() const { return {values.data(), n, d, d}; }
    SharedCentres<R> shared() const {
        return SharedCentres<R>(Centres<R>(centres.data(), k, d, Frame<R>{}, {}));
    }
};

template <class R>
void check_optimal(bool ties) {
    std::mt19937 rng(7);
    for (int trial = 0; trial < 12; ++trial) {
        // The last ones are too large for one problem with all options, so that samples come first.
        const Size n = trial < 9 ? 50 + trial * 37 : 40000, k = trial < 9 ? 1 + trial % 5 : 40;
        const Sample<R> sample(rng, n, 3, k, ties);
        SharedCentres<R> shared = sample.shared();
        const SizeLimits limits{n / k - trial % 3 * n / (8 * k), (n + k - 1) / k + trial % 4};
        LimitedAssignment state(n, k, limits, false);
        std::vector<std::int32_t> labels(static_cast<std::size_t>(n)), again(labels);
        assign_within_limits(sample.rows(), shared, state, labels.data(), Threads{2});
        std::vector<Size> size(static_cast<std::size_t>(k));
        for (const std::int32_t own : labels) ++size[std::size_t(own)];
        for (const Size own : size) CHECK(limits.least <= own && own <= limits.most);
        const std::vector<double> costs = costs_of(sample.rows(), shared);
        if (n < 1000) {
            const double best = least_cost(costs, n, k, limits);
            CHECK(std::abs(cost_of(costs, labels, k) - best) <= 1e-9 * std::abs(best) + 1e-12);
        }
        // No two rows gain by changing places, and no row by moving to a cluster with room.
        for (Size a = 0; a < std::min<Size>(n, 200); ++a)
            for (Size b = 0; b < a; ++b) {
                const Size la = labels[std::size_t(a)], lb = labels[std::size_t(b)];
                CHECK(costs[std::size_t(a * k + la)] + costs[std::size_t(b * k + lb)] <=
                      costs[std::size_t(a * k + lb)] + costs[std::size_t(b * k + la)] + 1e-9);
            }
        // A second assignment to the same centres, from the prices of the first, costs as much.
        assign_within_limits(sample.rows(), shared, state, again.data(), Threads{1});
        const double first = cost_of(costs, labels, k), second = cost_of(costs, again, k);
        CHECK(std::abs(first - second) <= 1e-9 * std::abs(first) + 1e-12);
    }
}

}  // namespace

TEST(assignments_are_optimal) {
    check_optimal<double>(false);
    check_optimal<float>(false);
}

TEST(assignments_of_ties_are_optimal) {
    check_optimal<double>(true);
    check_optimal<float>(true);
}

TEST(threads_and_blocks_do_not_change_labels) {
    std::mt19937 rng(8);
    const Size n = 30000, k = 50;
    const Sample<double> sample(rng, n, 4, k, true);
    SharedCentres<double> shared = sample.shared();
    std::vector<std::int32_t> expected;
    std::vector<double> prices;
    for (const Size blocks : {1, 2, 7}) {
        LimitedAssignment state(n, k, {590, 610}, false);
        std::vector<std::int32_t> labels(static_cast<std::size_t>(n));
        const auto block = [&](Size b, auto fn) {
            const Size begin = n * b / blocks, end = n * (b + 1) / blocks;
            fn(begin, DenseRows<double>{sample.values.data() + begin * 4, end - begin, 4, 4});
        };
        state.start();
        do {
            state.begin();
            for (Size b = 0; b < blocks; ++b)
                block(b, [&](Size begin, const DenseRows<double>& x) {
                    state.add(b, begin, x, shared, labels.data() + begin, Threads{int(blocks)});
                });
        } while (!state.solve({}));
        for (Size b = 0; b < blocks; ++b)
            block(b, [&](Size begin, const DenseRows<double>& x) {
                state.write(b, labels.data() + begin, x.n);
            });
        if (expected.empty()) {
            expected = labels;
            prices = state.prices();
        }
        CHECK(labels == expected);
        CHECK(prices == state.prices());
    }
}
