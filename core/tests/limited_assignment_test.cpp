// Assignments within size limits by passes over rows, against one transport problem over all rows.
#include "exactmeans/limits/limited_assignment.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;

namespace {

// Makes labels and prices the optimum for rows in one block. `state` keeps prices from call to
// call.
template <class Rows>
void assign_within_limits(const Rows& x, SharedCentres<typename Rows::Real>& shared,
                          LimitedAssignment& state, std::int32_t* labels, const Threads& threads) {
    state.start();
    do {
        state.begin();
        state.add(0, 0, x, shared, labels, threads);
    } while (!state.solve(threads));
    state.write(0, labels, x.n);
}

// The problem of rows without weights.
LimitedProblem problem_of(Size n, Size k, SizeLimits limits) { return {n, n, k, limits}; }

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
    for (int trial = 0; trial < 14; ++trial) {
        // The last ones are too large for one problem with all options, so that samples come first;
        // prices of samples below 0 are wrong if fixed rows exceed the least size.
        const Size n = trial < 9 ? 50 + trial * 37 : 6000, k = trial < 9 ? 1 + trial % 5 : 20;
        const Sample<R> sample(rng, n, 3, k, ties);
        SharedCentres<R> shared = sample.shared();
        const Size least = trial > 9 ? 0 : n / k - trial % 3 * n / (8 * k);
        const SizeLimits limits{least, (n + k - 1) / k + trial % 4 + (trial > 9 ? n / k : 0)};
        LimitedAssignment state(problem_of(n, k, limits));
        std::vector<std::int32_t> labels(static_cast<std::size_t>(n)), again(labels);
        assign_within_limits(sample.rows(), shared, state, labels.data(), Threads{2});
        std::vector<Size> size(static_cast<std::size_t>(k));
        for (const std::int32_t own : labels) ++size[std::size_t(own)];
        for (std::size_t j = 0; j < size.size(); ++j) {
            CHECK(limits.least <= size[j] && size[j] <= limits.most);
            if (state.prices()[j] > 1e-12) CHECK_EQ(size[j], limits.most);
            if (state.prices()[j] < -1e-12) CHECK_EQ(size[j], limits.least);
        }
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
        // So does one that starts from prices that are far from right.
        std::vector<double> wrong(static_cast<std::size_t>(k));
        for (double& own : wrong) own = double(rng() % 5) / 4 - 0.5;
        LimitedAssignment other(problem_of(n, k, limits));
        other.set_state(wrong, 0.01);
        assign_within_limits(sample.rows(), shared, other, again.data(), Threads{1});
        CHECK(std::abs(first - cost_of(costs, again, k)) <= 1e-9 * std::abs(first) + 1e-12);
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
    const Size n = 6000, k = 20;
    const Sample<double> sample(rng, n, 4, k, true);
    SharedCentres<double> shared = sample.shared();
    std::vector<std::int32_t> expected;
    std::vector<double> prices;
    for (const Size blocks : {1, 2, 7}) {
        LimitedAssignment state(problem_of(n, k, {295, 305}));
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

namespace {

// Centres that move less and less, and the same assignments by a state that knows no bounds.
template <class R>
void check_bounds_change_nothing(bool signs) {
    const Size n = 3000, d = 80, k = 48;
    const Threads threads{2};
    samples::Random random(signs ? 11 : 12);
    const auto value = [&] {
        const double size = random.below(6) ? 0.0 : random.uniform(0.1, 1.0);
        return signs && random.coin() ? -size : size;
    };
    const samples::Matrix<R> x(n, d, value);
    samples::Matrix<R> centres(k, d, value);
    const samples::Csr<R, std::int32_t> csr(x);
    const auto made = [&] {
        return SharedCentres<R>(Centres<R>(centres.values.data(), k, d, Frame<R>{}, threads));
    };
    SharedCentres<R> shared = made();
    const SizeLimits limits{n / k - 8, n / k + 8};
    LimitedAssignment kept(problem_of(n, k, limits));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(n)), expected(labels);
    Size without = 0;
    for (int iteration = 0; iteration < 24; ++iteration) {
        LimitedAssignment fresh(problem_of(n, k, limits));
        fresh.set_state(kept.prices(), kept.reach());
        SharedCentres<R> other = made();
        assign_within_limits(csr.rows(), shared, kept, labels.data(), threads);
        assign_within_limits(csr.rows(), other, fresh, expected.data(), threads);
        CHECK(labels == expected);
        CHECK(kept.prices() == fresh.prices());
        without += fresh.rows_scored();
        // Some centres do not move, as in a fit that converges.
        for (Size j = 0; j < k; ++j)
            for (Size f = 0; f < d && (iteration + j) % 3; ++f)
                if (centres(j, f) != 0)
                    centres(j, f) += R(0.1 * std::pow(0.6, iteration) * random.uniform(-1.0, 1.0));
        kept.moved(shared.centres.move(centres.values.data(), threads));
    }
    CHECK(kept.rows_scored() < without);
}

}  // namespace

TEST(bounds_of_csr_rows_change_nothing) {
    check_bounds_change_nothing<float>(true);
    check_bounds_change_nothing<double>(false);
}

// Fixed rows of a cluster exceed its least size, so that no price below 0 is optimal, though no row
// of it is open.
TEST(prices_below_zero_need_the_least_size) {
    std::vector<double> values;
    for (int i = 0; i < 40; ++i) values.push_back(double(i) / 39);
    for (int i = 0; i < 10; ++i) values.push_back(100 + double(i) / 39);
    const std::vector<double> centres{0, 1, 100};
    const DenseRows<double> x{values.data(), 50, 1, 1};
    SharedCentres<double> shared(Centres<double>(centres.data(), 3, 1, Frame<double>{}, {}));
    LimitedAssignment state(problem_of(50, 3, {0, 30}));
    state.set_state({0, 0, -0.5}, 1e-3);
    std::vector<std::int32_t> labels(50);
    assign_within_limits(x, shared, state, labels.data(), Threads{1});
    for (const double price : state.prices()) CHECK(std::abs(price) <= 1e-12);
}
