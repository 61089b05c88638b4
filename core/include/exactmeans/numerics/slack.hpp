// Certified bounds of distances from computed scores, and the test that allows pruning. The slack
// covers the rounding of scores: without it, a row near a tie could get another label than plain
// Lloyd gives it. Derivation: docs/proofs/bounds.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "exactmeans/kernels/scores.hpp"

namespace exactmeans {

class Slack {
public:
    // terms: the length of the multiply-add chain (features, or nonzeros of the row). d: features
    // of the centres. norm_terms: roundings in half the squared norm of a centre. All quantities
    // are on the scale of the frame.
    template <class R>
    static Slack of(Size terms, Size d, Size norm_terms, int exponent) {
        constexpr double unit = 0.5 * double(std::numeric_limits<R>::epsilon());
        constexpr double tiny = double(std::numeric_limits<R>::denorm_min());
        const bool cut = sizeof(R) < sizeof(double) && terms > longest_chain;
        const double roundings = double(cut ? chain_piece + 2 : terms) + double(norm_terms) + 11;
        Slack slack;
        slack.gamma_ = roundings * unit / (1 - roundings * unit);
        slack.absolute_ = 4 * (double(terms) + double(d) + 4) * tiny;
        // Scaling may underflow values of centres, an error that is multiplied by the row.
        slack.lost_ = exponent ? 4 * double(terms) * tiny * std::ldexp(1.0, -exponent) : 0.0;
        return slack;
    }

    // For spherical metrics, whose distances are those of unit vectors: the norm of a row counts as
    // 1, and underflow is divided by the length of the row. If the quotient is more than a rounding
    // error, nothing may be pruned.
    template <class R>
    static Slack directed(Size terms, Size d, double length, int packing) {
        constexpr double unit = 0.5 * double(std::numeric_limits<R>::epsilon());
        constexpr double tiny = double(std::numeric_limits<R>::denorm_min());
        Slack slack = of<R>(terms, d, 1, 0);
        const double lost = packing ? 4 * double(terms) * tiny * std::ldexp(1.0, -packing) : 0.0;
        if (!(slack.absolute_ / length + lost <= unit))
            slack.gamma_ = std::numeric_limits<double>::infinity();
        slack.absolute_ = unit;
        return slack;
    }

    // The derivation assumes gamma <= 0.003; otherwise nothing may be pruned.
    bool holds() const { return gamma_ <= 0.003; }
    double gamma() const { return gamma_; }
    // A bound of the error that underflow adds to a squared distance of a row with this norm.
    double underflow(double norm) const { return absolute_ + lost_ * norm; }

    // An upper (lower) bound of the distance to a centre with computed score s; norm2 = |x|^2.
    double upper(double score, double norm2) const {
        const double d2 = std::max(0.0, norm2 + 2 * score), norm = std::sqrt(norm2);
        return std::sqrt(d2 + 4 * gamma_ * square(norm + std::sqrt(d2)) + underflow(norm)) * up;
    }
    double lower(double score, double norm2) const {
        const double d2 = std::max(0.0, norm2 + 2 * score), norm = std::sqrt(norm2);
        const double low2 = d2 - 4 * gamma_ * square(norm + std::sqrt(d2)) - underflow(norm);
        return low2 > 0 ? std::sqrt(low2) * down : 0.0;
    }

    // Does a centre at distance `far` or more certainly get a higher computed score than one at
    // distance `near` or less?
    bool apart(double far, double near, double norm2) const {
        const double norm = std::sqrt(norm2);
        return far * far * down >
               near * near + 7 * gamma_ * square(norm + near) + 2 * underflow(norm);
    }

    // Factors that cover a few float64 roundings.
    static constexpr double up = 1 + 0x1p-49, down = 1 - 0x1p-49;

private:
    static double square(double x) { return x * x; }

    double gamma_ = 0, absolute_ = 0, lost_ = 0;
};

}  // namespace exactmeans
