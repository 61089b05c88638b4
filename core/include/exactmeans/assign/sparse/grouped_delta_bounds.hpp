// How centres changed between two passes over CSR rows that have a first look at them
// (filter/quantized_centres.hpp).
//
// Most centres that moved went a little way, and bounds tell what that does to scores
// (centres/history.hpp). A few go far, mostly those of small clusters, and with all centres in one
// bound they would spoil it for every row, though few rows are near them. While all centres are in
// one panel, they are in groups by the number of their features, which is about the size of their
// clusters, and rows have a bound for each group. Else those that went far, the wild ones, are laid
// out on their own for a look at each row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "exactmeans/assign/sparse/delta_bounds.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/filter/quantized_centres.hpp"

namespace exactmeans {

template <class R>
class GroupedDeltaBounds : public DeltaBounds<R> {
public:
    GroupedDeltaBounds(const Centres<R>& centroids,
                       const std::shared_ptr<const LayoutSettings>& settings, bool)
        : DeltaBounds<R>(centroids, settings, false),
          all_(centroids, settings, false),
          room_(settings->room),
          place_(std::size_t(k_)),
          centres_(std::size_t(k_)) {}

    void update(const Centres<R>& centroids, const Threads& threads) {
        if (!this->begin(centroids)) return;
        const std::vector<Size> moved = this->moved_centres(centroids);
        const PassStats last = this->take_stats();
        if (in_groups()) {
            sifts_ = groups_pay(last);
            // Where all rows are looked at, groups may be others.
            if (!sifts_ && 4 * Size(moved.size()) > k_) all_.arrange(longest_first(centroids));
            all_.update(centroids, moved, this->previous(), threads);
            if (sifts_) bound_groups(centroids, moved, threads);
        } else {
            all_.update(centroids, moved, this->previous(), threads);
            // Both layouts together keep within the room that centres have.
            const double d = double(std::max<Size>(1, centroids.d())),
                         left = room_ / d - double(QuantizedCentres<R>::bytes(k_));
            sifts_ = worth_sifting(Size(moved.size()), left, last);
            if (sifts_) divide(centroids, moved, threads);
        }
        this->remember(centroids, moved, threads);
        this->finish(centroids);
    }

    // All centres, as they are.
    const QuantizedCentres<R>& all() const { return all_; }
    // Have rows a bound for each group of them?
    bool in_groups() const { return all_.panels().groups() > 1; }
    // How groups moved, for bounds to follow.
    const GroupDeltas& groups() const { return groups_; }

    // If there are no groups: wild centres, which have a place in a layout of their own; others
    // that moved, the tame ones, are in the table.
    const QuantizedCentres<R>& wild() const { return wild_; }
    static constexpr std::int32_t tame = -1, still = -2;
    std::int32_t place(Size j) const { return place_[std::size_t(j)]; }

private:
    using typename DeltaBounds<R>::PassStats;
    using typename CentreHistory<R>::ChangeNorms;
    using DeltaBounds<R>::k_;
    using DeltaBounds<R>::sifts_;
    static constexpr Size unit = QuantizedPanels::unit;
    static constexpr std::size_t most_groups = std::size_t(QuantizedPanels::most_groups);
    static constexpr int longest_wait = 16;
    // Centres that could be compared while a row is made ready, and while it is summed up and the
    // table is made: by groups, or for all.
    static constexpr double look = 60, group_sum = 30, sum = 90;

    Size group(Size j) const { return all_.group(all_.place(j)); }

    // Bounds of groups are of use while few labels change, and for as long as they settle many
    // rows.
    bool groups_pay(const PassStats& last) {
        const double rows = double(last.rows);
        if (this->from() < 0 || rows == 0 || 4 * last.changed > last.rows) return false;
        if (!backoff_.due()) return false;
        if (!sifts_) return true;
        const double full = lanes(k_) + look;
        const bool paid = group_sum * rows + full * double(last.left) <= 0.9 * full * rows;
        backoff_.record(paid);
        return paid;
    }

