// How centres changed between two passes over CSR rows, and what that may do to scores.
//
// Between two passes many centres stay where they are, most others go a little way, and a few go
// far. Scores with the first do not change. Of the second, the tame ones, each feature has the most
// by which it fell and rose in any of them: sums of that over a row bound what its scores may have
// lost and gained. The third, the wild ones, are laid out on their own for a look at each row
// (coarse.hpp). docs/numerics.md ("Centres that moved") derives the bounds.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/coarse.hpp"
#include "exactmeans/sparse.hpp"

namespace exactmeans {

template <class R>
class Shifts {
public:
    Shifts(const Centroids<R>& centroids, bool)
        : k_(centroids.k()),
          all_(centroids, false),
          moves_(std::size_t(k_), -1),
          then_(std::size_t(k_)),
          start_(std::size_t(k_)),
          rise_(std::size_t(k_)),
          place_(std::size_t(k_)) {}
    bool dense() const { return false; }

    void update(const Centroids<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        from_ = version_;
        version_ = centroids.version();
        std::vector<Size> moved;
        for (Size j = 0; j < k_; ++j)
            if (moves_[std::size_t(j)] != centroids.moves(j) ||
                start_[std::size_t(j)] != centroids.start()[j])
                moved.push_back(j);
        all_.update(centroids, moved, then_, threads);
        // Both layouts together keep within the room that centres have.
        const double d = double(std::max<Size>(1, centroids.d())),
                     left = centroids.layout().room() / d - double(Coarse<R>::bytes(k_));
        sifts_ = worth_sifting(Size(moved.size()), left);
        if (sifts_) compare(centroids, moved, threads);
        threads.ranges(Size(moved.size()), 1, [&](Size m, Size, int) {
            const Size j = moved[std::size_t(m)];
            if (moves_[std::size_t(j)] == centroids.moves(j)) return;
            then_[std::size_t(j)] = centroids.nonzeros(j);
            moves_[std::size_t(j)] = centroids.moves(j);
        });
        std::copy_n(centroids.start(), k_, start_.begin());
    }

    // All centres, as they are.
    const Coarse<R>& all() const { return all_; }
    // Versions of the centres between which this is what changed; before the first there is none.
    Size from() const { return from_; }
    Size version() const { return version_; }
    // Is there anything below?
    bool sifts() const { return sifts_; }
    const Coarse<R>& wild() const { return wild_; }
    // Where centre j stands among the wild ones, or one of:
    static constexpr std::int32_t tame = -1, still = -2;
    std::int32_t place(Size j) const { return place_[std::size_t(j)]; }

    // By feature: how far tame centres moved, for rows to look at; empty if there are none.
    const std::vector<float>& table() const { return table_; }
    // What scores of a row of so many entries, which has looked at it, may have lost with any tame
    // centre; and gained with the tame centre `own`.
    struct Reach {
        double fall = 0, rise = 0;
    };
    Reach reach(const CoarseReach& seen, Size nonzeros, Size own) const {
        const double m = double(nonzeros), fall = double(seen.fall), rise = double(seen.rise);
        // Both sums are rounded, and canonical scores of larger values are rounded by more.
        const double more = (fall + rise) * (m + 16) * 0x1p-22 + m * tiny_ + extra_;
        return {fall + more + fall_, rise + more + rise_[std::size_t(own)]};
    }

    // Every block says how a pass over it went: its rows, of which so many got another label, and
    // so many had to be compared with all centres.
    void tell(Size rows, Size changed, Size left) const {
        rows_ += rows;
        changed_ += changed;
        left_ += left;
    }

private:
    static constexpr Size unit = CoarsePanels::unit;
    static constexpr int longest_wait = 16;
    // Centres that could be compared while a row is made ready, and while it is summed up and the
    // table is made.
    static constexpr double look = 60, sum = 90;

    // What became of a centre: features whose packed values are others now, by how much at most,
    // and the length of the part that lowers scores and of the one that raises them.
    struct Step {
        std::vector<std::uint32_t> feature;
        std::vector<float> by;
        double fall2 = 0, rise2 = 0, largest = 0;
    };

