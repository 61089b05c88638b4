// The draws of NumPy's RandomState(seed): a Mersenne Twister (M. Matsumoto, T. Nishimura, 1998) of
// 32 bits, two words per uniform number. Fits inside the core draw the same rows as fits in Python.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"

namespace exactmeans {

class RandomState {
public:
    explicit RandomState(std::uint32_t seed) : twister_(seed) {}

    // Uniform in [0, 1), with 53 random bits.
    double sample() {
        const auto high = double(twister_() >> 5), low = double(twister_() >> 6);
        return (high * 67108864.0 + low) / 9007199254740992.0;
    }

private:
    std::mt19937 twister_;
};

// The draw of RandomState.choice(n, p=...) without its array of probabilities: the first row at
// which the cumulative probability (1 / n or weight / total per row) exceeds `place`, a number in
// [0, 1).
inline Size row_at(double place, Size n, const double* weight, double total,
                   const Threads& threads) {
    constexpr Size piece = cost::numbers_per_poll;
    const auto probability = [&](Size i) { return weight ? weight[i] / total : 1.0 / double(n); };
    // Cumulative probability before each piece, on one thread, because NumPy adds row after row.
    std::vector<double> before{0.0};
    threads.ranges(n, piece, [&](Size begin, Size end, int) {
        double reached = before.back();
        for (Size i = begin; i < end; ++i) reached += probability(i);
        before.push_back(reached);
    });
    const double all = before.back();
    std::size_t p = 0;
    while (p + 2 < before.size() && before[p + 1] / all <= place) ++p;
    Size i = Size(p) * piece;
    for (double reached = before[p]; i + 1 < n; ++i)
        if (!((reached += probability(i)) / all <= place)) break;
    return i;
}

// RandomState.choice(n, k, replace=False, p=...): distinct rows, drawn by weight (null: all 1). At
// least k rows must have weight.
inline std::vector<Size> distinct_rows(Size n, Size k, const double* weight, double total,
                                       RandomState& random) {
    std::vector<double> share(static_cast<std::size_t>(n)), cumulative(share.size());
    for (Size i = 0; i < n; ++i) share[std::size_t(i)] = (weight ? weight[i] : 1.0) / total;
    std::vector<Size> chosen;
    while (Size(chosen.size()) < k) {
        std::vector<double> places(std::size_t(k) - chosen.size());
        for (double& place : places) place = random.sample();
        double reached = 0;
        for (std::size_t i = 0; i < share.size(); ++i) cumulative[i] = reached += share[i];
        for (double& value : cumulative) value /= reached;
        for (const double place : places) {
            const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), place);
            const Size row = std::min(Size(at - cumulative.begin()), n - 1);
            if (share[std::size_t(row)] == 0) continue;  // already chosen
            share[std::size_t(row)] = 0;
            chosen.push_back(row);
        }
    }
    return chosen;
}

}  // namespace exactmeans
