// How centres changed between two passes over CSR rows, and what that may do to scores.
//
// Between two passes many centres stay where they are, and most others go a little way. Scores with
// the first do not change. Of the others each feature has the most by which it fell and rose in any
// of them: sums of that over a row bound what its scores may have lost and gained.
// docs/numerics.md ("Centres that moved") derives the bounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/sparse.hpp"

namespace exactmeans {

template <class R>
class Steps {
public:
    Steps(const Centroids<R>& centroids, bool)
        : k_(centroids.k()),
          place_(std::size_t(k_)),
          moves_(std::size_t(k_), -1),
          then_(std::size_t(k_)),
          start_(std::size_t(k_)),
          rise_(std::size_t(k_)) {}
    bool dense() const { return false; }

    void update(const Centroids<R>& centroids, const Threads& threads) {
        if (!is_new(centroids)) return;
        const Told last = told();
        const std::vector<Size> moved = moved_centres(centroids);
        const bool calm = pays_soon(centroids, last);
        sifts_ = calm && from_ >= 0 && pays_now(last);
        if (sifts_) {
            const std::vector<Step> changes = compare(centroids, moved, threads);
            std::vector<Size> all(moved.size());
            std::iota(all.begin(), all.end(), Size(0));
            std::fill(place_.begin(), place_.end(), still);
            for (const Size j : moved) place_[std::size_t(j)] = tame;
            bound(centroids, moved, all, changes, threads);
        }
        if (calm) remember(centroids, moved, threads);
    }

    // Versions of the centres between which this is what changed; before the first there is none.
    Size from() const { return from_; }
    Size version() const { return version_; }
    // Is there anything below?
    bool sifts() const { return sifts_; }
    // Whether centre j moved; where it stands among the wild ones, if it is one (shifts.hpp).
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

    // Every block says how a pass over it went: its rows and their nonzeros, and how many rows got
    // another label and had to be compared with all centres.
    struct Told {
        Size rows, nonzeros, changed, left;
    };
    void tell(const Told& block) const {
        const std::lock_guard lock(told_mutex_);
        told_.rows += block.rows;
        told_.nonzeros += block.nonzeros;
        told_.changed += block.changed;
        told_.left += block.left;
    }

protected:
    const Size k_;
    bool sifts_ = false;
    std::vector<std::int32_t> place_;

    // What became of a centre: features whose packed values are others now, by how much at most,
    // and the length of the part that lowers scores and of the one that raises them.
    struct Step {
        std::vector<std::uint32_t> feature;
        std::vector<float> by;
        double fall2 = 0, rise2 = 0, largest = 0;
    };

    Told told() { return std::exchange(told_, {}); }

    // Takes note of the centres' version; false if it is known.
    bool is_new(const Centroids<R>& centroids) {
        if (version_ == centroids.version()) return false;
        from_ = remembered_;
        version_ = centroids.version();
        remembered_ = -1;
        return true;
    }
    std::vector<Size> moved_centres(const Centroids<R>& centroids) const {
        std::vector<Size> moved;
        for (Size j = 0; j < k_; ++j)
            if (moves_[std::size_t(j)] != centroids.moves(j) ||
                start_[std::size_t(j)] != centroids.start()[j])
                moved.push_back(j);
        return moved;
    }
    // The centres as they were.
    const std::vector<SparseVector<R>>& then() const { return then_; }
    void remember(const Centroids<R>& centroids, const std::vector<Size>& moved,
                  const Threads& threads) {
        threads.ranges(Size(moved.size()), 1, [&](Size m, Size, int) {
            const Size j = moved[std::size_t(m)];
            if (moves_[std::size_t(j)] == centroids.moves(j)) return;
            then_[std::size_t(j)] = centroids.nonzeros(j);
            moves_[std::size_t(j)] = centroids.moves(j);
        });
        std::copy_n(centroids.start(), k_, start_.begin());
        remembered_ = version_;
    }

    std::vector<Step> compare(const Centroids<R>& centroids, const std::vector<Size>& moved,
                              const Threads& threads) const {
        std::vector<Step> changes(moved.size());
        threads.ranges(Size(moved.size()), 1, [&](Size m, Size, int) {
            const Size j = moved[std::size_t(m)];
            if (moves_[std::size_t(j)] != centroids.moves(j))
                changes[std::size_t(m)] = step_of(centroids, j);
        });
        return changes;
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

private:
    static constexpr int longest_wait = 16;

    // Centres are worth remembering when most labels stay, and when comparing them with what they
    // were, and a table of all features, take little beside comparing all rows with them.
    bool pays_soon(const Centroids<R>& centroids, const Told& last) const {
        Size nonzeros = centroids.sparse() ? 0 : k_ * centroids.d();
        for (const SparseVector<R>& centre : centroids.sparse_master()) nonzeros += centre.size();
        return last.rows > 0 && 8 * last.changed <= last.rows &&
               centroids.d() <= 4 * last.nonzeros &&
               double(last.nonzeros) * double(k_) >= 500 * double(nonzeros);
    }
    // Looks at the table are of use when hardly any label changes, and for as long as they settle
    // many rows.
    bool pays_now(const Told& last) {
        if (32 * last.changed > last.rows) return false;
        if (wait_ > 0) {
            --wait_;
            return false;
        }
        if (!sifts_) return true;
        if (5 * last.left <= 3 * last.rows) {
            patience_ = 1;
            return true;
        }
        wait_ = patience_;
        patience_ = std::min(2 * patience_, longest_wait);
        return false;
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

    std::vector<Size> moves_;            // of each centre, when it was
    std::vector<SparseVector<R>> then_;  // like this
    std::vector<R> start_;               // and its scores started here
    Size version_ = -1, remembered_ = -1, from_ = -1;
    int wait_ = 0, patience_ = 1;
    // By feature: the most by which a tame centre fell, and rose, in half a float32 each.
    std::vector<float> table_;
    // Of tame centres: the most by which starts fell, and what their rounding comes to; what
    // underflow of an entry does; and by how much each start rose.
    double fall_ = 0, extra_ = 0, tiny_ = 0;
    std::vector<double> rise_;
    mutable std::mutex told_mutex_;
    mutable Told told_{};
};

}  // namespace exactmeans
