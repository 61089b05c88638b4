// State of the rows of one block during seeding: per row the nearest seed, the squared distance to
// it and the sampling weight for the next draw. Derived classes compute distances (dense.hpp,
// csr.hpp, manhattan.hpp) and report the pairs of a row and a candidate that is nearer than the
// row's seed. All results are exact sums over these pairs, so they depend neither on threads nor on
// blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/numerics/metric.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"
#include "exactmeans/seed/bernoulli.hpp"
#include "exactmeans/seed/candidate_evaluation.hpp"
#include "exactmeans/seed/points.hpp"
#include "exactmeans/seed/projection.hpp"
#include "exactmeans/seed/sampling_weights.hpp"

namespace exactmeans {

// Throws unless the rows have the size of those before.
template <class Rows>
const Rows& same_size(const Rows& rows, const Rows& before) {
    if (rows.n != before.n || rows.d != before.d)
        throw std::invalid_argument("the block has another size");
    return rows;
}

class SeedBlock {
public:
    // The sampling weight of a row is weight * distance^alpha, where distance^2 is the row's term
    // of the metric's objective, its cost.
    struct Measure {
        double alpha = 2;
        Metric metric = Metric::euclidean;
        const double* lengths = nullptr;  // not null: d2 is stored multiplied by these
    };

    SeedBlock(Size n, const double* weights, Measure measure)
        : n_(n),
          weights_(weights),
          alpha_(measure.alpha),
          metric_(measure.metric),
          lengths_(measure.lengths),
          weight_is_d2_(alpha_ == 2 && !lengths_ && metric_ != Metric::angular),
          d2_(std::size_t(n), std::numeric_limits<double>::infinity()),
          own_(std::size_t(n), -1) {}
    virtual ~SeedBlock() = default;
    SeedBlock(const SeedBlock&) = delete;
    SeedBlock& operator=(const SeedBlock&) = delete;

    Size n() const { return n_; }
    const std::vector<double>& d2() const { return d2_; }
    const std::vector<std::int32_t>& own() const { return own_; }

    // The number of distances between rows and candidates computed so far.
    Size distances() const { return distances_; }

    // Rows that are not kept in memory are available between attach and detach only. detach also
    // drops what is derived from them.
    void attach(const AnyRows& rows) {
        set_rows(rows);
        attached_ = true;
    }
    void detach() {
        drop_rows();
        attached_ = false;
    }
    bool attached() const { return attached_; }

    // Can candidate s be accepted while the rows are detached?
    bool can_accept_detached(Size s) const { return !evaluation_.incomplete(s); }

    // Prunes candidates by projections of the rows; only dense blocks use them.
    virtual void project(Projection, const Threads&) {}

    // The largest sampling weight of a row.
    double largest() const {
        double most = 0;
        for (Size i = 0; i < n_; ++i) most = std::max(most, sampling_weight(i));
        return most;
    }

    // The farthest row of positive weight, the first among equals, and its cost; -1 if there is
    // none.
    std::pair<Size, double> farthest() const {
        std::pair<Size, double> most{-1, -1.0};
        for (Size i = 0; i < n_; ++i) {
            const double row_cost = cost(i, d2_[std::size_t(i)]);
            if (row_cost > most.second && !(weights_ && weights_[i] == 0)) most = {i, row_cost};
        }
        return most;
    }

    // A Bernoulli sample of the rows, each with probability factor * sampling weight. Row i of the
    // block is row first_row + i of all.
    std::vector<Size> bernoulli_sample(std::uint64_t key, Size first_row, double factor) const {
        const BernoulliDraws draw(key);
        std::vector<Size> sampled;
        for (Size i = 0; i < n_; ++i)
            if (draw(first_row + i) < factor * sampling_weight(i)) sampled.push_back(i);
        return sampled;
    }

    // If alpha is neither 1 nor 2, sampling weights are powers of cost / unit2, because powers of
    // the cost itself could overflow or underflow.
    void set_unit2(double unit2) { unit2_ = unit2; }

