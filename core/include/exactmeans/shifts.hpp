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
        const std::vector<float> parts = all_.parts();
        all_.update(centroids, threads);
        std::vector<Size> moved;
        for (Size j = 0; j < k_; ++j)
            if (moves_[std::size_t(j)] != centroids.moves(j) ||
                start_[std::size_t(j)] != centroids.start()[j])
                moved.push_back(j);
        // Both layouts together keep within the room that centres have.
        const double centre_bytes = sizeof(std::int16_t) * double(std::max<Size>(1, centroids.d())),
                     in_room = centroids.layout().room() / centre_bytes;
        sifts_ = worth_sifting(Size(moved.size()), in_room - double(padded<float>(k_)));
        if (sifts_) compare(centroids, moved, parts, threads);
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

    // What scores of a row may have lost with any tame centre; and gained with the tame centre
    // `own`.
    struct Reach {
        double fall = 0, rise = 0;
    };
    template <class Row>
    Reach reach(const Row& row, const CoarseRow& loaded, Size own) const {
        if (table_.empty()) return {};
        double fall[4] = {}, rise[4] = {};  // sums that need not wait for each other
        const auto add = [&](Size t, int to) {
            const double x = double(row.value[t]), up = std::max(x, 0.0), down = up - x;
            const float* most = table_.data() + 2 * std::size_t(loaded.index[t]);
            fall[to] += up * double(most[0]) + down * double(most[1]);
            rise[to] += up * double(most[1]) + down * double(most[0]);
        };
        Size t = 0;
        for (; t + 4 <= row.nonzeros; t += 4)
            for (int to = 0; to < 4; ++to) add(t + to, to);
        for (; t < row.nonzeros; ++t) add(t, 0);
        Reach reach{(fall[0] + fall[1]) + (fall[2] + fall[3]),
                    (rise[0] + rise[1]) + (rise[2] + rise[3])};
        const double rounding = 1 + double(row.nonzeros + 8) * 0x1p-51;
        const double other = double(loaded.error) * growth_ + extra_;
        reach.fall = reach.fall * rounding + other + fall_;
        reach.rise = reach.rise * rounding + other + rise_[std::size_t(own)];
        return reach;
    }

    // Every block says how a pass over it went: its rows, of which so many got another label, and
    // so many had to be compared with all centres.
    void tell(Size rows, Size changed, Size left) const {
        rows_ += rows;
        changed_ += changed;
        left_ += left;
    }

private:
    static constexpr Size unit = 32;  // centres of a line of the cache
    static constexpr int longest_wait = 16;
    // Centres that could be compared while a row is looked up, and while it is summed up.
    static constexpr double look = 30, sum = 40;

    // What became of a centre: features whose packed values are others now, by how much at most,
    // and the length of the part that lowers scores and of the one that raises them.
    struct Step {
        std::vector<std::uint32_t> feature;
        std::vector<float> by;
        double fall2 = 0, rise2 = 0;
    };

    // Decides by what the last pass told, and how many are wild: as many as make looking at them
    // about as dear as comparing the rows that are left over with all, but not more than `most`.
    bool worth_sifting(Size moved, double most) {
        const double rows = double(rows_.exchange(0)), changed = double(changed_.exchange(0)),
                     left = double(left_.exchange(0));
        if (from_ < 0 || rows == 0 || changed * 4 > rows) return false;
        if (wait_ > 0) {
            --wait_;
            return false;
        }
        if (width_ == 0) width_ = moved;
        if (sifts_) {
            // Few rows at a time do not pay for bringing all centres into the cache.
            const double open = 2 * double(k_) * left / rows;
            if (open > 2 * double(width_)) width_ *= 2;
            if (4 * open < double(width_)) width_ /= 2;
            if (cost_ + open > 0.9 * double(k_)) {
                wait_ = patience_ = std::min(longest_wait, 2 * patience_);
                return false;
            }
            patience_ = 1;
        }
        for (;; width_ /= 2) {
            width_ = std::clamp<Size>((width_ + unit - 1) / unit * unit, unit, k_);
            const bool bounds = width_ + unit / 2 < moved;  // fewer are not worth a table
            wilds_ = bounds ? width_ : moved;
            cost_ = double(wilds_) + look + (bounds ? sum : 0);
            if (cost_ < 0.8 * double(k_) && double(padded<float>(wilds_)) <= most) return true;
            if (width_ == unit) return false;
        }
    }

    void compare(const Centroids<R>& centroids, const std::vector<Size>& moved,
                 const std::vector<float>& parts, const Threads& threads) {
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
        wild_.hold(centroids, std::move(looked));
        wild_.update(centroids, threads);
        bound(centroids, moved, bounded, changes, parts, threads);
    }

    Step step_of(const Centroids<R>& centroids, Size j) const {
        const SideBySide<R> both(then_[std::size_t(j)], centroids.nonzeros(j));
        Step step;
        step.feature = both.feature;
        step.by.resize(both.feature.size());
        for (std::size_t t = 0; t < both.feature.size(); ++t) {
            const Size f = Size(both.feature[t]);
            const double by = double(Layout<R>::packed(centroids.frame(), f, both.right[t])) -
                              double(Layout<R>::packed(centroids.frame(), f, both.left[t]));
            step.by[t] = float(by * (1 + 0x1p-22));
            (by < 0 ? step.fall2 : step.rise2) += by * by;
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
               const std::vector<float>& parts, const Threads& threads) {
        fall_ = growth_ = extra_ = 0;
        table_.clear();
        if (bounded.empty()) return;
        for (const Size m : bounded) {
            const std::size_t j = std::size_t(moved[std::size_t(m)]);
            const double start = started(centroids, Size(j));
            rise_[j] = start;
            fall_ = std::max(fall_, -start);
            growth_ = std::max(growth_, double(all_.parts()[j]) - double(parts[j]));
            extra_ = std::max({extra_, 0x1p-22 * double(start_[j]),
                               0x1p-22 * double(centroids.start()[Size(j)])});
        }
        table_.assign(std::size_t(2 * centroids.d()), 0.0f);
        const Size ranges = threads.n_jobs, width = centroids.d() / ranges + 1;
        threads.run(ranges, [&](Size r, int) {
            for (const Size m : bounded) {
                const Step& step = changes[std::size_t(m)];
                const auto at = [&](Size f) {
                    return std::size_t(std::lower_bound(step.feature.begin(), step.feature.end(),
                                                        std::uint32_t(f)) -
                                       step.feature.begin());
                };
                for (std::size_t t = at(r * width), end = at((r + 1) * width); t < end; ++t) {
                    const std::uint32_t f = step.feature[t];
                    float* most = table_.data() + 2 * std::size_t(f);
                    most[0] = std::max(most[0], -step.by[t]);
                    most[1] = std::max(most[1], step.by[t]);
                }
            }
        });
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
    Size width_ = 0, wilds_ = 0;  // wild centres: at most, and now
    double cost_ = 0;             // of a row, in comparisons with a centre
    int wait_ = 0, patience_ = 1;
    std::vector<float> table_;  // by feature: the most by which a tame centre fell, and rose
    // Of tame centres: the most by which starts fell, parts grew, and what starts' rounding comes
    // to; and by how much each start rose.
    double fall_ = 0, growth_ = 0, extra_ = 0;
    std::vector<double> rise_;
    std::vector<std::int32_t> place_;
    mutable std::atomic<Size> rows_ = 0, changed_ = 0, left_ = 0;
};

}  // namespace exactmeans
