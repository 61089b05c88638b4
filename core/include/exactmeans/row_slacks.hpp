// What bounds need to know of the rows of a block, found once per fit whichever algorithms run: the
// only place where a row's norm, its chain of roundings and the metric enter a bound.
#pragma once

#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/parallel.hpp"
#include "exactmeans/rows.hpp"
#include "exactmeans/slack.hpp"

namespace exactmeans {

// What may be concluded from the scores of one row. Distances are on the frame's scale.
class RowSlack {
public:
    RowSlack(const Slack& slack, double norm2) : slack_(slack), norm2_(norm2) {}

    // False: nothing may be pruned.
    bool holds() const { return slack_.holds(); }
    // The distance to a centre of this score is certainly not above (below) this.
    double upper(double score) const { return slack_.upper(score, norm2_); }
    double lower(double score) const { return slack_.lower(score, norm2_); }
    // Is a centre at least `far` away certain to get a higher score than one at most `near` away?
    bool apart(double far, double near) const { return slack_.apart(far, near, norm2_); }

private:
    Slack slack_;
    double norm2_;
};

template <class R>
class RowSlacks {
public:
    // Looks at the rows if that has not been done; their frame never changes.
    template <class Rows>
    void look(const Rows& x, const Frame<R>& frame, const Threads& threads) {
        if (Size(norm2_.size()) == x.n) return;
        norm2_.resize(std::size_t(x.n));
        std::vector<DenseTile<R>> tiles(static_cast<std::size_t>(threads.n_jobs));
        threads.ranges(x.n, rows_per_task, [&](Size begin, Size end, int worker) {
            const auto keep = [&](Size i, const R* values, Size count) {
                norm2_[std::size_t(i)] =
                    R(kernels<R>().square_sum(values, nullptr, count, frame.scale()).value());
            };
            if constexpr (is_dense<Rows>) {
                DenseTile<R>& tile = tiles[std::size_t(worker)];
                tile.load(x, frame.shift_or_null(), begin, nullptr, end - begin);
                for (Size i = begin; i < end; ++i) keep(i, tile.rows()[i - begin], x.d);
            } else {
                for (Size i = begin; i < end; ++i) keep(i, x.row(i).value, x.row(i).nonzeros);
            }
        });
    }

    template <class Rows>
    RowSlack of(const Rows& x, const Centroids<R>& centroids, Size i) const {
        Size terms = x.d;
        if constexpr (!is_dense<Rows>) terms = x.row(i).nonzeros;
        return {
            Slack::of<R>(terms, x.d, centroids.norm_terms(), centroids.frame().exponent),
            double(norm2_[std::size_t(i)]),
        };
    }

private:
    static constexpr Size rows_per_task = 256;

    std::vector<R> norm2_;  // as scores see the row: shifted and scaled
};

}  // namespace exactmeans
