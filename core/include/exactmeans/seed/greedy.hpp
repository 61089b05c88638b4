// Greedy k-means++ (D. Arthur, S. Vassilvitskii, k-means++: the advantages of careful seeding, SODA
// 2007; with several candidates per step) for rows that are all in memory.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/seed/block.hpp"

namespace exactmeans {

// Uniform numbers for the draws of each step, steps x candidates.
struct GreedyShares {
    const double* values;
    Size steps, candidates;
};

// Each step draws candidates at the given shares of the total potential. The candidate that leaves
// the lowest potential becomes a seed, the first one on ties. Returns the chosen rows: fewer than
// requested if the potential falls below `enough`. stage(rows) stages rows as candidates.
template <class Stage>
std::vector<Size> greedy_seeds(SeedBlock& block, SeedPoints& points, Stage stage,
                               const GreedyShares& shares, double enough, const Threads& threads) {
    std::vector<Size> chosen, drawn(static_cast<std::size_t>(shares.candidates));
    while (Size(chosen.size()) < shares.steps &&
           !(chosen.size() && block.total().value() < enough)) {
        const double* share = shares.values + Size(chosen.size()) * shares.candidates;
        const double total = block.total().value();
        for (Size& row : drawn) row = std::min(block.find({}, *share++ * total), block.n() - 1);
        points.unstage();
        stage(drawn);
        const std::vector<SamplingWeight> left = block.totals_after(points, threads);
        const auto least = std::min_element(
            left.begin(), left.end(),
            [](const SamplingWeight& a, const SamplingWeight& b) { return a.value() < b.value(); });
        const Size best = Size(least - left.begin());
        block.accept(points, best, threads);
        points.accept(best);
        chosen.push_back(drawn[std::size_t(best)]);
    }
    return chosen;
}

}  // namespace exactmeans
