// Only centres that moved are looked at, for CSR rows.
//
// A row keeps the highest score that its centre may have, and the lowest that any other of each of
// four groups may have, or of all if these are many. Centres that did not move leave them as they
// are, others lower and raise them by what a bound feature by feature tells, or, of many, those
// that went far are compared (assign/sparse/grouped_delta_bounds.hpp). A row whose bounds cross
// meets all centres, and is bounded anew. No triangle inequality is needed, which tells little
// where rows lie far from every centre, as texts do. Centres that are not for a first look have
// bounds alone (assign/sparse/delta_bounds.hpp), and before it meets all of them, a row meets its
// own. Memory: 20 bytes per row, and the centres of the last pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/sparse/aggregated_scores.hpp"
#include "exactmeans/assign/sparse/delta_bounds.hpp"
#include "exactmeans/assign/sparse/grouped_delta_bounds.hpp"
#include "exactmeans/filter/quantized_filter.hpp"

namespace exactmeans {

template <class R>
class Moving {
public:
    using Real = R;
    static constexpr Traits traits{"moving", "centres that moved, bounds for the others", false,
                                   true, "euclidean cosine angular"};
    static Size bytes_per_row(Size, Size, bool) {
        return Size(sizeof(RowBounds)) + RowSlacks<R>::bytes_per_row;
    }

    Moving(Size n, Size) : bounds_(std::size_t(n)) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        shifts_ = nullptr;
        steps_ = nullptr;
        const LayoutSettings& settings = work.layouts.settings();
        if (!FirstLook<R>::fits(work.centroids, settings)) return start_without(work, threads);
        if (look_.possible(work.centroids, settings)) {
            auto shifts =
                work.layouts.template state<GroupedDeltaBounds<R>>(work.centroids, threads);
            if (look_.pays(work.x, work.centroids, shifts->all())) {
                if (seen_ == unseen) any_below_ = has_below(work.x);
                sifts_ = shifts->sifts() && shifts->from() == seen_;
                seen_ = shifts->version();
                shifts_ = std::move(shifts);
                return;
            }
        }
        sifts_ = false;
        seen_ = unseen;
        float32_scores_.pack(work, threads);
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        if (!shifts_) return assign_without(work, scan, begin, end);
        AssignStats tally;
        Size left = 0;
        const Size batch = shifts_->all().batch(end - begin, sifts_);
        for (Size first = begin; first < end; first += batch)
            left += assign_some(work, scan, first, batch, end, tally);
        shifts_->record({end - begin, entries(work.x, begin, end), tally.changed, left});
        return tally;
    }

    void moved(const Movement&) {}

private:
    static constexpr Size unseen = -2;  // not even the version before the first

    template <class I>
    static Size entries(const CsrRows<R, I>& x, Size begin, Size end) {
        return x.offsets[end] - x.offsets[begin];
    }
    // Is any entry below 0?
    template <class I>
    static bool has_below(const CsrRows<R, I>& x) {
        unsigned below = 0;  // no branch, so that many are compared at a time
        for (Size e = x.offsets[0]; e < x.offsets[x.n]; ++e) below |= unsigned(x.data[e] < 0);
        return below != 0;
    }
    template <class Rows>
    static void put(const Work<Rows>& work, Size i, std::int32_t label, AssignStats& tally) {
        tally.changed += work.labels[i] != label;
        work.labels[i] = label;
    }

