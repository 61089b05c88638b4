// Assignments within size limits, against all assignments of small problems.
#include "exactmeans/limits/transport.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"

using namespace exactmeans;

namespace {

struct Problem {
    Size n, k;
    std::vector<double> cost;  // n x k
    std::vector<Size> least, most;
    double at(Size i, Size j) const { return cost[std::size_t(i * k + j)]; }
};

// The least cost of all assignments within the limits, infinite if there is none.
double least_cost(const Problem& p) {
    double best = std::numeric_limits<double>::infinity();
    std::vector<Size> label(static_cast<std::size_t>(p.n));
    for (;;) {
        std::vector<Size> size(static_cast<std::size_t>(p.k));
        double cost = 0;
        for (Size i = 0; i < p.n; ++i) {
            ++size[std::size_t(label[std::size_t(i)])];
            cost += p.at(i, label[std::size_t(i)]);
        }
        bool fits = true;
        for (std::size_t j = 0; j < size.size(); ++j)
            fits = fits && p.least[j] <= size[j] && size[j] <= p.most[j];
        if (fits) best = std::min(best, cost);
        Size i = 0;
        while (i < p.n && ++label[std::size_t(i)] == p.k) label[std::size_t(i++)] = 0;
        if (i == p.n) return best;
    }
}

// All rows with all options, at starting prices.
Transport transport(const Problem& p, const std::vector<double>& price) {
    Transport result(p.least, p.most, price);
    for (Size i = 0; i < p.n; ++i) {
        std::vector<TransportOption> options;
        for (Size j = 0; j < p.k; ++j)
            options.push_back({std::int32_t(j), p.at(i, j) + price[std::size_t(j)]});
        std::iter_swap(options.begin(),
                       std::min_element(options.begin(), options.end(),
                                        [](const TransportOption& a, const TransportOption& b) {
                                            return a.cost < b.cost;
                                        }));
        result.add(options.data(), p.k);
    }
    return result;
}

// Labels are optimal: their cost is the least, sizes fit, and prices certify both.
void check_solution(const Problem& p, const Transport& solved) {
    double cost = 0;
    std::vector<Size> size(static_cast<std::size_t>(p.k));
    for (Size i = 0; i < p.n; ++i) {
        const Size own = solved.label(i);
        cost += p.at(i, own);
        ++size[std::size_t(own)];
        for (Size j = 0; j < p.k; ++j)
            CHECK(p.at(i, own) + solved.price(own) <= p.at(i, j) + solved.price(j) + 1e-12);
    }
    for (Size j = 0; j < p.k; ++j) {
        const Size own = size[std::size_t(j)];
        CHECK(p.least[std::size_t(j)] <= own && own <= p.most[std::size_t(j)]);
        if (solved.price(j) > 1e-12) CHECK(own == p.most[std::size_t(j)]);
        if (solved.price(j) < -1e-12) CHECK(own == p.least[std::size_t(j)]);
    }
    CHECK(std::abs(cost - least_cost(p)) <= 1e-12 * std::max(1.0, std::abs(cost)));
}

Problem random_problem(std::mt19937& rng, bool ties) {
    const Size n = 1 + Size(rng() % 7), k = 1 + Size(rng() % 3);
    Problem p{n, k, {}, {}, {}};
    for (Size at = 0; at < n * k; ++at)
        p.cost.push_back(ties ? double(rng() % 3) : std::uniform_real_distribution()(rng));
    for (Size j = 0; j < k; ++j) {
        p.least.push_back(Size(rng() % std::size_t(n / k + 1)));
        p.most.push_back(std::max(p.least.back(), (n + k - 1) / k + Size(rng() % 3)));
    }
    return p;
}

}  // namespace

TEST(small_problems_are_solved_exactly) {
    std::mt19937 rng(1);
    for (int trial = 0; trial < 400; ++trial) {
        const Problem p = random_problem(rng, trial % 2);
        Transport solved = transport(p, std::vector<double>(std::size_t(p.k)));
        CHECK(solved.solve());
        check_solution(p, solved);
    }
}

// Prices of another problem are a valid start, whatever they demand of the sizes.
TEST(any_starting_prices_lead_to_the_optimum) {
    std::mt19937 rng(2);
    for (int trial = 0; trial < 400; ++trial) {
        const Problem p = random_problem(rng, trial % 2);
        std::vector<double> price(static_cast<std::size_t>(p.k));
        for (double& own : price) own = double(rng() % 5) / 4 - 0.5;
        Transport solved = transport(p, price);
        CHECK(solved.solve());
        check_solution(p, solved);
    }
}

TEST(rows_without_other_options_stay) {
    Transport stuck({0, 0}, {1, 2}, {0, 0});
    const TransportOption only{0, 1.0};
    stuck.add(&only, 1);
    stuck.add(&only, 1);
    CHECK(!stuck.solve());  // both rows are in cluster 0, which may have one
}

TEST(impossible_limits_have_no_solution) {
    Transport full({0, 0}, {1, 0}, {0, 0});
    const TransportOption options[] = {{0, 1.0}, {1, 2.0}};
    full.add(options, 2);
    full.add(options, 2);
    CHECK(!full.solve());
}