    std::vector<Size> longest_first(const Centres<R>& centroids) const {
        std::vector<Size> length(static_cast<std::size_t>(k_)), order(length.size());
        for (Size j = 0; j < k_; ++j)
            centroids.for_values(j, [&](Size, R value) { length[std::size_t(j)] += value != 0; });
        std::iota(order.begin(), order.end(), Size(0));
        std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) {
            return length[std::size_t(a)] > length[std::size_t(b)];
        });
        return order;
    }

    void bound_groups(const Centres<R>& centroids, const std::vector<Size>& moved,
                      const Threads& threads) {
        double fall[most_groups] = {}, extra[most_groups] = {};
        std::fill(centres_.begin(), centres_.end(), GroupDeltas::Centre{0, -1});
        for (const Size j : moved) {
            const double offset_rise = this->score_offset_rise(centroids, j);
            const std::size_t g = std::size_t(group(j));
            centres_[std::size_t(j)] = {above(offset_rise), std::int32_t(g)};
            fall[g] = std::max(fall[g], -offset_rise);
            extra[g] = std::max(extra[g], 0x1p-22 * double(centroids.score_offset()[j]));
        }
        steps_.resize(std::size_t(centroids.d()));
        const double tiny = this->template tabulate<int(most_groups)>(
            centroids, moved, [&](std::size_t m) { return group(moved[m]); }, threads,
            [&](Size f, const std::uint16_t* most) {
                std::copy_n(most, 2 * most_groups, steps_[std::size_t(f)].half);
            });
        groups_ = {steps_.data(), centres_.data(), {}, {}, std::max(float(tiny), 0x1p-120f)};
        for (std::size_t g = 0; g < most_groups; ++g) {
            groups_.fall[g] = above(fall[g]);
            groups_.extra[g] = above(extra[g]);
        }
    }
    // A float32 that is above this, and not below the normal ones.
    static float above(double x) { return float(x + std::abs(x) * 0x1p-23 + 0x1p-120); }

    // Decides by what the last pass told, and how many are wild: as many as make looking at them
    // about as dear as comparing the rows that are left over with all, but not more than have room
    // in `most` bytes per feature.
    bool worth_sifting(Size moved, double most, const PassStats& last) {
        const double rows = double(last.rows), changed = double(last.changed),
                     left = double(last.left);
        if (this->from() < 0 || rows == 0 || changed * 4 > rows) return false;
        if (alone_ > 0) --alone_;
        if (!backoff_.due()) return false;
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
            const bool paid = cost_ + open <= 0.9 * full;
            backoff_.record(paid);
            if (!paid) return false;
        }
        for (;; width_ = width_ > unit ? width_ / 2 : 0) {
            width_ = std::min(QuantizedPanels::padded(width_), QuantizedPanels::padded(k_));
            // A few are not worth a table.
            const bool bounds = width_ == 0 || width_ + unit / 2 < moved;
            wilds_ = bounds ? width_ : moved;
            cost_ = (wilds_ ? lanes(wilds_) + look : 0) + (bounds ? sum : 0);
            // A table alone is of no use while many rows change.
            if (cost_ < 0.8 * full && double(QuantizedCentres<R>::bytes(wilds_)) <= most)
                return wilds_ || changed * 16 <= rows;
            if (width_ == 0) return false;
        }
    }
    static double lanes(Size centres) { return double(QuantizedPanels::padded(centres)); }

    void divide(const Centres<R>& centroids, const std::vector<Size>& moved,
                const Threads& threads) {
        const std::vector<Size> order =
            wildest_first(centroids, moved, this->compare(centroids, moved, threads));
        std::fill(place_.begin(), place_.end(), still);
        std::vector<Size> looked;
        std::vector<char> bounded(moved.size());
        for (Size o = 0; o < Size(order.size()); ++o) {
            const Size m = order[std::size_t(o)], j = moved[std::size_t(m)];
            if (o < wilds_) {
                looked.push_back(j);
            } else {
                place_[std::size_t(j)] = tame;
                bounded[std::size_t(m)] = 1;
            }
        }
        wild_.hold(centroids, looked, all_, threads);
        for (const Size j : looked) place_[std::size_t(j)] = std::int32_t(wild_.place(j));
        this->bound(centroids, moved, bounded, threads);
    }

    // By how much they might change the score of a row as long as the longest centre.
    std::vector<Size> wildest_first(const Centres<R>& centroids, const std::vector<Size>& moved,
                                    const std::vector<ChangeNorms>& steps) const {
        double norm2 = 0;
        for (Size j = 0; j < k_; ++j) norm2 = std::max(norm2, centroids.norm2(j));
        const double length = std::sqrt(norm2) / centroids.frame().scale();
        std::vector<double> most(moved.size());
        for (std::size_t m = 0; m < moved.size(); ++m) {
            const double offset_rise = this->score_offset_rise(centroids, moved[m]);
            most[m] = std::max(length * std::sqrt(steps[m].fall2) - offset_rise,
                               length * std::sqrt(steps[m].rise2) + offset_rise);
        }
        std::vector<Size> order(moved.size());
        std::iota(order.begin(), order.end(), Size(0));
        std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) {
            return most[std::size_t(a)] > most[std::size_t(b)];
        });
        return order;
    }

    QuantizedCentres<R> all_, wild_;
    double room_;  // bytes that both may take
    Backoff backoff_{0,
                     longest_wait};    // passes without bounds, after one that they did not pay for
    std::vector<std::int32_t> place_;  // among wild centres
    Size width_ = -1, wilds_ = 0;      // of those: at most, and now
    double cost_ = 0;                  // of a row, in comparisons with a centre
    int alone_ = 0;                    // passes until a table alone is tried again
    std::vector<GroupDeltaTable> steps_;
    std::vector<GroupDeltas::Centre> centres_;
    GroupDeltas groups_{};
};

}  // namespace exactmeans