    // The first `batch` of rows [begin, last). Returns how many had to be compared with all
    // centres.
    template <class Rows>
    Size assign_some(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size batch, Size last,
                     AssignStats& tally) {
        const Size end = std::min(last, begin + batch);
        QuantizedFilter<R>& look = scan.coarse;
        std::vector<std::int32_t>& left = scan.workspace.survivors;
        left.resize(std::size_t(end - begin));
        std::iota(left.begin(), left.end(), 0);
        const auto row_of = [&](Size t) { return begin + left[std::size_t(t)]; };
        look.take(work.x, begin, end);
        // Rows that bounds alone settle need not be made ready for looks.
        const bool looks = sifts_ && shifts_->wild().k() > 0;
        if (looks) {
            look.get_ready(shifts_->all());
            look.look(shifts_->wild());
            tally.distances += (end - begin) * shifts_->wild().k();
        }
        if (sifts_) {
            if (shifts_->in_groups())
                look.follow(any_below_, shifts_->groups(), work.labels + begin,
                            bounds_.data() + begin, left);
            else
                sift(work, look, begin, end, left);
            look.keep(left);
            if (!looks) tally.skipped += end - begin - Size(left.size());
        } else {
            look.expect(work.x, end, std::min(last, end + batch));
        }
        if (!looks) look.get_ready(shifts_->all());
        look.nearest(work.x, work.centroids, shifts_->all(), row_of);
        const Size count = Size(left.size());
        for (Size t = 0; t < count; ++t) {
            put(work, row_of(t), look.label[std::size_t(t)], tally);
            keep(row_of(t), look.high[std::size_t(t)], look.low[std::size_t(t)].of);
        }
        tally.distances += count * work.centroids.k();
        return count;
    }
    // Which rows must be compared with all centres, where these are not in groups; the bounds of
    // all others follow the centres.
    template <class Rows>
    void sift(const Work<Rows>& work, QuantizedFilter<R>& look, Size begin, Size end,
              std::vector<std::int32_t>& left) {
        const QuantizedCentres<R>& wild = shifts_->wild();
        const bool any_tame = !shifts_->table().empty();
        if (any_tame) look.reach(shifts_->table());
        left.clear();
        for (Size i = begin; i < end; ++i) {
            const Size t = i - begin, own = work.labels[i];
            const std::int32_t place = shifts_->place(own);
            typename GroupedDeltaBounds<R>::Reach reach;
            if (any_tame) reach = shifts_->reach(look.reached(t), look.given(t).nonzeros, own);
            const double before = double(bounds_[std::size_t(i)].high);
            double low = double(bounds_[std::size_t(i)].low[0]) - reach.fall, high = before;
            if (place == GroupedDeltaBounds<R>::tame) high += reach.rise;
            if (wild.k()) {
                typename QuantizedFilter<R>::Lows others;
                const auto looked = look.seen(wild, std::size_t(t), others);
                const bool is_own = looked.place == Size(place);
                double seen = is_own ? others.lowest() : looked.lowest;
                if (place >= 0)
                    high = is_own ? looked.highest : std::numeric_limits<double>::infinity();
                // Worth while only if nothing else leaves it open.
                if (!(high < seen) && (place < 0 ? high : before) < low)
                    look.refine(work.x.row(i), t, wild, Size(place), high, seen);
                low = std::min(low, seen);
            }
            if (high < low)
                keep(i, high, low);
            else
                left.push_back(std::int32_t(t));
        }
    }

    // A pass over centres that are not for a first look.
    template <class Rows>
    void start_without(Work<Rows>& work, const Threads& threads) {
        steps_ = work.layouts.template state<DeltaBounds<R>>(work.centroids, threads);
        sifts_ = steps_->sifts() && steps_->from() == seen_;
        seen_ = steps_->version();
        error_ = ScoreError(work.centroids);
        if (sifts_) find_open(work, threads);
        if (!sifts_ || !open_.empty()) float32_scores_.pack(work, threads);
    }
    // Which rows must be compared with all centres.
    template <class Rows>
    void find_open(const Work<Rows>& work, const Threads& threads) {
        asked_.clear();
        open_.clear();
        for_rows(
            threads, work.x.n, [&](Size begin, Size end, QuantizedFilter<R>& look, Found& found) {
                look.take(work.x, begin, end);
                if (!steps_->table().empty()) look.reach(steps_->table());
                for (Size i = begin; i < end; ++i)
                    if (!follow(work, look, i - begin, i))
                        (steps_->moved(work.labels[i]) ? found.asked : found.open).push_back(i);
            });
        // The table tells what the wildest centre may have done; the own one may have done less.
        std::vector<std::int32_t> own;
        for (const Size i : asked_) own.push_back(work.labels[i]);
        std::vector<double> score;
        measured_.measure(work.x, work.centroids, asked_, own, score, threads);
        for_rows(threads, Size(asked_.size()),
                 [&](Size begin, Size end, QuantizedFilter<R>&, Found& found) {
                     for (Size t = begin; t < end; ++t) {
                         const Size i = asked_[std::size_t(t)];
                         const double high = score[std::size_t(t)] + error_.of(work.x.row(i)),
                                      low = double(bounds_[std::size_t(i)].low[0]);
                         if (high < low)
                             keep(i, high, low);
                         else
                             found.open.push_back(i);
                     }
                 });
        std::sort(open_.begin(), open_.end());
    }
    // Do the bounds of row i, the one at t, still tell its label? They follow the centres.
    template <class Rows>
    bool follow(const Work<Rows>& work, const QuantizedFilter<R>& look, Size t, Size i) {
        const Size own = work.labels[i];
        typename DeltaBounds<R>::Reach reach;
        if (!steps_->table().empty())
            reach = steps_->reach(look.reached(t), look.given(t).nonzeros, own);
        const double low = double(bounds_[std::size_t(i)].low[0]) - reach.fall;
        double high = double(bounds_[std::size_t(i)].high);
        if (steps_->moved(own)) high += reach.rise;
        keep(i, high, low);
        return high < low;
    }
    // Rows that a range of them gives: to be compared with their own centre, and with all.
    struct Found {
        std::vector<Size> asked, open;
    };
    // Calls body(begin, end, buffers of a thread, found) for ranges, and adds up what they find.
    template <class Body>
    void for_rows(const Threads& threads, Size n, Body body) {
        constexpr Size some = 2048;
        std::vector<Found> found(static_cast<std::size_t>((n + some - 1) / some));
        looks_.resize(std::size_t(threads.n_jobs));
        threads.ranges(n, some, [&](Size begin, Size end, int worker) {
            body(begin, end, looks_[std::size_t(worker)], found[std::size_t(begin / some)]);
        });
        for (const Found& own : found) {
            asked_.insert(asked_.end(), own.asked.begin(), own.asked.end());
            open_.insert(open_.end(), own.open.begin(), own.open.end());
        }
    }

