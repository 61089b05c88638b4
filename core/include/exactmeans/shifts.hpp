// How centres changed between two passes over CSR rows that have a first look at them.
//
// Most centres that moved went a little way, and bounds tell what that does to scores (steps.hpp).
// A few went far: these, the wild ones, are laid out on their own for a look at each row
// (coarse.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/coarse.hpp"
#include "exactmeans/steps.hpp"

namespace exactmeans {

template <class R>
class Shifts : public Steps<R> {
public:
    Shifts(const Centroids<R>& centroids, bool)
        : Steps<R>(centroids, false), all_(centroids, false) {}

    void update(const Centroids<R>& centroids, const Threads& threads) {
        if (!this->is_new(centroids)) return;
        const std::vector<Size> moved = this->moved_centres(centroids);
        all_.update(centroids, moved, this->then(), threads);
        // Both layouts together keep within the room that centres have.
        const double d = double(std::max<Size>(1, centroids.d())),
                     left = centroids.layout().room() / d - double(Coarse<R>::bytes(k_));
        sifts_ = worth_sifting(Size(moved.size()), left);
        if (sifts_) divide(centroids, moved, threads);
        this->remember(centroids, moved, threads);
    }

    // All centres, as they are.
    const Coarse<R>& all() const { return all_; }
    // Those that have a place, at which they stand.
    const Coarse<R>& wild() const { return wild_; }

private:
    using typename Steps<R>::Step;
    using Steps<R>::k_;
    using Steps<R>::sifts_;
    using Steps<R>::place_;
    static constexpr Size unit = CoarsePanels::unit;
    static constexpr int longest_wait = 16;
    // Centres that could be compared while a row is made ready, and while it is summed up and the
    // table is made.
    static constexpr double look = 60, sum = 90;

    // Decides by what the last pass told, and how many are wild: as many as make looking at them
    // about as dear as comparing the rows that are left over with all, but not more than have room
    // in `most` bytes per feature.
    bool worth_sifting(Size moved, double most) {
        const typename Steps<R>::Told last = this->told();
        const double rows = double(last.rows), changed = double(last.changed),
                     left = double(last.left);
        if (this->from() < 0 || rows == 0 || changed * 4 > rows) return false;
        if (alone_ > 0) --alone_;
        if (wait_ > 0) {
            --wait_;
            return false;
        }
        if (width_ < 0) width_ = moved;
        const double full = lanes(k_) + look;
        if (sifts_) {
            // Few rows at a time do not pay for bringing many centres into the cache.
            const double open = (all_.panels().count() > 1 ? 2 * lanes(k_) : full) * left / rows;
            if (open > 2 * std::max(lanes(width_), lanes(1))) {
                if (width_ == 0) alone_ = longest_wait;
                width_ = std::max<Size>(unit, 2 * width_);
            } else if (4 * open < lanes(width_)) {
                width_ = width_ > unit ? width_ / 2 : alone_ > 0 ? unit : 0;
            }
            if (cost_ + open > 0.9 * full) {
                wait_ = patience_;
                patience_ = std::clamp(2 * patience_, 1, longest_wait);
                return false;
            }
            patience_ = 0;
        }
        for (;; width_ = width_ > unit ? width_ / 2 : 0) {
            width_ = std::min(CoarsePanels::padded(width_), CoarsePanels::padded(k_));
            // A few are not worth a table.
            const bool bounds = width_ == 0 || width_ + unit / 2 < moved;
            wilds_ = bounds ? width_ : moved;
            cost_ = (wilds_ ? lanes(wilds_) + look : 0) + (bounds ? sum : 0);
            // A table alone is of no use while many rows change.
            if (cost_ < 0.8 * full && double(Coarse<R>::bytes(wilds_)) <= most)
                return wilds_ || changed * 16 <= rows;
            if (width_ == 0) return false;
        }
    }
    static double lanes(Size centres) { return double(CoarsePanels::padded(centres)); }

    void divide(const Centroids<R>& centroids, const std::vector<Size>& moved,
                const Threads& threads) {
        const std::vector<Step> changes = this->compare(centroids, moved, threads);
        const std::vector<Size> order = wildest_first(centroids, moved, changes);
        std::fill(place_.begin(), place_.end(), this->still);
        std::vector<Size> looked, bounded;
        for (Size o = 0; o < Size(order.size()); ++o) {
            const Size m = order[std::size_t(o)], j = moved[std::size_t(m)];
            if (o < wilds_) {
                place_[std::size_t(j)] = std::int32_t(o);
                looked.push_back(j);
            } else {
                place_[std::size_t(j)] = this->tame;
                bounded.push_back(m);
            }
        }
        wild_.hold(centroids, std::move(looked), all_, threads);
        this->bound(centroids, moved, bounded, changes, threads);
    }

    // By how much they might change the score of a row as long as the longest centre.
    std::vector<Size> wildest_first(const Centroids<R>& centroids, const std::vector<Size>& moved,
                                    const std::vector<Step>& changes) const {
        double norm2 = 0;
        for (Size j = 0; j < k_; ++j) norm2 = std::max(norm2, centroids.norm2(j));
        const double length = std::sqrt(norm2) / centroids.frame().scale();
        std::vector<double> most(moved.size());
        for (std::size_t m = 0; m < moved.size(); ++m) {
            const double start = this->started(centroids, moved[m]);
            most[m] = std::max(length * std::sqrt(changes[m].fall2) - start,
                               length * std::sqrt(changes[m].rise2) + start);
        }
        std::vector<Size> order(moved.size());
        std::iota(order.begin(), order.end(), Size(0));
        std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) {
            return most[std::size_t(a)] > most[std::size_t(b)];
        });
        return order;
    }

    Coarse<R> all_, wild_;
    Size width_ = -1, wilds_ = 0;  // wild centres: at most, and now
    double cost_ = 0;              // of a row, in comparisons with a centre
    int wait_ = 0, patience_ = 0;
    int alone_ = 0;  // passes until a table alone is tried again
};

}  // namespace exactmeans
