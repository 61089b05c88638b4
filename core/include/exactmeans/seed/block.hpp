// The rows of one block as seeding sees them: the squared distance to the nearest seed, which seed
// that is, and what each row weighs in the next draw. How distances are found is left to the layout
// (dense.hpp, csr.hpp), which reports pairs that come nearer; everything here is a sum over those
// pairs, so threads and blocks do not matter.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

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

// Rows that come back must be those that went.
template <class Rows>
const Rows& same_size(const Rows& rows, const Rows& before) {
    if (rows.n != before.n || rows.d != before.d)
        throw std::invalid_argument("the block has another size");
    return rows;
}

class SeedBlock {
public:
    // A row's mass is weight * distance^alpha, where the square of the distance is what the
    // metric's objective adds up.
    struct Measure {
        double alpha = 2;
        Metric metric = Metric::euclidean;
        const double* lengths = nullptr;  // squared distances are kept times these
    };

    SeedBlock(Size n, const double* weights, Measure measure)
        : n_(n),
          weights_(weights),
          alpha_(measure.alpha),
          metric_(measure.metric),
          lengths_(measure.lengths),
          direct_(alpha_ == 2 && !lengths_ && metric_ != Metric::angular),
          d2_(std::size_t(n), std::numeric_limits<double>::infinity()),
          own_(std::size_t(n), -1) {}
    virtual ~SeedBlock() = default;
    SeedBlock(const SeedBlock&) = delete;
    SeedBlock& operator=(const SeedBlock&) = delete;

    Size n() const { return n_; }
    const std::vector<double>& d2() const { return d2_; }
    const std::vector<std::int32_t>& own() const { return own_; }

    // Row-candidate distances computed so far.
    Size distances() const { return distances_; }

    // Rows that are not kept in memory are here between attach and detach only; what is derived
    // from them goes with them.
    void attach(const AnyRows& rows) {
        set_rows(rows);
        attached_ = true;
    }
    void detach() {
        drop_rows();
        attached_ = false;
    }
    bool attached() const { return attached_; }

    // Can candidate s be accepted without its rows?
    bool remembers(Size s) const { return !trial_.forgot(s); }

    // Few coordinates to rule out candidates by; layouts that have no use for them ignore this.
    virtual void project(Projection, const Threads&) {}

    // The largest mass of a row.
    double largest() const {
        double most = 0;
        for (Size i = 0; i < n_; ++i) most = std::max(most, mass(i));
        return most;
    }

    // The farthest row of positive weight, the first of several, and its cost; -1 if there is none.
    std::pair<Size, double> farthest() const {
        std::pair<Size, double> most{-1, -1.0};
        for (Size i = 0; i < n_; ++i) {
            const double own = cost(i, d2_[std::size_t(i)]);
            if (own > most.second && !(weights_ && weights_[i] == 0)) most = {i, own};
        }
        return most;
    }

    // Rows kept by coins that are tossed for `first_row + i`: with probability factor * mass.
    std::vector<Size> toss(std::uint64_t key, Size first_row, double factor) const {
        const BernoulliDraws coins(key);
        std::vector<Size> kept;
        for (Size i = 0; i < n_; ++i)
            if (coins(first_row + i) < factor * mass(i)) kept.push_back(i);
        return kept;
    }

    // Masses are taken of costs / unit2: high powers of a distance would overflow, or all vanish.
    void set_unit2(double unit2) { unit2_ = unit2; }

    // Lays the grid for masses that add up to at most `bound` over all blocks of n_all rows; gives
    // this block's total.
    SamplingWeight lay_grid(double bound, Size n_all, const Threads& threads) {
        grid_ = WeightGrid(bound, n_all);
        index_.reset(n_);
        threads.ranges(n_, WeightIndex::chunk, [&](Size begin, Size end, int) {
            SamplingWeight sum;
            for (Size i = begin; i < end; ++i) sum.add(grid_.split(mass(i)));
            index_.of_row(begin) = sum;
        });
        return total_ = index_.total();
    }
    SamplingWeight total() const { return total_; }

    // The first row at which `before` and the running total of masses reach the target; n if none
    // does.
    Size find(SamplingWeight before, double target) const {
        return index_.find(before, target, n_, [&](Size i) { return grid_.split(mass(i)); });
    }

    // What the total would be after each candidate.
    std::vector<SamplingWeight> totals_left(SeedPoints& points, const Threads& threads) {
        trial_.begin(points.staged(), threads.n_jobs);
        on_trial_ = true;
        for (Size first = 0; first < points.staged(); first += most_points)
            visit(points, first, std::min(most_points, points.staged() - first), threads);
        on_trial_ = false;
        std::vector<SamplingWeight> left(std::size_t(points.staged()), total_);
        for (Size s = 0; s < points.staged(); ++s) left[std::size_t(s)].take(trial_.gain(s));
        return left;
    }

