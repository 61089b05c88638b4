// The reach of the passes of an assignment within limits: rows whose second cluster costs more by
// at most the reach are open. This policy does not read rows. The reach affects the cost only: the
// result is the optimum for any reach (docs/proofs/size_limits.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"

namespace exactmeans {

struct SizeLimits {
    Size least, most;
};

// The problem of an assignment within limits.
struct LimitedProblem {
    Size n, total, k;  // rows that are in a cluster, their mass, clusters
    SizeLimits limits;
    bool weighted = false;  // are costs multiplied by weights?
    double mass_scale = 0;  // mass of a row: its weight times this, rounded; 1 if this is 0
    Size most_options = cost::most_options;  // of a pass
};

class Reach {
public:
    double value() const { return value_; }
    // A pass takes every stride()-th row.
    Size stride() const { return stride_; }

    // The reach of the next assignment's first pass; negative before the first assignment.
    double state() const { return started_ ? value_ : -1.0; }
    void set_state(double state) {
        value_ = std::max(0.0, state);
        started_ = state >= 0;
    }

    // Starts an assignment. `many`: prices may be far from optimal, so samples come first, of every
    // 4^s-th row.
    void start(const LimitedProblem& problem, bool many) {
        stride_ = 1;
        narrowest_ = infinite;
        round_ = 0;
        if (!many && started_) return;
        started_ = false;
        value_ = infinite;
        const Size n = problem.n, k = problem.k;
        const auto pairs = [&] { return (n / stride_) * k; };
        while (pairs() > problem.most_options ||
               (pairs() > cost::sampled_options &&
                n / (stride_ * sample_step) >= cost::sampled_rows * k))
            stride_ *= sample_step;
    }
    void begin_round() { ++round_; }

    // May a pass that finds too many options be repeated with a narrower reach?
    bool narrows() const { return round_ <= cost::wide_passes && value_ > 0; }
    void narrow() { narrowest_ = value_ = cost::narrowing * value_; }
    // Widens a reach that was too narrow: doubles it, or takes `lowest` if it was 0.
    void widen(double lowest) {
        value_ = value_ > 0 ? 2 * value_ : lowest;
        if (round_ <= cost::wide_passes) value_ = std::min(value_, narrowest_);
    }

    // After a sample is solved, whose open rows have these gaps, ascending: sets the reach for the
    // next one. Prices from a sample of m rows make sizes of clusters wrong by about sqrt(k / m) of
    // their size; the reach takes a multiple of that share of the rows, those nearest to a border.
    void next_sample(const LimitedProblem& problem, const std::vector<double>& gaps) {
        const double m = double(problem.n / stride_),
                     share = std::min(1.0, cost::sample_error * std::sqrt(double(problem.k) / m));
        const std::size_t at = std::size_t(share * m);
        if (at < gaps.size())
            value_ = gaps[at];
        else if (!gaps.empty() && value_ == infinite)
            value_ = gaps.back();
        if (!(value_ < infinite)) value_ = 0;
        stride_ /= sample_step;
        narrowest_ = infinite;
        round_ = 0;
    }
    // After the assignment is found: sets the reach for the next one from the gaps of the open
    // rows, ascending, and the range by which prices changed. Prices change less and less from
    // iteration to iteration; a few rows stay open.
    void finish(const LimitedProblem& problem, const std::vector<double>& gaps, double range) {
        const auto gap = [&](Size at) {
            return gaps.empty() ? 0.0 : gaps[std::min(std::size_t(at), gaps.size() - 1)];
        };
        const double least = gap(cost::open_rows_per_centre * problem.k);
        // A wide reach is expensive, and one that is too narrow costs little more than a second
        // pass.
        const bool few = cost::first_open_share * Size(gaps.size()) < problem.n;
        value_ = std::max(least, !started_ ? gap(problem.n / cost::first_open_share)
                                 : few     ? range
                                           : 0.5 * range);
        if (!(value_ < infinite)) value_ = 0;
        started_ = true;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();
    static constexpr Size sample_step = cost::sample_step;

    double value_ = 0, narrowest_ = infinite;
    bool started_ = false;
    Size stride_ = 1;
    int round_ = 0;
};

}  // namespace exactmeans
