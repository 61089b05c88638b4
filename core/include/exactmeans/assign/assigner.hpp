// The interface of an algorithm. It labels the rows of one block, and may keep bounds from pass to
// pass, which it adjusts by the movement of the centres. Its labels must be those of plain Lloyd,
// bit for bit.
//
// An algorithm A<R> offers
//     static constexpr Traits traits
//         name and capabilities (struct Traits below)
//     static Size bytes_per_row(Size k, Size d, bool dense)
//         memory that it keeps per row, besides the label
//     A(Size n, Size k)
//         for n rows without labels
//     void start(Work&, const Threads&)
//         runs once per pass, before any range
//     AssignStats assign(const Work&, Scan&, Size begin, Size end)
//         labels rows [begin, end); runs concurrently on disjoint ranges
//     void moved(const Movement&)
//         adjusts bounds; runs after each update of the centres
// and, if it keeps bounds,
//     bool labels_certain(SharedCentres&, const RowSlacks&, labels, const Threads&)
//         true if no label can change; the pass then skips the block without reading it
//
// If centres are out of range, or too far from the rows for bounds in float32, a pass does not run
// the algorithm: it compares every row with every centre by canonical scores and drops all bounds.
// A pass that ends with an exception drops them too, and so does a pass with centres that moved
// without a call of moved(), for example because an exception ended their update.
#pragma once

#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/scan/scan.hpp"

namespace exactmeans {

struct AssignStats {
    Size changed = 0;    // rows whose label changed
    Size distances = 0;  // row-centre scores computed
    Size skipped = 0;    // rows whose label was certain without a score
    // Of the 8-bit filter for dense rows: rows compared with all centres by codes; those of them
    // that codes alone decided; scores of the remaining candidates, which count as distances too.
    Size filtered = 0, decided = 0, verified = 0;
    // Dense rows without a finite score, which only lloyd counts. A row with a finite score has
    // finite values only.
    Size without_score = 0;

    AssignStats& operator+=(const AssignStats& other) {
        changed += other.changed;
        distances += other.distances;
        skipped += other.skipped;
        filtered += other.filtered;
        decided += other.decided;
        verified += other.verified;
        without_score += other.without_score;
        return *this;
    }
    // Adds the statistics of the filter, and the scores of the rows that it left undecided.
    void add(const FilterStats& by_filter, Size scores_of_undecided) {
        filtered += by_filter.rows;
        decided += by_filter.decided;
        verified += by_filter.scores + scores_of_undecided;
        distances += by_filter.scores + by_filter.labels + scores_of_undecided;
    }
};

struct Traits {
    const char* name;
    const char* summary;
    bool dense, csr;
    const char* metrics = "euclidean";  // supported metrics, separated by spaces
};

// State of a block of rows that is computed once and shared by all algorithms.
template <class R>
struct RowState {
    std::shared_ptr<RowSlacks<R>> slacks = std::make_shared<RowSlacks<R>>();
    std::shared_ptr<DenseCodes<R>> codes = std::make_shared<DenseCodes<R>>();
};

// One algorithm on one block, independent of the type of its rows.
template <class R>
class Assigner {
public:
    virtual ~Assigner() = default;
    virtual AssignStats assign(const AnyRows& rows, SharedCentres<R>& shared, std::int32_t* labels,
                               const Threads& threads) = 0;
    virtual void moved(const Movement& movement) = 0;
    // Do the bounds prove that no label changes? Does not read the rows.
    virtual bool labels_certain(SharedCentres<R>& shared, const std::int32_t* labels,
                                const Threads& threads) = 0;
};

// Runs algorithm A behind the Assigner interface.
template <class A>
class AlgorithmAssigner final : public Assigner<typename A::Real> {
public:
    using R = typename A::Real;

    AlgorithmAssigner(Size n, Size k, const RowState<R>& state)
        : n_(n),
          k_(k),
          algorithm_(std::in_place, n, k),
          slacks_(state.slacks),
          codes_(state.codes) {}

    AssignStats assign(const AnyRows& rows, SharedCentres<R>& shared, std::int32_t* labels,
                       const Threads& threads) override {
        return std::visit([&](const auto& x) { return assign_rows(x, shared, labels, threads); },
                          rows);
    }
    void moved(const Movement& movement) override {
        if (!algorithm_) return;
        // A centre that moves between two positions in range cannot move farther.
        const bool follows = movement.from == bounded_version_ &&
                             movement.farthest.first * slacks_->unit() <= 2 * longest_bounded;
        if (keeps_bounds && !follows) {
            algorithm_.reset();
            return;
        }
        reset_on_exception([&] { algorithm_->moved(movement); });
        bounded_version_ = movement.to;
    }
    bool labels_certain(SharedCentres<R>& shared, const std::int32_t* labels,
                        const Threads& threads) override {
        if constexpr (keeps_bounds) {
            if (!algorithm_ || bounded_version_ != shared.centres.version() ||
                !slacks_->valid_for(shared.centres) || !allows_bounds(shared.centres))
                return false;
            return reset_on_exception(
                [&] { return algorithm_->labels_certain(shared, *slacks_, labels, threads); });
        } else {
            return false;
        }
    }

private:
    static constexpr bool keeps_bounds =
        requires(A& algorithm, SharedCentres<R>& shared, const RowSlacks<R>& slacks,
                 const std::int32_t* labels, const Threads& threads) {
            algorithm.labels_certain(shared, slacks, labels, threads);
        };

