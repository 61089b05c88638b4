// The Assigner concept: an algorithm labels the rows of one block, keeps whatever bounds it likes
// beside them, and is told how far the centres went. It must give plain Lloyd's labels, bit for
// bit.
//
// An algorithm A<R> offers
//     static constexpr Traits traits                       name and abilities, see registry.hpp
//     static Size bytes_per_row(Size k, Size d, bool dense)    what it keeps beside labels
//     A(Size n, Size k)                                    bounds for n rows; nothing is known yet
//     void start(Work&, const Threads&)                    once per pass, before any range
//     Tally assign(const Work&, Scan&, begin, end)         labels rows [begin, end)
//     void moved(const Movement&)                          after each update, once between two
//     passes
// and, if it keeps bounds,
//     bool settled(const Centroids&, const RowSlacks&, labels, const Threads&)
//     can no label change? Then this pass need not read the block at all
// assign is called at once on disjoint ranges and writes nothing that ranges share.
//
// No algorithm sees centres out of range, nor bounds centres far beyond the rows: such a pass
// compares every row with every centre in the contract's order, and bounds begin anew after it.
// They also do after a pass that was cut short by an exception.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "exactmeans/centres/centres.hpp"
#include "exactmeans/scan/scan.hpp"

namespace exactmeans {

struct AssignStats {
    Size changed = 0;    // rows whose label is new
    Size distances = 0;  // row-centre scores computed
    Size skipped = 0;    // rows whose label was certain without any
    // Of dense rows, if lloyd labels them: those without a finite score. All others are finite.
    Size doubtful = 0;

    AssignStats& operator+=(const AssignStats& other) {
        changed += other.changed;
        distances += other.distances;
        skipped += other.skipped;
        doubtful += other.doubtful;
        return *this;
    }
};

struct Traits {
    const char* name;
    const char* summary;
    bool dense, csr;
    const char* metrics = "euclidean";  // all that it can do, separated by spaces
};

// One algorithm at work on one block, whatever kind of rows that has.
template <class R>
class Assigner {
public:
    virtual ~Assigner() = default;
    virtual AssignStats assign(const AnyRows& rows, const Centres<R>& centroids,
                               std::int32_t* labels, const Threads& threads) = 0;
    virtual void moved(const Movement& movement) = 0;
    // Is every label certain to stay, by what was kept beside the rows?
    virtual bool settled(const Centres<R>& centroids, const std::int32_t* labels,
                         const Threads& threads) = 0;
};

template <class A>
class Running final : public Assigner<typename A::Real> {
public:
    using R = typename A::Real;

    Running(Size n, Size k, std::shared_ptr<RowSlacks<R>> slacks)
        : n_(n), k_(k), algorithm_(std::in_place, n, k), slacks_(std::move(slacks)) {}

    AssignStats assign(const AnyRows& rows, const Centres<R>& centroids, std::int32_t* labels,
                       const Threads& threads) override {
        return std::visit([&](const auto& x) { return assign_rows(x, centroids, labels, threads); },
                          rows);
    }
    void moved(const Movement& movement) override {
        if (!algorithm_) return;
        // Between two places in range no centre goes farther.
        if (keeps_bounds && !(movement.farthest.first * slacks_->unit() <= 2 * longest_bounded))
            algorithm_.reset();
        else
            algorithm_->moved(movement);
    }
    bool settled(const Centres<R>& centroids, const std::int32_t* labels,
                 const Threads& threads) override {
        if constexpr (keeps_bounds) {
            if (!algorithm_ || !slacks_->hold_for(centroids) || !is_bounded(centroids))
                return false;
            return or_forget(
                [&] { return algorithm_->settled(centroids, *slacks_, labels, threads); });
        } else {
            return false;
        }
    }

private:
    static constexpr bool keeps_bounds =
        requires(A& algorithm, const Centres<R>& centroids, const RowSlacks<R>& slacks,
                 const std::int32_t* labels,
                 const Threads& threads) { algorithm.settled(centroids, slacks, labels, threads); };

    // Can bounds of rows that have been looked at hold for these centres?
    bool is_bounded(const Centres<R>& centroids) const {
        return centroids.in_range() && centroids.longest() * slacks_->unit() <= longest_bounded;
    }

    // What fn() gives. If it throws, the algorithm may be half-way between two passes, and what it
    // knows of the rows is dropped.
    template <class Fn>
    auto or_forget(Fn fn) {
        try {
            return fn();
        } catch (...) {
            algorithm_.reset();
            throw;
        }
    }

