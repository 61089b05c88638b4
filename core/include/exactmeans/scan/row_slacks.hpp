// What bounds need to know of the rows of a block, found once per fit whichever algorithms run: the
// only place where a row's norm, its chain of roundings and the metric enter a bound.
#pragma once

#include <vector>

#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/numerics/slack.hpp"

namespace exactmeans {

// What may be concluded from the scores of one row. Distances are on the frame's scale.
class RowSlack {
public:
    RowSlack(const Slack& slack, double norm2) : slack_(slack), norm2_(norm2) {}
    // A row of this length, as scores see it, of which only the direction counts. Halved and
    // divided by the length, |x - c|^2 = 2 - 2 x.c has the form of a score of a row of norm 1.
    static RowSlack directed(const Slack& slack, double length) {
        RowSlack own(slack, 1);
        own.factor_ = length > 0 ? 1 / length : 0.0;
        own.start_ = 0.5;
        return own;
    }

    // False: nothing may be pruned.
    bool holds() const { return slack_.holds(); }
    // The distance to a centre of this score is certainly not above (below) this.
    double upper(double score) const { return slack_.upper(start_ + factor_ * score, norm2_); }
    double lower(double score) const { return slack_.lower(start_ + factor_ * score, norm2_); }
    // Is a centre at least `far` away certain to get a higher score than one at most `near` away?
    bool apart(double far, double near) const { return slack_.apart(far, near, norm2_); }

private:
    Slack slack_;
    double norm2_, start_ = 0, factor_ = 1;
};

template <class R>
class RowSlacks {
public:
    // Looks at the rows if that has not been done; their frame never changes. Roundings in the
    // norms of centres do, once.
    template <class Rows>
    void look(const Rows& x, const Centres<R>& centroids, const Threads& threads) {
        if (!measured_) measure(x, centroids.frame(), threads);
        measured_ = true;
        if (norm_terms_ != centroids.norm_terms()) allow(x, centroids, threads);
    }

    // Has everything been looked at that bounds against these centres need? Slack that was made for
    // more roundings than there are now is enough.
    bool hold_for(const Centres<R>& centroids) const {
        return measured_ && norm_terms_ >= centroids.norm_terms();
    }

    template <class Rows>
    RowSlack of(const Rows& x, const Centres<R>& centroids, Size i) const {
        const Slack own = slack(x, centroids, i);
        if (x.norms) return RowSlack::directed(own, seen_length(x, centroids.frame(), i));
        return {own, double(norm2_[std::size_t(i)])};
    }

    // The same for many rows at a time, in float32 and in units (kernels/bounds.hpp).
    double unit() const { return unit_; }
    Margins margins() const { return {norm_.data(), gamma_.data(), absolute_, lost_}; }
    ScoredRows<R> scored() const {
        return {norm2_.data(), units2_.empty() ? nullptr : units2_.data(), R(unit_ * unit_),
                margins()};
    }

    static constexpr Size bytes_per_row = Size(sizeof(R) + 2 * sizeof(float));

private:
    static constexpr Size rows_per_task = 256;

    template <class Rows>
    static Slack slack(const Rows& x, const Centres<R>& centroids, Size i) {
        Size terms = x.d;
        if constexpr (!is_dense<Rows>) terms = x.row(i).nonzeros;
        const Frame<R>& frame = centroids.frame();
        if (x.norms) return Slack::directed<R>(terms, x.d, seen_length(x, frame, i), frame.packing);
        return Slack::of<R>(terms, x.d, centroids.norm_terms(), centroids.frame().exponent);
    }

    template <class Rows>
    static double seen_length(const Rows& x, const Frame<R>& frame, Size i) {
        return std::ldexp(x.norms[i], frame.packing);
    }

    template <class Rows>
    void measure(const Rows& x, const Frame<R>& frame, const Threads& threads) {
        norm2_.resize(std::size_t(x.n));
        if (x.norms) return measure_directions(x, frame);
        std::vector<DenseTile<R>> tiles(static_cast<std::size_t>(threads.n_jobs));
        threads.ranges(x.n, rows_per_task, [&](Size begin, Size end, int worker) {
            const auto keep = [&](Size i, const R* values, Size count) {
                norm2_[std::size_t(i)] = R(
                    vector_kernels<R>().square_sum(values, nullptr, count, frame.scale()).value());
            };
            if constexpr (is_dense<Rows>) {
                DenseTile<R>& tile = tiles[std::size_t(worker)];
                tile.load(x, frame.shift_or_null(), begin, nullptr, end - begin);
                for (Size i = begin; i < end; ++i) keep(i, tile.rows()[i - begin], x.d);
            } else {
                for (Size i = begin; i < end; ++i) keep(i, x.row(i).value, x.row(i).nonzeros);
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
            const double length = seen_length(x, frame, i);
            norm2_[std::size_t(i)] = R(2 * length);
            units2_[std::size_t(i)] = length > 0 ? R(1 / length) : R(0);
        }
    }

    template <class Rows>
    void allow(const Rows& x, const Centres<R>& centroids, const Threads& threads) {
        constexpr float never = std::numeric_limits<float>::infinity();
        norm_terms_ = 0;  // until all rows are done
        gamma_.resize(norm2_.size());
        threads.ranges(x.n, 16 * rows_per_task, [&](Size begin, Size end, int) {
            for (Size i = begin; i < end; ++i) {
                const Slack own = slack(x, centroids, i);
                gamma_[std::size_t(i)] = own.holds() ? round_up(own.gamma()) : never;
            }
        });
        // Underflow hardly ever matters, so that of the longest possible row will do for all.
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

    std::vector<R> norm2_;   // as scores see the row: shifted and scaled
    std::vector<R> units2_;  // of directions
    double unit_ = 1;
    bool measured_ = false;
    Size norm_terms_ = 0;  // that slack is made for; 0: none yet
    std::vector<float> norm_, gamma_;
    float absolute_ = 0, lost_ = 0;
};

}  // namespace exactmeans