// A cluster that costs more than price_range() above the first option can be left out.
TEST(dear_options_may_be_left_out) {
    std::mt19937 rng(3);
    int shortened = 0;
    for (int trial = 0; trial < 200; ++trial) {
        const Problem p = random_problem(rng, false);
        for (const double range : {0.1, 0.3, 1.0}) {
            Transport some(p.least, p.most, std::vector<double>(std::size_t(p.k)));
            for (Size i = 0; i < p.n; ++i) {
                std::vector<TransportOption> options;
                Size own = 0;
                for (Size j = 1; j < p.k; ++j)
                    if (p.at(i, j) < p.at(i, own)) own = j;
                options.push_back({std::int32_t(own), p.at(i, own)});
                for (Size j = 0; j < p.k; ++j)
                    if (j != own && p.at(i, j) <= p.at(i, own) + range)
                        options.push_back({std::int32_t(j), p.at(i, j)});
                shortened += Size(options.size()) < p.k;
                some.add(options.data(), Size(options.size()));
            }
            if (!some.solve() || some.price_range() > range) continue;
            check_solution(p, some);
        }
    }
    CHECK(shortened > 0);
}

// Masses split rows in the linear program. Prices certify its optimum, and rounding moves sizes by
// less than the largest mass.
TEST(masses_are_kept_up_to_one_row) {
    std::mt19937 rng(5);
    for (int trial = 0; trial < 400; ++trial) {
        const Size n = 1 + Size(rng() % 40), k = 1 + Size(rng() % 6);
        const bool ties = trial % 2;
        std::vector<Size> mass;
        Size total = 0, largest = 0;
        for (Size i = 0; i < n; ++i) {
            mass.push_back(Size(rng() % 4 ? rng() % 10 : rng() % 200));
            total += mass.back();
            largest = std::max(largest, mass.back());
        }
        const Size least = total / k - Size(rng() % 3),
                   most = (total + k - 1) / k + Size(rng() % 9);
        Transport solved(std::vector<Size>(std::size_t(k), std::max<Size>(0, least)),
                         std::vector<Size>(std::size_t(k), most),
                         std::vector<double>(std::size_t(k)));
        std::vector<double> costs;
        for (Size i = 0; i < n; ++i) {
            std::vector<TransportOption> options;
            for (Size j = 0; j < k; ++j) {
                costs.push_back(ties ? double(rng() % 3) : std::uniform_real_distribution()(rng));
                options.push_back({std::int32_t(j), costs.back()});
            }
            std::iter_swap(options.begin(),
                           std::min_element(options.begin(), options.end(),
                                            [](const TransportOption& a, const TransportOption& b) {
                                                return a.cost < b.cost;
                                            }));
            solved.add(options.data(), k, mass[std::size_t(i)]);
        }
        CHECK(solved.solve());
        solved.round_split_rows();
        std::vector<Size> size(static_cast<std::size_t>(k));
        for (Size i = 0; i < n; ++i) {
            const Size own = solved.label(i);
            CHECK(own >= 0);
            size[std::size_t(own)] += mass[std::size_t(i)];
            for (Size j = 0; j < k && mass[std::size_t(i)] > 0; ++j)
                CHECK(costs[std::size_t(i * k + own)] + solved.price(own) <=
                      costs[std::size_t(i * k + j)] + solved.price(j) + 1e-12);
        }
        for (Size j = 0; j < k; ++j) {
            const Size own = size[std::size_t(j)];
            CHECK(largest == 0 || (own > least - largest && own < most + largest));
            if (solved.price(j) > 1e-12) CHECK(own > most - largest);
            if (solved.price(j) < -1e-12) CHECK(own < std::max<Size>(0, least) + largest);
        }
    }
}

// Parts that form cycles, as those of equal rows do.
TEST(split_rows_are_rounded_within_one_row) {
    std::mt19937 rng(6);
    for (int trial = 0; trial < 300; ++trial) {
        const Size k = 2 + Size(rng() % 7);
        std::vector<SplitRow> rows(rng() % 30);
        std::vector<Size> before(static_cast<std::size_t>(k)), after(before);
        Size largest = 0;
        for (SplitRow& row : rows) {
            for (Size j = 0; j < k; ++j)
                if (rng() % 2) row.parts.push_back({std::int32_t(j), 1 + Size(rng() % 50)});
            if (row.parts.empty()) row.parts.push_back({0, 7});
            row.mass = 0;
            for (const RowPart& part : row.parts) {
                row.mass += part.mass;
                before[std::size_t(part.cluster)] += part.mass;
            }
            largest = std::max(largest, row.mass);
        }
        const std::vector<std::int32_t> chosen = rounded_clusters(rows, k);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            after[std::size_t(chosen[r])] += rows[r].mass;
            CHECK(std::any_of(rows[r].parts.begin(), rows[r].parts.end(),
                              [&](const RowPart& part) { return part.cluster == chosen[r]; }));
        }
        for (std::size_t j = 0; j < before.size(); ++j)
            CHECK(rows.empty() || std::abs(after[j] - before[j]) < largest);
    }
}
