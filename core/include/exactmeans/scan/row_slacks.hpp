// Norms and rounding slack of the rows of a block, computed once per fit and shared by all
// algorithms. This is the only place where the norm of a row, the number of its roundings and the
// metric enter bounds.
#pragma once

#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/numerics/slack.hpp"

namespace exactmeans {

// Bounds of distances from the scores of one row. Distances are on the frame's scale.
class RowSlack {
public:
    RowSlack(const Slack& slack, double norm2) : slack_(slack), norm2_(norm2) {}
    // A row of which only the direction counts; `length` is its norm on the scale of the scores.
    // With u = x / |x| and |c| = 1, |u - c|^2 / 2 = 1 - x.c / |x| has the form of a score of a row
    // of norm 1.
    static RowSlack directed(const Slack& slack, double length) {
        RowSlack row_slack(slack, 1);
        row_slack.factor_ = length > 0 ? 1 / length : 0.0;
        row_slack.offset_ = 0.5;
        return row_slack;
    }

    // If false, the caller must not prune any centre of this row.
    bool holds() const { return slack_.holds(); }
    // Upper and lower bound of the distance to a centre with this score.
    double upper(double score) const { return slack_.upper(offset_ + factor_ * score, norm2_); }
    double lower(double score) const { return slack_.lower(offset_ + factor_ * score, norm2_); }
    // Is a centre at least `far` away certain to get a higher score than one at most `near` away?
    bool apart(double far, double near) const { return slack_.apart(far, near, norm2_); }

private:
    Slack slack_;
    double norm2_, offset_ = 0, factor_ = 1;
};

template <class R>
class RowSlacks {
public:
    // Computes the norms in the first call: rows and frame never change. Computes the slack again
    // whenever the number of roundings in the norms of centres changes, which happens once.
    template <class Rows>
    void update(const Rows& x, const Centres<R>& centroids, const Threads& threads) {
        if (!measured_) measure_norms(x, centroids.frame(), threads);
        measured_ = true;
        if (norm_terms_ != centroids.norm_terms()) compute_slack(x, centroids, threads);
    }

    // Does the slack cover these centres? Slack for more roundings than needed does.
    bool valid_for(const Centres<R>& centroids) const {
        return measured_ && norm_terms_ >= centroids.norm_terms();
    }

    template <class Rows>
    RowSlack of(const Rows& x, const Centres<R>& centroids, Size i) const {
        const Slack row_slack = slack(x, centroids, i);
        if (x.norms) return RowSlack::directed(row_slack, scaled_length(x, centroids.frame(), i));
        return {row_slack, double(norm2_[std::size_t(i)])};
    }

    // For kernels that bound many rows at a time: float32, in multiples of 1 / unit()
    // (kernels/bounds.hpp).
    double unit() const { return unit_; }
    Margins margins() const { return {norm_.data(), gamma_.data(), absolute_, lost_}; }
    ScoredRows<R> scored() const {
        return {norm2_.data(), units2_.empty() ? nullptr : units2_.data(), R(unit_ * unit_),
                margins()};
    }

    static constexpr Size bytes_per_row = Size(sizeof(R) + 2 * sizeof(float));

private:
    static constexpr Size rows_per_task = cost::measured_rows_per_task;

    template <class Rows>
    static Slack slack(const Rows& x, const Centres<R>& centroids, Size i) {
        Size terms = x.d;
        if constexpr (!is_dense<Rows>) terms = x.row(i).nonzeros;
        const Frame<R>& frame = centroids.frame();
        if (x.norms)
            return Slack::directed<R>(terms, x.d, scaled_length(x, frame, i), frame.packing);
        return Slack::of<R>(terms, x.d, centroids.norm_terms(), centroids.frame().exponent);
    }

    // The norm of row i on the scale of the scores.
    template <class Rows>
    static double scaled_length(const Rows& x, const Frame<R>& frame, Size i) {
        return std::ldexp(x.norms[i], frame.packing);
    }

