// How far the passes of an assignment within limits reach: rows whose second cluster costs at most
// that much more are open. A policy without rows; whatever it decides, the result is the optimum
// (docs/proofs/size_limits.md), at a cost that depends on it.
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

// What an assignment within limits is for. `n` counts the rows that are in a cluster, `total` is
// their mass. `weighted`: costs are multiplied by weights. A row counts as its weight times
// `mass_scale`, rounded to an integer, or as 1 if the scale is 0. `most_options`: of a pass.
struct LimitedProblem {
    Size n, total, k;
    SizeLimits limits;
    bool weighted = false;
    double mass_scale = 0;
    Size most_options = cost::most_options;
};

class Reach {
public:
    double value() const { return value_; }
    // A pass looks at every stride()-th row.
    Size stride() const { return stride_; }

    // What the next assignment starts from; negative before the first one.
    double state() const { return started_ ? value_ : -1.0; }
    void set_state(double state) {
        value_ = std::max(0.0, state);
        started_ = state >= 0;
    }

    // Starts an assignment. `many`: prices may be far from right, so samples come first, of every
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
    bool narrows() const { return round_ <= wide_rounds && value_ > 0; }
    void narrow() { narrowest_ = value_ = value_ / 4; }
    // The reach was too narrow. `lowest`: a reach where there is none to double.
    void widen(double lowest) {
        value_ = value_ > 0 ? 2 * value_ : lowest;
        if (round_ <= wide_rounds) value_ = std::min(value_, narrowest_);
    }

    // A sample is solved; its open rows have these gaps, ascending. Sizes of clusters are off by
    // about sqrt(k / m) of their size after a sample of m rows: reaches three times as many of the
    // rows that are nearest to a border.
    void next_sample(const LimitedProblem& problem, const std::vector<double>& gaps) {
        const double m = double(problem.n / stride_),
                     share = std::min(1.0, 3 * std::sqrt(double(problem.k) / m));
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
    // The assignment is found: open rows have these gaps, ascending, and the prices changed by this
    // range. Prices change less and less from iteration to iteration. A few rows stay open.
    void finish(const LimitedProblem& problem, const std::vector<double>& gaps, double range) {
        const auto gap = [&](Size at) {
            return gaps.empty() ? 0.0 : gaps[std::min(std::size_t(at), gaps.size() - 1)];
        };
        const double least = gap(4 * problem.k);
        // A wide reach is dear, a narrow one costs little more than a second pass. After the first
        // assignment centres move most: a gap that a twentieth of the rows are within.
        const bool few = 20 * Size(gaps.size()) < problem.n;
        value_ = std::max(least, !started_ ? gap(problem.n / 20) : few ? range : 0.5 * range);
        if (!(value_ < infinite)) value_ = 0;
        started_ = true;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();
    static constexpr Size sample_step = 4;
    static constexpr int wide_rounds = 40;  // passes that respect the most options

    double value_ = 0, narrowest_ = infinite;
    bool started_ = false;
    Size stride_ = 1;
    int round_ = 0;
};

}  // namespace exactmeans