    // Decides by what the last pass told, and how many are wild: as many as make looking at them
    // about as dear as comparing the rows that are left over with all, but not more than have room
    // in `most` bytes per feature.
    bool worth_sifting(Size moved, double most) {
        const double rows = double(rows_.exchange(0)), changed = double(changed_.exchange(0)),
                     left = double(left_.exchange(0));
        if (from_ < 0 || rows == 0 || changed * 4 > rows) return false;
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

    void compare(const Centroids<R>& centroids, const std::vector<Size>& moved,
                 const Threads& threads) {
        std::vector<Step> changes(moved.size());
        threads.ranges(Size(moved.size()), 1, [&](Size m, Size, int) {
            const Size j = moved[std::size_t(m)];
            if (moves_[std::size_t(j)] != centroids.moves(j))
                changes[std::size_t(m)] = step_of(centroids, j);
        });
        const std::vector<Size> order = wildest_first(centroids, moved, changes);
        std::fill(place_.begin(), place_.end(), still);
        std::vector<Size> looked, bounded;
        for (Size o = 0; o < Size(order.size()); ++o) {
            const Size m = order[std::size_t(o)], j = moved[std::size_t(m)];
            if (o < wilds_) {
                place_[std::size_t(j)] = std::int32_t(o);
                looked.push_back(j);
            } else {
                place_[std::size_t(j)] = tame;
                bounded.push_back(m);
            }
        }
        wild_.hold(centroids, std::move(looked), all_, threads);
        bound(centroids, moved, bounded, changes, threads);
    }

    Step step_of(const Centroids<R>& centroids, Size j) const {
        SparseVector<R> buffer;
        const SideBySide<R> both(then_[std::size_t(j)], centroids.nonzeros(j, buffer));
        Step step;
        step.feature.assign(both.feature(), both.feature() + both.size());
        step.by.resize(step.feature.size());
        // Sums that need not wait for each other.
        constexpr Size lanes = 4;
        double fall2[lanes] = {}, rise2[lanes] = {}, largest[lanes] = {};
        const auto each = [&](auto packed) {
            const auto one = [&](Size t, Size lane) {
                const double by = packed(t, both.right()[t]) - packed(t, both.left()[t]);
                step.by[std::size_t(t)] = float(by * (1 + 0x1p-22));
                const double fall = std::min(by, 0.0), rise = std::max(by, 0.0);
                fall2[lane] += fall * fall;
                rise2[lane] += rise * rise;
                largest[lane] = std::max(largest[lane], rise - fall);
            };
            Size t = 0;
            for (; t + lanes <= both.size(); t += lanes)
                for (Size lane = 0; lane < lanes; ++lane) one(t + lane, lane);
            for (; t < both.size(); ++t) one(t, 0);
        };
        const Frame<R>& frame = centroids.frame();
        if (frame.packs_as_is())
            each([](Size, R value) { return -double(value); });
        else
            each([&](Size t, R value) {
                return double(Layout<R>::packed(frame, Size(both.feature()[t]), value));
            });
        for (Size lane = 0; lane < lanes; ++lane) {
            step.fall2 += fall2[lane];
            step.rise2 += rise2[lane];
            step.largest = std::max(step.largest, largest[lane]);
        }
        return step;
    }

    // By how much they might change the score of a row as long as the longest centre.
    std::vector<Size> wildest_first(const Centroids<R>& centroids, const std::vector<Size>& moved,
                                    const std::vector<Step>& changes) const {
        double norm2 = 0;
        for (Size j = 0; j < k_; ++j) norm2 = std::max(norm2, centroids.norm2(j));
        const double length = std::sqrt(norm2) / centroids.frame().scale();
        std::vector<double> most(moved.size());
        for (std::size_t m = 0; m < moved.size(); ++m) {
            const double start = started(centroids, moved[m]);
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

    void bound(const Centroids<R>& centroids, const std::vector<Size>& moved,
               const std::vector<Size>& bounded, const std::vector<Step>& changes,
               const Threads& threads) {
        fall_ = extra_ = 0;
        table_.clear();
        if (bounded.empty()) return;
        for (const Size m : bounded) {
            const std::size_t j = std::size_t(moved[std::size_t(m)]);
            const double start = started(centroids, Size(j));
            rise_[j] = start;
            fall_ = std::max(fall_, -start);
            extra_ = std::max(extra_, 0x1p-22 * double(centroids.start()[Size(j)]));
        }
        double largest = 0x1p-60;
        for (const Size m : bounded) largest = std::max(largest, changes[std::size_t(m)].largest);
        tiny_ = std::max(1.0, largest) * 0x1p-140;
        // None is so small that kernels would meet numbers below the normal ones.
        const float least = float(largest * 0x1p-24);
        table_.resize(std::size_t(centroids.d()));
        const Size width = centroids.d() / threads.n_jobs + 1;
        threads.ranges(centroids.d(), width, [&](Size begin, Size end, int) {
            std::vector<float> fallen(static_cast<std::size_t>(end - begin), least), risen = fallen;
            for (const Size m : bounded) {
                const Step& step = changes[std::size_t(m)];
                const auto at = [&](Size f) {
                    return std::size_t(std::lower_bound(step.feature.begin(), step.feature.end(),
                                                        std::uint32_t(f)) -
                                       step.feature.begin());
                };
                for (std::size_t t = at(begin), past = at(end); t < past; ++t) {
                    const std::size_t f = std::size_t(Size(step.feature[t]) - begin);
                    fallen[f] = std::max(fallen[f], -step.by[t]);
                    risen[f] = std::max(risen[f], step.by[t]);
                }
            }
            for (Size f = begin; f < end; ++f) {
                const std::size_t at = std::size_t(f - begin);
                table_[std::size_t(f)] =
                    std::bit_cast<float>(half_above(fallen[at]) << 16 | half_above(risen[at]));
            }
        });
    }
    // The first half of a float32 that is not below this one.
    static std::uint32_t half_above(float x) {
        return (std::bit_cast<std::uint32_t>(x) + 0xffff) >> 16;
    }

    // By how much the start of a centre's scores rose.
    double started(const Centroids<R>& centroids, Size j) const {
        return double(centroids.start()[j]) - double(start_[std::size_t(j)]);
    }

    Size k_;
    Size version_ = -1, from_ = -1;
    Coarse<R> all_, wild_;
    std::vector<Size> moves_;            // of each centre, when it was
    std::vector<SparseVector<R>> then_;  // like this
    std::vector<R> start_;               // and its scores started here
    bool sifts_ = false;
    Size width_ = -1, wilds_ = 0;  // wild centres: at most, and now
    double cost_ = 0;              // of a row, in comparisons with a centre
    int wait_ = 0, patience_ = 0;
    int alone_ = 0;  // passes until a table alone is tried again
    // By feature: the most by which a tame centre fell, and rose, in half a float32 each.
    std::vector<float> table_;
    // Of tame centres: the most by which starts fell, and what their rounding comes to; what
    // underflow of an entry does; and by how much each start rose.
    double fall_ = 0, extra_ = 0, tiny_ = 0;
    std::vector<double> rise_;
    std::vector<std::int32_t> place_;
    mutable std::atomic<Size> rows_ = 0, changed_ = 0, left_ = 0;
};

}  // namespace exactmeans
