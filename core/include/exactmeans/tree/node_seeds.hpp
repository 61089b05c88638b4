// Initial centres of a node: rows, drawn as KMeans draws them (seeding/draws.py).
#pragma once

#include <cmath>
#include <numeric>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"
#include "exactmeans/seed/csr.hpp"
#include "exactmeans/seed/dense.hpp"
#include "exactmeans/seed/greedy.hpp"
#include "exactmeans/seed/random_state.hpp"
#include "exactmeans/tree/split.hpp"

namespace exactmeans {

namespace detail {

template <class R>
DenseSeedBlock<R> seed_block(const DenseRows<R>& x, SeedBlock::Measure measure, double, Size,
                             const Threads&) {
    return DenseSeedBlock<R>(x, measure, false);
}
// k: the number of seeds.
template <class R, class I>
CsrSeedBlock<R, I> seed_block(const CsrRows<R, I>& x, SeedBlock::Measure measure, double scale,
                              Size k, const Threads& threads) {
    return CsrSeedBlock<R, I>(x, measure, scale, threads, k < cost::transpose_seeds);
}

inline double total_weight(const double* weights, Size n) {
    return weights ? std::accumulate(weights, weights + n, 0.0) : double(n);
}

// Greedy k-means++. When the potential has fallen far, the bins of the sampling weights are set
// anew, with finer units, as engine/seeding.py does.
template <class Rows>
std::vector<Size> plus_plus_rows(const Rows& x, Metric metric, Size k, int exponent,
                                 RandomState& random, const Threads& threads) {
    const Size candidates = 2 + Size(std::log(double(k)));
    const Size first =
        row_at(random.sample(), x.n, x.weights, total_weight(x.weights, x.n), threads);
    std::vector<double> shares(static_cast<std::size_t>((k - 1) * candidates));
    for (double& share : shares) share = random.sample();
    auto block = seed_block(x, {2.0, metric}, std::ldexp(1.0, exponent), k, threads);
    SeedPoints points(x.d, exponent, !is_dense<Rows>, is_spherical(metric));
    points.stage(x, first);
    block.accept_all(points, threads);
    points.accept(0);
    double bound = 0;
    const auto lay_grid = [&] {
        bound = double(x.n) * block.largest();
        block.lay_grid(bound, x.n, threads);
        const double potential = block.total().value();
        if (!(0 < potential && potential < bound * regrid_fall)) return;
        bound = 2 * potential;
        block.lay_grid(bound, x.n, threads);
    };
    lay_grid();
    std::vector<Size> chosen{first};
    const auto stage = [&](const std::vector<Size>& rows) {
        for (const Size i : rows) points.stage(x, i);
    };
    while (Size(chosen.size()) < k) {
        const Size done = Size(chosen.size()) - 1;
        const std::vector<Size> next = greedy_seeds(
            block, points, stage, {shares.data() + done * candidates, k - 1 - done, candidates},
            bound * regrid_fall, threads);
        chosen.insert(chosen.end(), next.begin(), next.end());
        if (block.total().value() < bound * regrid_fall && bound > 0) lay_grid();
    }
    return chosen;
}

}  // namespace detail

// The rows that become the initial centres, as positions among the rows of the node.
template <class Rows>
std::vector<Size> seed_rows(const Rows& x, const NodeTask& task, int exponent,
                            const SplitOptions& options, const Threads& threads) {
    const Size k = task.k;
    if (options.seeding == NodeSeeding::given) return {task.seeds, task.seeds + k};
    RandomState random(task.seed);
    if (options.seeding == NodeSeeding::plus_plus)
        return detail::plus_plus_rows(x, options.metric, k, exponent, random, threads);
    return distinct_rows(x.n, k, x.weights, detail::total_weight(x.weights, x.n), random);
}

// Row i as a centre, of length 1 where only directions count.
template <class R>
void as_centre(const DenseRows<R>& x, Size i, R* out) {
    std::copy_n(x.row(i), x.d, out);
    if (!x.norms) return;
    const std::vector<double> copy(out, out + x.d);
    direction(copy.data(), x.d, 0, out);
}
template <class R, class I>
SparseVector<R> as_centre(const CsrRows<R, I>& x, Size i) {
    const auto row = x.row(i);
    std::vector<R> values(row.value, row.value + row.nonzeros);
    if (x.norms) {
        const std::vector<double> copy(values.begin(), values.end());
        direction(copy.data(), row.nonzeros, 0, values.data());
    }
    SparseVector<R> out;
    for (Size t = 0; t < row.nonzeros; ++t)
        if (values[std::size_t(t)] != 0) out.push(Size(row.index[t]), values[std::size_t(t)]);
    return out;
}

}  // namespace exactmeans