    // Compares those of rows [begin, end), or all of them.
    template <class Rows>
    AssignStats assign_without(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        const auto place = [](const std::vector<Size>& rows, Size i) {
            return Size(std::lower_bound(rows.begin(), rows.end(), i) - rows.begin());
        };
        const Size from = place(open_, begin),
                   count = sifts_ ? place(open_, end) - from : end - begin;
        const Size* const ids = sifts_ ? open_.data() + from : nullptr;
        AssignStats tally;
        if (!steps_)
            scan.nearest(work, begin, nullptr, count, false);
        else if (count > 0)
            scan.nearest_two(work, begin, ids, count);
        Size touched = sifts_ ? place(asked_, end) - place(asked_, begin) : count;
        tally.distances = count * work.centroids.k() + (sifts_ ? touched : 0);
        for (Size t = 0; t < count; ++t) {
            const Size i = ids ? ids[t] : begin + t;
            // Those whose own centre stands still were not asked.
            touched += sifts_ && !steps_->moved(work.labels[i]);
            put(work, i, scan.label[std::size_t(t)], tally);
            if (steps_)
                bound(work, i, double(scan.score[std::size_t(t)]),
                      double(scan.second[std::size_t(t)]));
        }
        tally.skipped = end - begin - touched;
        if (steps_)
            steps_->record({end - begin, entries(work.x, begin, end), tally.changed, count});
        return tally;
    }
    // By the two lowest scores of a row, which may be loose, or bounds of them. Of scores within
    // rounding of each other, any may be the label's.
    template <class Rows>
    void bound(const Work<Rows>& work, Size i, double first, double second) {
        const double off = error_.of(work.x.row(i));
        keep(i, first + 2 * off,
             (second - first > 2 * off ? second : std::min(first, second)) - off);
    }

    // Rounded outwards.
    void keep(Size i, double high, const double (&low)[QuantizedPanels::most_groups]) {
        const auto above = [](double bound) {
            return float(bound + std::abs(bound) * 0x1p-22 + 0x1p-120);
        };
        RowBounds& own = bounds_[std::size_t(i)];
        own.high = above(high);
        for (std::size_t g = 0; g < std::size(low); ++g) own.low[g] = -above(-low[g]);
    }
    // All centres are one group.
    void keep(Size i, double high, double low) { keep(i, high, {low, low, low, low}); }

    std::shared_ptr<const GroupedDeltaBounds<R>> shifts_;  // null: no first look in this pass
    // For centres that are not for a first look: how they moved, and rows to be compared with all
    // of them, and with their own.
    std::shared_ptr<const DeltaBounds<R>> steps_;
    std::vector<Size> open_, asked_;
    ScoreError error_;
    AggregatedScores<R> measured_;
    std::vector<QuantizedFilter<R>> looks_;
    bool sifts_ = false, any_below_ = true;
    Size seen_ = unseen;  // version of the centres that the bounds hold for
    FirstLook<R> look_;
    Float32Scores float32_scores_;
    std::vector<RowBounds> bounds_;
};

}  // namespace exactmeans
