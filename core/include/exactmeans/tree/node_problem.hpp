// What is fixed before the first iteration of a node: the frame of the scores, the bins of exact
// sums (their grid), the tolerance. For whole fits fit/problem.py does the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/evaluate/own_distances.hpp"
#include "exactmeans/numerics/bins.hpp"
#include "exactmeans/numerics/exact_sum.hpp"
#include "exactmeans/numerics/frame.hpp"
#include "exactmeans/numerics/survey.hpp"
#include "exactmeans/tree/split.hpp"
#include "exactmeans/update/cluster_sums.hpp"

namespace exactmeans {

template <class Rows>
class NodeProblem {
public:
    using R = typename Rows::Real;

    Frame<R> frame;
    Bins grid, weight_grid;
    std::vector<double> origin;  // of the scatter; empty for CSR rows
    double tolerance = 0;

    // all_features: the number of features of the whole matrix; x has only the gathered ones.
    NodeProblem(const Rows& x, Size all_features, const SplitOptions& options,
                const Threads& threads)
        : grid({1.0}, 1), weight_grid({1.0}, 1), threads_(threads) {
        Rows plain = x;
        plain.weights = nullptr;
        const Survey unweighted = survey(plain, threads);
        grid = Bins(x.weights ? survey(x, threads).bounds : unweighted.bounds, x.n);
        set_weight_grid(x);
        const int exponent = safe_exponent<R>(unweighted.largest);
        frame.metric = options.metric;
        (is_spherical(options.metric) ? frame.packing : frame.exponent) = exponent;
        if constexpr (is_dense<Rows>) origin.assign(std::size_t(x.d), 0.0);
        const bool needs_mean = is_dense<Rows> || (options.relative && options.tol > 0);
        double variance = 0;
        if (needs_mean && !(is_spherical(options.metric) && !options.relative))
            variance = variance_of(x, plain, unweighted);
        else
            grid.set_bins(bins_needed(x, grid, 0, x.n));
        tolerance = options.relative ? options.tol * variance / double(all_features)
                                     : std::ldexp(options.tol, 2 * frame.exponent);
    }

    int cost_exponent() const { return frame.exponent; }

private:
    const Threads& threads_;

    void set_weight_grid(const Rows& x) {
        if (!x.weights) {
            weight_grid = Bins({1.0}, x.n);
            return;
        }
        weight_grid = Bins({*std::max_element(x.weights, x.weights + x.n)}, x.n);
        const DenseRows<double> column{x.weights, x.n, 1, 1};
        weight_grid.set_bins(bins_needed(column, weight_grid, 0, x.n));
    }

    // The total variance about the unweighted mean, on the frame's scale; sets the bins of the grid
    // and, for dense rows, origin and shift.
    double variance_of(const Rows& x, const Rows& plain, const Survey& unweighted) {
        Bins own = x.weights ? Bins(unweighted.bounds, x.n) : grid;
        own.set_bins(bins_needed(plain, own, 0, x.n));
        grid.set_bins(x.weights ? bins_needed(x, grid, 0, x.n) : own.bins());
        Sums sums(1, x.d, own, Bins({1.0}, x.n), !is_dense<Rows>);
        std::vector<std::int32_t> summed(static_cast<std::size_t>(x.n), -1);
        sums.relabel(plain, nullptr, summed.data(), threads_);
        Rows euclidean = plain;
        euclidean.norms = nullptr;
        if constexpr (is_dense<Rows>) {
            std::vector<double> mean(static_cast<std::size_t>(x.d));
            sums.mean(0, mean.data());
            if (is_spherical(frame.metric)) return spherical_variance(x, mean);
            origin = mean;
            const Points<double> point(mean.data(), 1, x.d, frame.exponent);
            const double variance =
                scatter(euclidean, point, nullptr, threads_).plain.value() / double(x.n);
            set_shift(mean, variance);
            return variance;
        } else {
            std::vector<SparseVector<double>> mean(1);
            sums.mean(0, mean[0]);
            if (is_spherical(frame.metric)) return spherical_variance(x, mean[0].value);
            return sparse_variance(euclidean, mean);
        }
    }
    // From the scatter about 0, unless cancellation makes that inaccurate.
    double sparse_variance(const Rows& x, const std::vector<SparseVector<double>>& mean) const {
        const std::vector<SparseVector<double>> zero(1);
        const double about_zero =
            scatter(x, Points<double>(zero, x.d, frame.exponent), nullptr, threads_).plain.value();
        double about_mean = about_zero - double(x.n) * square_sum(mean[0].value, frame.exponent);
        if (about_mean < least_scatter_share * about_zero)
            about_mean = scatter(x, Points<double>(mean, x.d, frame.exponent), nullptr, threads_)
                             .plain.value();
        return about_mean / double(x.n);
    }
    static double square_sum(const std::vector<double>& values, int exponent) {
        ExactSum sum;
        for (const double value : values)
            sum.add(std::ldexp(value, exponent) * std::ldexp(value, exponent));
        return sum.value();
    }
    static double spherical_variance(const Rows& x, const std::vector<double>& mean) {
        const Size directed = x.n - std::count(x.norms, x.norms + x.n, 0.0);
        return std::max(0.0, double(directed) / double(x.n) - square_sum(mean, 0));
    }
    // Data far from the origin is shifted to its mean: without that, scores lose precision.
    void set_shift(const std::vector<double>& mean, double variance) {
        double length2 = 0;
        for (const double value : mean)
            length2 += std::ldexp(value, frame.exponent) * std::ldexp(value, frame.exponent);
        if (length2 > variance) frame.shift.assign(mean.begin(), mean.end());
    }
};

}  // namespace exactmeans
