// What rows remember of groups of centres: an upper bound of the distance to the own centre, and a
// lower bound per group of the distance to that group's other centres. Bounds hold with the drift
// of their group since they were set (centres/drift.hpp), so rows that nobody looks at cost
// nothing. Gaps between centres (scan/inter_centre_distances.hpp) bound the same distances without
// memory of rows.
//
// A Grouping<R> offers what Groups and Singles do: count, group, size, centre, copy; `of`, brought
// up to date with the centres; the panels that rows are looked up in; `compare`, loaded rows
// against a group, with a second; and whether gaps are worth their cost in every pass.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/centres/drift.hpp"
#include "exactmeans/scan/inter_centre_distances.hpp"

namespace exactmeans {

template <class R, class Grouping>
class GroupBounds {
public:
    GroupBounds(Size n, Size k)
        : n_(n),
          k_(k),
          upper_(std::size_t(n), std::numeric_limits<float>::infinity()),
          least_(std::size_t(n), 0.0f),
          own_(k),
          others_(k),
          copy_(std::size_t(k), 0) {}

    Size rows() const { return n_; }
    bool empty() const { return lower_.empty(); }
    // Do bounds begin with this pass?
    bool fresh() const { return fresh_; }
    // Entries of a row: groups, and what fills whole vectors.
    Size pitch() const { return pitch_; }
    const Grouping& groups() const { return *groups_; }
    const std::shared_ptr<const Grouping>& shared_groups() const { return groups_; }
    const InterCentreDistances<R>& gaps() const { return *gaps_; }
    static Size bytes_per_row(Size groups) { return 4 * padded<float>(groups) + 8; }

    void look_at_centres(const Centres<R>& centroids, double unit, bool dense, bool with_gaps,
                         const Threads& threads) {
        std::shared_ptr<const Grouping> groups = Grouping::of(centroids, dense, threads);
        // Bounds belong to groups, and a grouping that was made anew is another one.
        fresh_ = empty() || groups != groups_;
        groups_ = std::move(groups);
        if (fresh_)
            begin();
        else
            admit(threads);
        for (Size j = 0; j < k_; ++j) copy_[std::size_t(j)] = groups_->copy(j);
        if (with_gaps)
            gaps_->update(*groups_, centroids, unit, threads);
        else
            gaps_->forget();
    }

    // Turns what gaps say of every row into bounds. Groups that gaps kept out of reach have old
    // ones, and without gaps nearly all rows would be compared with nearly all groups.
    void keep_gaps(const std::int32_t* labels, const Threads& threads) {
        threads.ranges(n_, 4096, [&](Size begin, Size end, int) {
            for (Size i = begin; i < end; ++i) {
                const Lowers known = lowers(i, labels[i], upper(i, labels[i]));
                for (Size g = 0; g < groups_->count(); ++g) {
                    const float far = known.gap[g] - known.near;
                    if (far > known.lower[g] - known.drift[g]) set_lower(i, g, far * down32);
                }
            }
        });
    }

    void moved(const Movement& movement, double unit) {
        std::vector<double> farthest(static_cast<std::size_t>(groups_->count()));
        TwoFarthest any;
        for (Size j = 0; j < k_; ++j) {
            const double went = movement.distance[std::size_t(j)] * unit;
            if (went > 0) own_.add(j, went);
            if (copy_[std::size_t(j)]) continue;
            double& most = farthest[std::size_t(groups_->group(j))];
            most = std::max(most, went);
            any.add(j, went);
        }
        for (Size g = 0; g < groups_->count(); ++g) drift_.add(g, farthest[std::size_t(g)]);
        for (Size j = 0; j < k_; ++j) others_.add(j, any.of_others(j));
    }

    // All rows, one lower bound each.
    BoundRows summary(const std::int32_t* labels, const Margins& margins) const {
        return {labels,         upper_.data(),    least_.data(), own_.sums(),
                others_.sums(), gaps_->nearest(), margins};
    }
    // How far row i may be from its own centre j.
    float upper(Size i, Size j) const {
        const float bound = (upper_[std::size_t(i)] + own_.sums()[j]) * up32;
        return bound < 0 ? 0.0f : bound;
    }
    // Of row i, which is at most `near` away from centre j, per group.
    Lowers lowers(Size i, Size j, float near) const {
        return {lower_.data() + i * pitch_, drift_.sums(), gaps_->of(j), near};
    }

    void set_upper(Size i, Size j, float bound) {
        upper_[std::size_t(i)] = own_.store_upper(j, bound);
    }
    void set_lower(Size i, Size g, float bound) {
        lower_[std::size_t(i * pitch_ + g)] = drift_.store_lower(g, bound);
    }
    // The least of what groups are bounded by, of a row with label j.
    void set_least(Size i, Size j, float least) {
        least_[std::size_t(i)] = others_.store_lower(j, least * (least > 0 ? down32 : up32));
    }

private:
    void begin() {
        pitch_ = padded<float>(groups_->count());
        std::fill(upper_.begin(), upper_.end(), std::numeric_limits<float>::infinity());
        std::fill(least_.begin(), least_.end(), 0.0f);
        // Nothing is known of groups, and nothing is where entries only fill vectors.
        lower_.assign(std::size_t(n_ * pitch_), unreachable);
        for (Size i = 0; i < n_; ++i)
            std::fill_n(lower_.begin() + i * pitch_, groups_->count(), -unreachable);
        drift_ = Drift(pitch_);
        gaps_ = std::make_unique<InterCentreDistances<R>>(k_, pitch_);
    }

    // Bounds were made without copies of other centres. One that has become a centre of its own may
    // be anywhere: nothing is known of its group.
    void admit(const Threads& threads) {
        std::vector<char> unknown(static_cast<std::size_t>(pitch_), 0);
        bool any = false;
        for (Size j = 0; j < k_; ++j) {
            if (!copy_[std::size_t(j)] || groups_->copy(j)) continue;
            unknown[std::size_t(groups_->group(j))] = 1;
            any = true;
        }
        if (!any) return;
        threads.ranges(n_, 4096, [&](Size begin, Size end, int) {
            for (Size i = begin; i < end; ++i) {
                least_[std::size_t(i)] = -unreachable;
                for (Size g = 0; g < pitch_; ++g)
                    if (unknown[std::size_t(g)]) lower_[std::size_t(i * pitch_ + g)] = -unreachable;
            }
        });
    }

    Size n_, k_, pitch_ = 0;
    bool fresh_ = true;
    std::shared_ptr<const Grouping> groups_;
    std::vector<float> lower_, upper_, least_;
    Drift own_, others_, drift_{0};
    std::unique_ptr<InterCentreDistances<R>> gaps_;
    std::vector<char> copy_;  // centres that the bounds leave out
};

}  // namespace exactmeans