    // Rows nearer to candidate s than to their seed get it as their seed. Call before
    // SeedPoints::accept.
    void accept(SeedPoints& points, Size s, const Threads& threads) {
        next_seed_ = points.seeds();
        if (trial_.forgot(s)) {
            visit(points, s, 1, threads);
        } else {
            const auto settle_all = [&](Size worker, int) {
                for (const CandidateEvaluation::Nearer& nearer : trial_.nearer(worker, s))
                    settle(nearer.row, nearer.d2, std::int32_t(next_seed_));
            };
            // Few rows are not worth waking a thread.
            const bool alone = !ordered() || trial_.kept(s) < 4096;
            Threads{alone ? 1 : threads.n_jobs, threads.poll}.run(trial_.workers(), settle_all);
        }
        total_ = index_.total();
    }

    // Memory for rows that a trial keeps, in bytes.
    void set_budget(std::size_t bytes) { trial_.set_budget(bytes); }

    // All candidates become seeds at once.
    void absorb(SeedPoints& points, const Threads& threads) {
        for (Size first = 0; first < points.staged(); first += most_points) {
            next_seed_ = points.seeds() + first;
            visit(points, first, std::min(most_points, points.staged() - first), threads);
        }
        total_ = index_.total();
    }

    // Brings row i up to date with the seeds of `points`; for draws by rejection, which look at few
    // rows.
    double refresh(SeedPoints& points, Size i) {
        check_row(i);
        own_known_ = false;
        const double nearest = nearest_seed2(points, i);
        count(points.seeds());
        if (nearest < d2_[std::size_t(i)]) {
            total_.take(grid_.split(mass(i)));
            settle(i, nearest, own_[std::size_t(i)]);
            total_.add(grid_.split(mass(i)));
        }
        return mass(i);
    }

    double mass(Size i) const { return mass_at(i, d2_[std::size_t(i)]); }

protected:
    virtual void set_rows(const AnyRows& rows) = 0;
    virtual void drop_rows() = 0;
    // Reports, through `found`, candidates [first, first + count) that are nearer to a row than its
    // seed. Each row is reported by one worker only, for lower candidates first.
    virtual void visit(SeedPoints& points, Size first, Size count, const Threads& threads) = 0;
    virtual double nearest_seed2(SeedPoints& points, Size i) = 0;

    void count(Size distances) { distances_ += distances; }
    const double* d2_data() const { return d2_.data(); }
    const std::int32_t* own_data() const { return own_.data(); }

    // A candidate (by its number among all staged) lies nearer to row i than its seed.
    void found(int worker, Size i, Size s, Size first, double d2) {
        if (!on_trial_) {
            if (d2 < d2_[std::size_t(i)]) settle(i, d2, std::int32_t(next_seed_ + s - first));
            return;
        }
        SamplingWeight gain = grid_.split(mass(i));
        gain.take(grid_.split(mass_at(i, d2)));
        trial_.note(worker, s, {i, d2}, gain);
    }

    // May several workers settle rows at once? Only if one worker saw all rows of a chunk of
    // masses.
    virtual bool ordered() const { return true; }
    // A row gets another seed; layouts that keep something by row or by seed hear of it.
    virtual void settling(Size, std::int32_t, double) {}
    bool on_trial() const { return on_trial_; }
    // Is own[i] the seed at distance d2[i]? Not after a refresh: what is known about seeds then
    // says nothing of rows.
    bool own_known() const { return own_known_; }

private:
    void check_row(Size i) const {
        if (i < 0 || i >= n_) throw std::invalid_argument("there is no such row");
    }
    double mass_at(Size i, double d2) const {
        const double weight = weights_ ? weights_[i] : 1.0;
        return direct_ ? weight * d2 : weight * power(cost(i, d2));
    }
    double power(double own) const {
        if (alpha_ == 2) return own;
        return alpha_ == 1 ? std::sqrt(own) : std::pow(own / unit2_, 0.5 * alpha_);
    }
    // What the objective adds up: of directions, d2 is 2 (1 - cos), which serves for cosine as
    // well.
    double cost(Size i, double d2) const {
        if (lengths_) d2 = lengths_[i] > 0 ? d2 / lengths_[i] : 0.0;
        if (metric_ != Metric::angular) return d2;
        return angle_of(0.5 * d2) * angle_of(0.5 * d2);
    }

    // Writes the row's chunk of masses, too: two threads never settle rows of one chunk.
    void settle(Size i, double d2, std::int32_t seed) {
        if (index_.size()) {
            SamplingWeight& chunk = index_.of_row(i);
            chunk.take(grid_.split(mass(i)));
            d2_[std::size_t(i)] = d2;
            chunk.add(grid_.split(mass(i)));
        }
        settling(i, seed, d2);
        d2_[std::size_t(i)] = d2;
        own_[std::size_t(i)] = seed;
    }

    Size n_;
    const double* weights_;
    double alpha_, unit2_ = 1;
    Metric metric_;
    const double* lengths_;
    bool direct_;  // is a row's mass its weight times d2?
    std::vector<double> d2_;
    std::vector<std::int32_t> own_;
    WeightGrid grid_;
    WeightIndex index_;
    SamplingWeight total_;
    CandidateEvaluation trial_;
    bool on_trial_ = false, own_known_ = true, attached_ = true;
    Size next_seed_ = 0, distances_ = 0;
};

}  // namespace exactmeans