    template <class Rows>
    AssignStats assign_rows(const Rows& x, const Centres<R>& centroids, std::int32_t* labels,
                            const Threads& threads) {
        if constexpr (!std::is_same_v<typename Rows::Real, R>) {
            throw std::invalid_argument("rows and centres must have the same dtype");
        } else if constexpr (!(is_dense<Rows> ? A::traits.dense : A::traits.csr)) {
            throw std::invalid_argument(std::string(A::traits.name) +
                                        " cannot work on rows of this kind");
        } else {
            if (x.n != n_ || centroids.k() != k_)
                throw std::invalid_argument("the assigner is for other rows or centres");
            Work<Rows> work(x, centroids, labels, *slacks_);
            if (!x.norms) return assign_all(work, threads);
            // Rows without a direction have label 0, whatever is left of their products. They are
            // never pruned, so that nothing is lost by putting it back in every pass.
            std::vector<std::pair<Size, std::int32_t>> undirected;
            for (Size i = 0; i < x.n; ++i)
                if (!(x.norms[i] > 0)) undirected.emplace_back(i, labels[i]);
            AssignStats tally = assign_all(work, threads);
            for (const auto& [i, before] : undirected) {
                tally.changed += Size(before != 0) - Size(before != labels[i]);
                labels[i] = 0;
            }
            return tally;
        }
    }

    template <class Rows>
    AssignStats assign_all(Work<Rows>& work, const Threads& threads) {
        bool in_range = work.centroids.in_range();
        if (keeps_bounds && in_range) {
            work.look_at_rows(threads);
            in_range = is_bounded(work.centroids);
        }
        if (!in_range) return assign_in_order(work, threads);
        return or_forget([&] {
            if (!algorithm_) algorithm_.emplace(n_, k_);
            algorithm_->start(work, threads);
            return for_ranges(work, range_rows(work.x, k_, threads.n_jobs), threads,
                              [&](Scan<Rows>& scan, Size begin, Size end) {
                                  return algorithm_->assign(work, scan, begin, end);
                              });
        });
    }

    // Every row against every centre, by canonical scores alone, whatever the algorithm.
    template <class Rows>
    AssignStats assign_in_order(Work<Rows>& work, const Threads& threads) {
        algorithm_.reset();
        work.pack_centres(threads);
        return for_ranges(work, chunk_rows(work.x, k_, threads.n_jobs), threads,
                          [&](Scan<Rows>& scan, Size begin, Size end) {
                              scan.nearest_in_order(work, begin, end - begin);
                              AssignStats tally;
                              tally.distances = (end - begin) * k_;
                              for (Size i = begin; i < end; ++i) {
                                  const std::size_t t = std::size_t(i - begin);
                                  tally.changed += work.labels[i] != scan.label[t];
                                  work.labels[i] = scan.label[t];
                                  tally.doubtful += is_dense<Rows> && !std::isfinite(scan.score[t]);
                              }
                              return tally;
                          });
    }

    // Adds up what fn(scan, begin, end) says of ranges of `step` rows.
    template <class Rows, class Fn>
    static AssignStats for_ranges(const Work<Rows>& work, Size step, const Threads& threads,
                                  Fn fn) {
        BufferPool& spares = work.centroids.spares();
        auto scans = spares.template take<std::vector<Scan<Rows>>>();
        scans.resize(static_cast<std::size_t>(threads.n_jobs));
        std::vector<AssignStats> tallies(scans.size());
        threads.ranges(work.x.n, step, [&](Size begin, Size end, int worker) {
            tallies[std::size_t(worker)] += fn(scans[std::size_t(worker)], begin, end);
        });
        AssignStats all;
        for (const AssignStats& tally : tallies) all += tally;
        spares.give(std::move(scans));
        return all;
    }

    template <class Rows>
    Size range_rows(const Rows& x, Size k, int n_jobs) const {
        if constexpr (requires { algorithm_->range_rows(x, k, n_jobs); })
            return algorithm_->range_rows(x, k, n_jobs);
        else
            return chunk_rows(x, k, n_jobs);
    }

    Size n_, k_;
    std::optional<A> algorithm_;  // none: nothing is known of the rows
    std::shared_ptr<RowSlacks<R>> slacks_;
};

}  // namespace exactmeans
