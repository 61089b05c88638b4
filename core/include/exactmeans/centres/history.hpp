// The centres of the last pass over CSR rows, and their change since then.
//
// Between two passes many centres do not move, and most others move little. Scores with unmoved
// centres do not change. For the moved centres of a group, tabulate() gives per feature the largest
// fall and the largest rise of a value. Sums of these over a row bound the change of its scores;
// docs/proofs/delta_bounds.md derives the bounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/data/sparse_vector.hpp"

namespace exactmeans {

template <class R>
class CentreHistory {
public:
    explicit CentreHistory(Size k)
        : k_(k),
          is_moved_(std::size_t(k)),
          moved_in_(std::size_t(k), -1),
          previous_(std::size_t(k)),
          score_offset_(std::size_t(k)) {}

    // Begins a pass with these centres and finds those that moved; returns false if the last pass
    // had the same centres. Until finish() no version is known, so after an interrupted pass every
    // centre counts as moved.
    bool begin(const Centres<R>& centroids) {
        if (version_ == centroids.version()) return false;
        if (version_ < 0) std::fill(moved_in_.begin(), moved_in_.end(), Size(-1));
        from_ = version_ < 0 ? -1 : remembered_;
        version_ = remembered_ = -1;
        moved_.clear();
        for (Size j = 0; j < k_; ++j) {
            const std::size_t c = std::size_t(j);
            is_moved_[c] = moved_in_[c] != centroids.moved_in(j) ||
                           score_offset_[c] != centroids.score_offset()[j];
            if (is_moved_[c]) moved_.push_back(j);
        }
        return true;
    }
    // Keeps a copy of these centres, so that the next pass knows their change.
    void remember(const Centres<R>& centroids, const Threads& threads) {
        threads.ranges(Size(moved_.size()), 1, [&](Size m, Size, int) {
            const Size j = moved_[std::size_t(m)];
            if (moved_in_[std::size_t(j)] == centroids.moved_in(j)) return;
            if (centroids.sparse())
                previous_[std::size_t(j)] = centroids.sparse_master(j);
            else
                previous_[std::size_t(j)] = centroids.nonzeros(j);
            moved_in_[std::size_t(j)] = centroids.moved_in(j);
        });
        std::copy_n(centroids.score_offset(), k_, score_offset_.begin());
        remembered_ = centroids.version();
    }
    void finish(const Centres<R>& centroids) { version_ = centroids.version(); }

    // The change is known between the versions from() and version() of the centres. from() is -1 if
    // the centres of the last pass were not remembered.
    Size from() const { return from_; }
    Size version() const { return version_; }
    // The centres that moved between these two versions, ascending.
    const std::vector<Size>& moved() const { return moved_; }
    bool moved(Size j) const { return is_moved_[std::size_t(j)]; }

    // The remembered centres.
    const std::vector<SparseVector<R>>& previous() const { return previous_; }
    // The rise of the score offset of centre j since it was remembered.
    double score_offset_rise(const Centres<R>& centroids, Size j) const {
        return double(centroids.score_offset()[j]) - double(score_offset_[std::size_t(j)]);
    }