    // Are the centres near enough to the rows for bounds in float32? Needs measured rows.
    bool allows_bounds(const Centres<R>& centroids) const {
        return centroids.in_range() && centroids.longest() * slacks_->unit() <= longest_bounded;
    }

    // Returns fn(). If fn throws, the bounds may be half updated, so the algorithm is dropped.
    template <class Fn>
    auto reset_on_exception(Fn fn) {
        try {
            return fn();
        } catch (...) {
            algorithm_.reset();
            throw;
        }
    }

    template <class Rows>
    AssignStats assign_rows(const Rows& x, SharedCentres<R>& shared, std::int32_t* labels,
                            const Threads& threads) {
        if constexpr (!std::is_same_v<typename Rows::Real, R>) {
            throw std::invalid_argument("rows and centres must have the same dtype");
        } else if constexpr (!(is_dense<Rows> ? A::traits.dense : A::traits.csr)) {
            throw std::invalid_argument(std::string(A::traits.name) + " does not support " +
                                        (is_dense<Rows> ? "dense rows" : "CSR rows"));
        } else {
            if (x.n != n_ || shared.centres.k() != k_)
                throw std::invalid_argument("the assigner was made for other rows or centres");
            Work<Rows> work(x, shared, labels, *slacks_, codes_.get());
            if (!x.norms) return assign_all(work, threads);
            // A row of norm 0 has no direction and gets label 0, even if rounding makes its scores
            // differ. Bounds never prune such rows, so setting the label breaks no bound.
            std::vector<std::pair<Size, std::int32_t>> undirected;
            for (Size i = 0; i < x.n; ++i)
                if (!(x.norms[i] > 0)) undirected.emplace_back(i, labels[i]);
            AssignStats stats = assign_all(work, threads);
            for (const auto& [i, before] : undirected) {
                stats.changed += Size(before != 0) - Size(before != labels[i]);
                labels[i] = 0;
            }
            return stats;
        }
    }

    template <class Rows>
    AssignStats assign_all(Work<Rows>& work, const Threads& threads) {
        bool in_range = work.centroids.in_range();
        if (keeps_bounds && in_range) {
            work.measure_rows(threads);
            in_range = allows_bounds(work.centroids);
        }
        if (!in_range) return assign_canonical(work, threads);
        if (keeps_bounds && bounded_version_ >= 0 && bounded_version_ != work.centroids.version())
            algorithm_.reset();
        return reset_on_exception([&] {
            if (!algorithm_) algorithm_.emplace(n_, k_);
            algorithm_->start(work, threads);
            bounded_version_ = work.centroids.version();
            return for_ranges(work, range_rows(work.x, k_, threads.n_jobs), threads,
                              [&](Scan<Rows>& scan, Size begin, Size end) {
                                  return algorithm_->assign(work, scan, begin, end);
                              });
        });
    }

    // Compares every row with every centre by canonical scores, without the algorithm.
    template <class Rows>
    AssignStats assign_canonical(Work<Rows>& work, const Threads& threads) {
        algorithm_.reset();
        work.pack_centres(threads);
        return for_ranges(work, chunk_rows(work.x, k_, threads.n_jobs), threads,
                          [&](Scan<Rows>& scan, Size begin, Size end) {
                              scan.nearest_canonical(work, begin, end - begin);
                              AssignStats stats;
                              stats.distances = (end - begin) * k_;
                              for (Size i = begin; i < end; ++i) {
                                  const std::size_t t = std::size_t(i - begin);
                                  stats.changed += work.labels[i] != scan.label[t];
                                  work.labels[i] = scan.label[t];
                                  stats.without_score +=
                                      is_dense<Rows> && !std::isfinite(scan.score[t]);
                              }
                              return stats;
                          });
    }

    // The sum of fn(scan, begin, end) over ranges of `step` rows.
    template <class Rows, class Fn>
    static AssignStats for_ranges(const Work<Rows>& work, Size step, const Threads& threads,
                                  Fn fn) {
        BufferPool& buffers = work.shared.buffers;
        // A deque, because a vector would also compile code that moves its elements, which is long.
        auto scans = buffers.template take<std::deque<Scan<Rows>>>();
        scans.resize(static_cast<std::size_t>(threads.n_jobs));
        std::vector<AssignStats> worker_stats(scans.size());
        threads.ranges(work.x.n, step, [&](Size begin, Size end, int worker) {
            worker_stats[std::size_t(worker)] += fn(scans[std::size_t(worker)], begin, end);
        });
        AssignStats total;
        for (const AssignStats& stats : worker_stats) total += stats;
        buffers.give(std::move(scans));
        return total;
    }

    template <class Rows>
    Size range_rows(const Rows& x, Size k, int n_jobs) const {
        if constexpr (requires { algorithm_->range_rows(x, k, n_jobs); })
            return algorithm_->range_rows(x, k, n_jobs);
        else
            return chunk_rows(x, k, n_jobs);
    }

    Size n_, k_;
    std::optional<A> algorithm_;  // empty: no bounds
    // The version of the centres for which the bounds hold; -1 before the first pass.
    Size bounded_version_ = -1;
    std::shared_ptr<RowSlacks<R>> slacks_;
    std::shared_ptr<DenseCodes<R>> codes_;
};

}  // namespace exactmeans
