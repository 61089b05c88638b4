// Greedy k-means++ (D. Arthur & S. Vassilvitskii, k-means++: the advantages of careful seeding,
// SODA 2007; the greedy form is theirs too). This file has what is O(n): squared float64 distances
// to candidates and the potential each would leave. Drawing the candidates is Python's part, with
// NumPy's generator.
//
// Potentials are exact sums of the rows' terms, so threads and blocks do not change which candidate
// wins. Equal rows are at distance exactly 0, dense or CSR.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "exactmeans/exact_sum.hpp"
#include "exactmeans/parallel.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

// Rows chosen as seeds, spread out as dense float64 vectors.
struct Candidates {
    const double* values;  // count x d, scaled
    Size count;
    const double* norms2;
    double scale;  // what rows are multiplied by
};

template <class R>
double seed_distance2(const DenseRows<R>& x, Size i, double, const Candidates& seeds, Size s) {
    const double* seed = seeds.values + s * x.d;
    // Eight partial sums let the compiler use vectors; the order is fixed, so the result is too.
    double part[8] = {};
    Size f = 0;
    for (; f + 8 <= x.d; f += 8)
        for (Size l = 0; l < 8; ++l) {
            const double step = double(x.at(i, f + l)) * seeds.scale - seed[f + l];
            part[l] += step * step;
        }
    for (; f < x.d; ++f) {
        const double step = double(x.at(i, f)) * seeds.scale - seed[f];
        part[0] += step * step;
    }
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

template <class R, class I>
double seed_distance2(const CsrRows<R, I>& x, Size i, double norm2, const Candidates& seeds,
                      Size s) {
    const double* seed = seeds.values + s * x.d;
    const auto row = x.row(i);
    double dot = 0;
    for (Size t = 0; t < row.nonzeros; ++t)
        dot += double(row.value[t]) * seeds.scale * seed[row.index[t]];
    return std::max(0.0, norm2 + seeds.norms2[s] - 2 * dot);
}

// |x|^2, added in the order of the product above, so that a row's distance to itself is exactly 0.
template <class Rows>
double seed_norm2(const Rows& x, Size i, double scale) {
    double sum = 0;
    if constexpr (!is_dense<Rows>) {
        const auto row = x.row(i);
        for (Size t = 0; t < row.nonzeros; ++t) {
            const double value = double(row.value[t]) * scale;
            sum += value * value;
        }
    }
    return sum;
}

// The rows of one block with the squared distance to the nearest seed so far.
class ClosestSeed {
public:
    explicit ClosestSeed(Size n) : d2_(std::size_t(n), std::numeric_limits<double>::infinity()) {}

    const std::vector<double>& d2() const { return d2_; }

    // sum over rows of w min(d2, |x - s|^2), for each candidate s.
    template <class Rows>
    std::vector<ExactSum> potentials(const Rows& x, const Candidates& seeds,
                                     const Threads& threads) const {
        std::vector<std::vector<ExactSum>> parts(std::size_t(threads.n_jobs),
                                                 std::vector<ExactSum>(std::size_t(seeds.count)));
        for_rows(x, threads, [&](Size i, int worker) {
            const double norm2 = seed_norm2(x, i, seeds.scale), weight = x.weight(i);
            for (Size s = 0; s < seeds.count; ++s) {
                const double d2 = seed_distance2(x, i, norm2, seeds, s);
                parts[std::size_t(worker)][std::size_t(s)].add(weight *
                                                               std::min(d2, d2_[std::size_t(i)]));
            }
        });
        for (std::size_t w = 1; w < parts.size(); ++w)
            for (std::size_t s = 0; s < parts[w].size(); ++s) parts[0][s].add(parts[w][s]);
        return parts[0];
    }

    template <class Rows>
    void accept(const Rows& x, const Candidates& seed, const Threads& threads) {
        for_rows(x, threads, [&](Size i, int) {
            double& d2 = d2_[std::size_t(i)];
            d2 = std::min(d2, seed_distance2(x, i, seed_norm2(x, i, seed.scale), seed, 0));
        });
    }

private:
    template <class Rows, class Fn>
    static void for_rows(const Rows& x, const Threads& threads, Fn fn) {
        threads.ranges(x.n, 512, [&](Size begin, Size end, int worker) {
            for (Size i = begin; i < end; ++i) fn(i, worker);
        });
    }

    std::vector<double> d2_;
};

}  // namespace exactmeans