    // Squared norms of the change of a centre: over the values that fell, and over those that rose.
    struct ChangeNorms {
        double fall2 = 0, rise2 = 0;
    };
    // The change norms of each moved centre.
    std::vector<ChangeNorms> change_norms(const Centres<R>& centroids,
                                          const Threads& threads) const {
        std::vector<ChangeNorms> changes(moved_.size());
        threads.ranges(Size(moved_.size()), 1, [&](Size m, Size, int) {
            const Size j = moved_[std::size_t(m)];
            SparseVector<R> buffer;
            Position at;
            ChangeNorms change;
            walk(centroids, j, centroids.nonzeros(j, buffer), at, centroids.d(),
                 [&](Size, double by) {
                     const double fall = std::min(by, 0.0), rise = std::max(by, 0.0);
                     change.fall2 += fall * fall;
                     change.rise2 += rise * rise;
                 });
            changes[std::size_t(m)] = change;
        });
        return changes;
    }
    // Calls write(f, most) for each feature: most[g] is the largest fall of a value in group g
    // since the last pass, most[Groups + g] the largest rise, as upper halves of float32 values.
    // group(m) is the group of moved()[m]; centres with a negative group are left out. Returns the
    // underflow error per entry.
    template <int Groups, class Group, class Write>
    double tabulate(const Centres<R>& centroids, Group group, const Threads& threads, Write write) {
        const std::vector<Size>& moved = moved_;
        constexpr std::size_t width = 2 * Groups;
        const Size d = centroids.d(), range = d / threads.n_jobs + 1;
        most_.resize(std::size_t(d) * width);
        std::vector<SparseVector<R>> made(centroids.sparse() ? 0 : moved.size());
        for (std::size_t m = 0; m < made.size(); ++m) made[m] = centroids.nonzeros(moved[m]);
        std::vector<double> largest_of(static_cast<std::size_t>(threads.n_jobs), 0x1p-60);
        threads.ranges(d, range, [&](Size begin, Size end, int worker) {
            // A local copy, because workers share a cache line.
            double largest = largest_of[std::size_t(worker)];
            const auto now = [&](std::size_t m) -> const SparseVector<R>& {
                return made.empty() ? centroids.sparse_master(moved[m]) : made[m];
            };
            std::vector<Position> at(moved.size());
            for (std::size_t m = 0; m < moved.size(); ++m)
                at[m] = {first(previous_[std::size_t(moved[m])], begin), first(now(m), begin)};
            // The table of one block of features stays in L1.
            for (Size past; begin < end; begin = past) {
                past = std::min(end, begin + cost::table_block_values / Size(width));
                std::fill(most_.begin() + begin * Size(width), most_.begin() + past * Size(width),
                          0.0f);
                for (std::size_t m = 0; m < moved.size(); ++m) {
                    if (group(m) < 0) continue;
                    float* const fallen = most_.data() + group(m);
                    float* const risen = fallen + Groups;
                    walk(centroids, moved[m], now(m), at[m], past, [&](Size f, double by) {
                        const std::size_t row = std::size_t(f) * width;
                        const float most = float(by * (1 + 0x1p-22));
                        fallen[row] = std::max(fallen[row], -most);
                        risen[row] = std::max(risen[row], most);
                        largest = std::max(largest, std::abs(by));
                    });
                }
            }
            largest_of[std::size_t(worker)] = largest;
        });
        const double largest = *std::max_element(largest_of.begin(), largest_of.end());
        // Entries have a minimum, so that the kernels need not compute with subnormal numbers.
        const float least = float(largest * 0x1p-24);
        threads.ranges(d, range, [&](Size begin, Size end, int) {
            std::uint16_t half[width];
            for (Size f = begin; f < end; ++f) {
                const float* const own = most_.data() + std::size_t(f) * width;
                for (std::size_t g = 0; g < width; ++g)
                    half[g] = half_above(std::max(own[g], least));
                write(f, half);
            }
        });
        return std::max(1.0, largest) * 0x1p-140;
    }

private:
    // Rounds x up to a float32 whose lower half is 0, and returns the upper half.
    static std::uint16_t half_above(float x) {
        return std::uint16_t((std::bit_cast<std::uint32_t>(x) + 0xffff) >> 16);
    }

    // The progress of a walk: positions in the previous and in the current vector of a centre.
    struct Position {
        Size previous = 0, now = 0;
    };
    static Size first(const SparseVector<R>& vector, Size feature) {
        return std::lower_bound(vector.feature.begin(), vector.feature.end(),
                                std::uint32_t(feature)) -
               vector.feature.begin();
    }
    // Calls visit(f, rise) for the features below `past` that centre j has or had, from `at` on;
    // rise is the change of the packed value.
    template <class Visit>
    void walk(const Centres<R>& centroids, Size j, const SparseVector<R>& now, Position& at,
              Size past, Visit visit) const {
        if (moved_in_[std::size_t(j)] == centroids.moved_in(j))
            return;  // only its score offset changed
        const Frame<R>& frame = centroids.frame();
        if (frame.packs_as_is())
            walk(previous_[std::size_t(j)], now, at, past, visit,
                 [](Size, R value) { return -double(value); });
        else
            walk(previous_[std::size_t(j)], now, at, past, visit,
                 [&](Size f, R value) { return double(frame.packed(f, value)); });
    }
    template <class Visit, class Packed>
    static void walk(const SparseVector<R>& previous, const SparseVector<R>& now, Position& at,
                     Size past, Visit visit, Packed packed) {
        const std::uint32_t *const a = previous.feature.data(), *const b = now.feature.data();
        const Size na = previous.size(), nb = now.size();
        Size s = at.previous, t = at.now;
        const auto old_value = [&] { return packed(Size(a[s]), previous.value[std::size_t(s)]); };
        const auto new_value = [&] { return packed(Size(b[t]), now.value[std::size_t(t)]); };
        while (s < na && t < nb && Size(std::min(a[s], b[t])) < past) {
            // Most features are in both vectors, so this branch is predicted well.
            if (a[s] == b[t]) {
                visit(Size(a[s]), new_value() - old_value());
                ++s;
                ++t;
            } else if (a[s] < b[t]) {
                visit(Size(a[s]), -old_value());
                ++s;
            } else {
                visit(Size(b[t]), new_value());
                ++t;
            }
        }
        // At most one vector has features below `past` left.
        for (; s < na && Size(a[s]) < past; ++s) visit(Size(a[s]), -old_value());
        for (; t < nb && Size(b[t]) < past; ++t) visit(Size(b[t]), new_value());
        at = {s, t};
    }

    Size k_;
    std::vector<Size> moved_;
    std::vector<char> is_moved_;             // per centre
    std::vector<Size> moved_in_;             // moved_in(j) at the last pass
    std::vector<SparseVector<R>> previous_;  // the centres at the last pass
    std::vector<R> score_offset_;            // their score offsets
    Size version_ = -1, remembered_ = -1, from_ = -1;
    std::vector<float> most_;  // per feature and group; a buffer of tabulate()
};

}  // namespace exactmeans