    template <class Rows>
    void measure_norms(const Rows& x, const Frame<R>& frame, const Threads& threads) {
        norm2_.resize(std::size_t(x.n));
        if (x.norms) return measure_directions(x, frame);
        std::vector<DenseTile<R>> tiles(static_cast<std::size_t>(threads.n_jobs));
        threads.ranges(x.n, rows_per_task, [&](Size begin, Size end, int worker) {
            const auto store = [&](Size i, const R* values, Size count) {
                norm2_[std::size_t(i)] = R(
                    vector_kernels<R>().square_sum(values, nullptr, count, frame.scale()).value());
            };
            if constexpr (is_dense<Rows>) {
                DenseTile<R>& tile = tiles[std::size_t(worker)];
                tile.load(x, frame.shift_or_null(), begin, nullptr, end - begin);
                for (Size i = begin; i < end; ++i) store(i, tile.rows()[i - begin], x.d);
            } else {
                for (Size i = begin; i < end; ++i) store(i, x.row(i).value, x.row(i).nonzeros);
            }
        });
        double largest = 0;
        for (const R norm2 : norm2_) largest = std::max(largest, double(norm2));
        unit_ = largest > 0 ? std::ldexp(1.0, -std::ilogb(std::sqrt(largest))) : 1.0;
        norm_.resize(norm2_.size());
        threads.ranges(x.n, 16 * rows_per_task, [&](Size begin, Size end, int) {
            for (std::size_t i = std::size_t(begin); i < std::size_t(end); ++i)
                norm_[i] = round_up(std::sqrt(double(norm2_[i])) * unit_) * up32;
        });
    }

    template <class Rows>
    void measure_directions(const Rows& x, const Frame<R>& frame) {
        units2_.resize(norm2_.size());
        norm_.assign(norm2_.size(), 1.0f);
        for (Size i = 0; i < x.n; ++i) {
            const double length = scaled_length(x, frame, i);
            norm2_[std::size_t(i)] = R(2 * length);
            units2_[std::size_t(i)] = length > 0 ? R(1 / length) : R(0);
        }
    }

    template <class Rows>
    void compute_slack(const Rows& x, const Centres<R>& centroids, const Threads& threads) {
        constexpr float never_prune = std::numeric_limits<float>::infinity();
        norm_terms_ = 0;  // not valid while the loop runs, which Ctrl-C may end
        gamma_.resize(norm2_.size());
        threads.ranges(x.n, 16 * rows_per_task, [&](Size begin, Size end, int) {
            for (Size i = begin; i < end; ++i) {
                const Slack row_slack = slack(x, centroids, i);
                gamma_[std::size_t(i)] =
                    row_slack.holds() ? round_up(row_slack.gamma()) : never_prune;
            }
        });
        // Underflow hardly ever matters, so all rows share that of the longest possible row.
        const Slack longest =
            x.norms ? Slack::directed<R>(x.d, x.d, 1, 0)
                    : Slack::of<R>(x.d, x.d, centroids.norm_terms(), centroids.frame().exponent);
        const auto at_least = [](double value) {
            return std::max(round_up(value), std::numeric_limits<float>::min());
        };
        absolute_ = at_least(longest.underflow(0) * unit_ * unit_);
        lost_ = longest.underflow(1) > longest.underflow(0) ? at_least(longest.underflow(1) * unit_)
                                                            : 0.0f;
        norm_terms_ = centroids.norm_terms();
    }

    std::vector<R> norm2_;   // of the shifted and scaled row; of directions: 2 |x|
    std::vector<R> units2_;  // of directions only: 1 / |x|
    double unit_ = 1;
    bool measured_ = false;
    Size norm_terms_ = 0;  // roundings in the norms of centres that the slack covers; 0: none yet
    std::vector<float> norm_, gamma_;
    float absolute_ = 0, lost_ = 0;
};

}  // namespace exactmeans