    // Sets the bins of the sampling weights, whose sum over all blocks with n_all rows is at most
    // `bound`. Returns the total of this block.
    SamplingWeight lay_grid(double bound, Size n_all, const Threads& threads) {
        grid_ = WeightGrid(bound, n_all);
        index_.reset(n_);
        threads.ranges(n_, WeightIndex::chunk, [&](Size begin, Size end, int) {
            SamplingWeight sum;
            for (Size i = begin; i < end; ++i) sum.add(grid_.split(sampling_weight(i)));
            index_.of_row(begin) = sum;
        });
        return total_ = index_.total();
    }
    SamplingWeight total() const { return total_; }

    // The first row at which `before` plus the running total of weights reaches the target; n if
    // there is none.
    Size find(SamplingWeight before, double target) const {
        const WeightGrid grid = grid_;
        // The usual weights need no calls in the loop, so the running total stays in registers.
        if (weight_is_d2_)
            return index_.find(before, target, n_,
                               [&, d2 = d2_.data(), weights = weights_](Size i) {
                                   return grid.split(weights ? weights[i] * d2[i] : d2[i]);
                               });
        return index_.find(before, target, n_,
                           [&](Size i) { return grid.split(sampling_weight(i)); });
    }

    // The total sampling weight after accepting each candidate.
    std::vector<SamplingWeight> totals_after(SeedPoints& points, const Threads& threads) {
        evaluation_.begin(points.staged(), threads.n_jobs);
        evaluating_ = true;
        for (Size first = 0; first < points.staged(); first += most_points)
            visit(points, first, std::min(most_points, points.staged() - first), threads);
        evaluating_ = false;
        std::vector<SamplingWeight> after(std::size_t(points.staged()), total_);
        for (Size s = 0; s < points.staged(); ++s)
            after[std::size_t(s)].subtract(evaluation_.gain(s));
        return after;
    }

    // Makes candidate s a seed, and the nearest seed of the rows that are nearer to it than to
    // their seed so far. Call before SeedPoints::accept.
    void accept(SeedPoints& points, Size s, const Threads& threads) {
        next_seed_ = points.seeds();
        if (evaluation_.incomplete(s)) {
            visit(points, s, 1, threads);
        } else {
            const auto update_rows = [&](Size worker, int) {
                for (const CandidateEvaluation::Nearer& nearer : evaluation_.nearer(worker, s))
                    update(nearer.row, nearer.d2, std::int32_t(next_seed_));
            };
            const bool alone =
                !one_worker_per_chunk() || Size(evaluation_.stored(s)) < cost::updates_for_threads;
            Threads{alone ? 1 : threads.n_jobs, threads.poll}.run(evaluation_.workers(),
                                                                  update_rows);
        }
        total_ = index_.total();
    }

    // The most bytes of the rows that an evaluation stores.
    void set_budget(std::size_t bytes) { evaluation_.set_budget(bytes); }

    // Makes all candidates seeds at once.
    void accept_all(SeedPoints& points, const Threads& threads) {
        for (Size first = 0; first < points.staged(); first += most_points) {
            next_seed_ = points.seeds() + first;
            visit(points, first, std::min(most_points, points.staged() - first), threads);
        }
        total_ = index_.total();
    }

    // Updates the distance of row i for the seeds of `points` and returns its sampling weight. For
    // rejection sampling, which reads few rows.
    double refresh(SeedPoints& points, Size i) {
        check_row(i);
        own_known_ = false;
        const double nearest = nearest_seed2(points, i);
        count(points.seeds());
        if (nearest < d2_[std::size_t(i)]) {
            total_.subtract(grid_.split(sampling_weight(i)));
            update(i, nearest, own_[std::size_t(i)]);
            total_.add(grid_.split(sampling_weight(i)));
        }
        return sampling_weight(i);
    }

