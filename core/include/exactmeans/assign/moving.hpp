// Only centres that moved are looked at, for CSR rows.
//
// A row keeps the highest score that its centre may have, and the lowest that any other may have.
// Centres that did not move leave both as they are, those that moved a little lower and raise them
// by what a bound feature by feature tells, and those that went far are compared (shifts.hpp). A
// row whose two bounds cross meets all centres, and is bounded anew. No triangle inequality is
// needed, which tells little where rows lie far from every centre, as texts do.
// Memory: eight bytes per row, and the centres of the last pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/first_look.hpp"
#include "exactmeans/shifts.hpp"

namespace exactmeans {

template <class R>
class Moving {
public:
    using Real = R;
    static constexpr Traits traits{"moving", "centres that moved, bounds for the others", false,
                                   true, "euclidean cosine angular"};
    static Size bytes_per_row(Size, Size, bool) { return 8 + RowSlacks<R>::bytes_per_row; }

    Moving(Size n, Size) : high_(std::size_t(n)), low_(std::size_t(n)) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        shifts_ = nullptr;
        if (look_.possible(work.centroids)) {
            const auto& shifts = work.centroids.template laid_out<Shifts<R>>(false, threads);
            if (look_.pays(work.x, work.centroids, shifts.all())) {
                sifts_ = shifts.sifts() && shifts.from() == seen_;
                seen_ = shifts.version();
                shifts_ = &shifts;
                return;
            }
        }
        seen_ = unseen;
        work.pack_centres(threads);
        if (work.loose()) work.look_at_rows(threads);
    }

    template <class Rows>
    Tally assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        Tally tally;
        if (!shifts_) {
            scan.nearest(work, begin, nullptr, end - begin, false);
            for (Size i = begin; i < end; ++i)
                put(work, i, scan.label[std::size_t(i - begin)], tally);
            tally.distances = (end - begin) * work.centroids.k();
            return tally;
        }
        Size left = 0;
        const Size batch = shifts_->all().batch(end - begin);
        for (Size first = begin; first < end; first += batch)
            left += assign_some(work, scan, first, batch, end, tally);
        shifts_->tell(end - begin, tally.changed, left);
        return tally;
    }

    void moved(const Movement&) {}

private:
    static constexpr Size unseen = -2;  // not even the version before the first

    template <class Rows>
    static void put(const Work<Rows>& work, Size i, std::int32_t label, Tally& tally) {
        tally.changed += work.labels[i] != label;
        work.labels[i] = label;
    }

    // The first `batch` of rows [begin, last). Returns how many had to be compared with all
    // centres.
    template <class Rows>
    Size assign_some(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size batch, Size last,
                     Tally& tally) {
        const Size end = std::min(last, begin + batch);
        CoarseScan<R>& look = scan.coarse;
        std::vector<std::int32_t>& left = scan.room.open;
        left.clear();
        const auto row_of = [&](Size t) { return begin + left[std::size_t(t)]; };
        for (Size i = begin; i < end; ++i) left.push_back(std::int32_t(i - begin));
        look.take(work.x, begin, end);
        // Rows that a table alone settles need not be made ready for looks.
        const bool looks = !sifts_ || shifts_->wild().k() > 0;
        if (looks) look.get_ready(shifts_->all());
        if (sifts_) {
            if (looks) look.look(shifts_->wild());
            sift(work, look, begin, end, left);
            look.keep(left);
            tally.distances += (end - begin) * shifts_->wild().k();
            if (!looks) {
                tally.skipped += end - begin - Size(left.size());
                look.get_ready(shifts_->all());
            }
        }
        look.expect(work.x, end, std::min(last, end + batch));
        look.nearest(work.x, work.centroids, shifts_->all(), row_of);
        for (Size t = 0; t < Size(left.size()); ++t) {
            put(work, row_of(t), look.label[std::size_t(t)], tally);
            keep(row_of(t), look.high[std::size_t(t)], look.low[std::size_t(t)]);
        }
        tally.distances += Size(left.size()) * work.centroids.k();
        return Size(left.size());
    }

    // Which rows must be compared with all centres; the bounds of all others follow the centres.
    template <class Rows>
    void sift(const Work<Rows>& work, CoarseScan<R>& look, Size begin, Size end,
              std::vector<std::int32_t>& left) {
        const Coarse<R>& wild = shifts_->wild();
        const bool any_tame = !shifts_->table().empty();
        if (any_tame) look.reach(shifts_->table());
        left.clear();
        for (Size i = begin; i < end; ++i) {
            const Size t = i - begin, own = work.labels[i];
            const std::int32_t place = shifts_->place(own);
            typename Shifts<R>::Reach reach;
            if (any_tame) reach = shifts_->reach(look.reached(t), look.given(t).nonzeros, own);
            double low = double(low_[std::size_t(i)]) - reach.fall,
                   high = double(high_[std::size_t(i)]);
            if (place == Shifts<R>::tame) high += reach.rise;
            if (wild.k()) {
                const bool is_own = look.label[std::size_t(t)] == place;
                double seen = is_own ? look.second(t) : look.lowest(t);
                if (place >= 0)
                    high = is_own ? look.highest(wild, t) : std::numeric_limits<double>::infinity();
                // Worth while only if nothing else leaves it open.
                if (!(high < seen) && (place < 0 ? high : double(high_[std::size_t(i)])) < low)
                    look.refine(work.x.row(i), t, wild, Size(place), high, seen);
                low = std::min(low, seen);
            }
            if (high < low)
                keep(i, high, low);
            else
                left.push_back(std::int32_t(t));
        }
    }

    // Rounded outwards.
    void keep(Size i, double high, double low) {
        const auto wider = [](double bound) { return std::abs(bound) * 0x1p-22 + 0x1p-120; };
        high_[std::size_t(i)] = float(high + wider(high));
        low_[std::size_t(i)] = float(low - wider(low));
    }

    const Shifts<R>* shifts_ = nullptr;  // null: no first look in this pass
    bool sifts_ = false;
    Size seen_ = unseen;  // version of the centres that the bounds hold for
    FirstLook<R> look_;
    std::vector<float> high_, low_;
};

}  // namespace exactmeans
