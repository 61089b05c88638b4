// Centres as they were at the last pass over CSR rows, and what became of them since.
//
// Between two passes many centres stay where they are, and most others go a little way. Scores with
// the first do not change. Of the others each feature has the most by which it fell and rose in any
// of a group of them: sums of that over a row bound what its scores may have lost and gained.
// docs/numerics.md ("Centres that moved") derives the bounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/sparse.hpp"

namespace exactmeans {

template <class R>
class Trail {
public:
    explicit Trail(const Centroids<R>& centroids)
        : k_(centroids.k()),
          moved_(std::size_t(k_)),
          moves_(std::size_t(k_), -1),
          then_(std::size_t(k_)),
          start_(std::size_t(k_)) {}
    bool dense() const { return false; }

    // Versions of the centres between which this is what changed; before the first there is none.
    Size from() const { return from_; }
    Size version() const { return version_; }
    // Is there a table of it?
    bool sifts() const { return sifts_; }
    bool moved(Size j) const { return moved_[std::size_t(j)]; }

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
    std::vector<Size> moved_centres(const Centroids<R>& centroids) {
        std::vector<Size> moved;
        for (Size j = 0; j < k_; ++j) {
            moved_[std::size_t(j)] = moves_[std::size_t(j)] != centroids.moves(j) ||
                                     start_[std::size_t(j)] != centroids.start()[j];
            if (moved_[std::size_t(j)]) moved.push_back(j);
        }
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
    // By how much the start of a centre's scores rose.
    double started(const Centroids<R>& centroids, Size j) const {
        return double(centroids.start()[j]) - double(start_[std::size_t(j)]);
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
    // Calls write(f, most) for each of d features, where most[g] is the most by which a step of
    // group g fell, and most[Groups + g] by which it rose, in first halves of float32s; group(m) is
    // that of step m, negative if it is left out. Returns what underflow of an entry does.
    template <int Groups, class Group, class Write>
    static double tabulate(Size d, const std::vector<Step>& steps, Group group,
                           const Threads& threads, Write write) {
        double largest = 0x1p-60;
        for (std::size_t m = 0; m < steps.size(); ++m)
            if (group(m) >= 0) largest = std::max(largest, steps[m].largest);
        // None is so small that kernels would meet numbers below the normal ones.
        const float least = float(largest * 0x1p-24);
        constexpr std::size_t width = 2 * Groups;
        threads.ranges(d, d / threads.n_jobs + 1, [&](Size begin, Size end, int) {
            std::vector<float> most(static_cast<std::size_t>(end - begin) * width, least);
            for (std::size_t m = 0; m < steps.size(); ++m) {
                if (group(m) < 0) continue;
                const Step& step = steps[m];
                const auto at = [&](Size f) {
                    return std::size_t(std::lower_bound(step.feature.begin(), step.feature.end(),
                                                        std::uint32_t(f)) -
                                       step.feature.begin());
                };
                float *const fallen = most.data() + group(m), *const risen = fallen + Groups;
                for (std::size_t t = at(begin), past = at(end); t < past; ++t) {
                    const std::size_t f = std::size_t(Size(step.feature[t]) - begin) * width;
                    fallen[f] = std::max(fallen[f], -step.by[t]);
                    risen[f] = std::max(risen[f], step.by[t]);
                }
            }
            std::uint16_t half[width];
            for (Size f = begin; f < end; ++f) {
                const float* const own = most.data() + std::size_t(f - begin) * width;
                for (std::size_t g = 0; g < width; ++g) half[g] = half_above(own[g]);
                write(f, half);
            }
        });
        return std::max(1.0, largest) * 0x1p-140;
    }

private:
    // The first half of a float32 that is not below this one.
    static std::uint16_t half_above(float x) {
        return std::uint16_t((std::bit_cast<std::uint32_t>(x) + 0xffff) >> 16);
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

    std::vector<char> moved_;            // since the last pass, each centre
    std::vector<Size> moves_;            // of each centre, when it was
    std::vector<SparseVector<R>> then_;  // like this
    std::vector<R> start_;               // and its scores started here
    Size version_ = -1, remembered_ = -1, from_ = -1;
    mutable std::mutex told_mutex_;
    mutable Told told_{};
};

}  // namespace exactmeans