    double sampling_weight(Size i) const { return sampling_weight_at(i, d2_[std::size_t(i)]); }

protected:
    virtual void set_rows(const AnyRows& rows) = 0;
    virtual void drop_rows() = 0;
    // Calls report_nearer for all pairs of a row and one of candidates [first, first + count) that
    // is nearer than the row's seed. One worker reports all candidates of a row, in ascending
    // order.
    virtual void visit(SeedPoints& points, Size first, Size count, const Threads& threads) = 0;
    virtual double nearest_seed2(SeedPoints& points, Size i) = 0;

    void count(Size distances) { distances_ += distances; }
    const double* d2_data() const { return d2_.data(); }
    const std::int32_t* own_data() const { return own_.data(); }

    // Reports that staged candidate s is nearer to row i than its seed.
    void report_nearer(int worker, Size i, Size s, Size first, double d2) {
        if (!evaluating_) {
            if (d2 < d2_[std::size_t(i)]) update(i, d2, std::int32_t(next_seed_ + s - first));
            return;
        }
        SamplingWeight gain = grid_.split(sampling_weight(i));
        gain.subtract(grid_.split(sampling_weight_at(i, d2)));
        evaluation_.record(worker, s, {i, d2}, gain);
    }

    // True if one worker reports all rows of a chunk of weights. Only then may workers update rows
    // concurrently.
    virtual bool one_worker_per_chunk() const { return true; }
    // Called before a row gets another seed, for derived classes that keep state by row or by seed.
    virtual void before_update(Size, std::int32_t, double) {}
    bool evaluating() const { return evaluating_; }
    // Is own[i] the seed at distance d2[i]? Not after a refresh, which updates d2 only; bounds by
    // distances between seeds do not hold then.
    bool own_known() const { return own_known_; }

private:
    void check_row(Size i) const {
        if (i < 0 || i >= n_) throw std::invalid_argument("there is no such row");
    }
    double sampling_weight_at(Size i, double d2) const {
        const double weight = weights_ ? weights_[i] : 1.0;
        return weight_is_d2_ ? weight * d2 : weight * power(cost(i, d2));
    }
    double power(double row_cost) const {
        if (alpha_ == 2) return row_cost;
        return alpha_ == 1 ? std::sqrt(row_cost) : std::pow(row_cost / unit2_, 0.5 * alpha_);
    }
    // The row's term of the objective. For directions d2 is 2 (1 - cos); for cosine the factor 2
    // does not matter.
    double cost(Size i, double d2) const {
        if (lengths_) d2 = lengths_[i] > 0 ? d2 / lengths_[i] : 0.0;
        if (metric_ != Metric::angular) return d2;
        return angle_of(0.5 * d2) * angle_of(0.5 * d2);
    }

    // Sets seed and distance of row i, and updates the sum of its chunk of weights: only one thread
    // may update the rows of a chunk.
    void update(Size i, double d2, std::int32_t seed) {
        if (index_.size()) {
            SamplingWeight& chunk = index_.of_row(i);
            chunk.subtract(grid_.split(sampling_weight(i)));
            d2_[std::size_t(i)] = d2;
            chunk.add(grid_.split(sampling_weight(i)));
        }
        before_update(i, seed, d2);
        d2_[std::size_t(i)] = d2;
        own_[std::size_t(i)] = seed;
    }

    Size n_;
    const double* weights_;
    double alpha_, unit2_ = 1;
    Metric metric_;
    const double* lengths_;
    bool weight_is_d2_;  // or a function of d2; both times the row's weight
    std::vector<double> d2_;
    std::vector<std::int32_t> own_;  // nearest seed
    WeightGrid grid_;
    WeightIndex index_;
    SamplingWeight total_;
    CandidateEvaluation evaluation_;
    bool evaluating_ = false, own_known_ = true, attached_ = true;
    Size next_seed_ = 0, distances_ = 0;
};

}  // namespace exactmeans
