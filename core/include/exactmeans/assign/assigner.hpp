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
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <variant>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/scan.hpp"

namespace exactmeans {

struct Tally {
    Size changed = 0;    // rows whose label is new
    Size distances = 0;  // row-centre scores computed
    Size skipped = 0;    // rows whose label was certain without any
    // Of dense rows, if lloyd labels them: those without a finite score. All others are finite.
    Size doubtful = 0;

    Tally& operator+=(const Tally& other) {
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
    virtual Tally assign(const AnyRows& rows, const Centroids<R>& centroids, std::int32_t* labels,
                         const Threads& threads) = 0;
    virtual void moved(const Movement& movement) = 0;
    // Is every label certain to stay, by what was kept beside the rows?
    virtual bool settled(const Centroids<R>& centroids, const std::int32_t* labels,
                         const Threads& threads) = 0;
};

template <class A>
class Running final : public Assigner<typename A::Real> {
public:
    using R = typename A::Real;

    Running(Size n, Size k, std::shared_ptr<RowSlacks<R>> slacks)
        : algorithm_(n, k), slacks_(std::move(slacks)) {}

    Tally assign(const AnyRows& rows, const Centroids<R>& centroids, std::int32_t* labels,
                 const Threads& threads) override {
        return std::visit([&](const auto& x) { return assign_rows(x, centroids, labels, threads); },
                          rows);
    }
    void moved(const Movement& movement) override { algorithm_.moved(movement); }
    bool settled(const Centroids<R>& centroids, const std::int32_t* labels,
                 const Threads& threads) override {
        if constexpr (requires { algorithm_.settled(centroids, *slacks_, labels, threads); })
            return slacks_->hold_for(centroids) &&
                   algorithm_.settled(centroids, *slacks_, labels, threads);
        else
            return false;
    }

private:
    template <class Rows>
    Tally assign_rows(const Rows& x, const Centroids<R>& centroids, std::int32_t* labels,
                      const Threads& threads) {
        if constexpr (!std::is_same_v<typename Rows::Real, R>) {
            throw std::invalid_argument("rows and centres must have the same dtype");
        } else if constexpr (!(is_dense<Rows> ? A::traits.dense : A::traits.csr)) {
            throw std::invalid_argument(std::string(A::traits.name) +
                                        " cannot work on rows of this kind");
        } else {
            Work<Rows> work(x, centroids, labels, *slacks_);
            algorithm_.start(work, threads);
            const Size step = range_rows(x, centroids.k(), threads.n_jobs);
            auto scans = centroids.spares().template take<std::vector<Scan<Rows>>>();
            scans.resize(static_cast<std::size_t>(threads.n_jobs));
            std::vector<Tally> tallies(scans.size());
            threads.ranges(x.n, step, [&](Size begin, Size end, int worker) {
                tallies[std::size_t(worker)] +=
                    algorithm_.assign(work, scans[std::size_t(worker)], begin, end);
            });
            Tally all;
            for (const Tally& tally : tallies) all += tally;
            centroids.spares().give(std::move(scans));
            return all;
        }
    }

    template <class Rows>
    Size range_rows(const Rows& x, Size k, int n_jobs) const {
        if constexpr (requires { algorithm_.range_rows(x, k, n_jobs); })
            return algorithm_.range_rows(x, k, n_jobs);
        else
            return chunk_rows(x, k, n_jobs);
    }

    A algorithm_;
    std::shared_ptr<RowSlacks<R>> slacks_;
};

}  // namespace exactmeans
