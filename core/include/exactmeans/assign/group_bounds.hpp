// Bounds of rows by groups of centres: per row an upper bound of the distance to its own centre,
// and per row and group a lower bound of the distance to the other centres of the group. The drift
// since a bound was stored is applied when the bound is read (centres/drift.hpp), so a pass writes
// nothing for a pruned row. Inter-centre distances (scan/inter_centre_distances.hpp) bound the same
// distances without memory per row. Memory: four bytes per row and group, and eight per row.
//
// A Grouping<R> is Groups or SingleCentres, layouts of the cache. It offers count, group, size,
// centre and copy; `partition`, to which bounds belong; `panels`, for which rows are loaded;
// `compare`, which compares loaded rows with a group, with second scores; and
// `distances_always_pay`: whether inter-centre distances pay in every pass.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
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
          own_drift_(k),
          others_drift_(k),
          copy_(std::size_t(k), 0) {}

    Size rows() const { return n_; }
    bool empty() const { return lower_.empty(); }
    // True in the first pass with these groups: no bound is set yet.
    bool fresh() const { return fresh_; }
    // Entries per row: the groups, padded to whole SIMD vectors.
    Size pitch() const { return pitch_; }
    const Grouping& groups() const { return *groups_; }
    const InterCentreDistances<R>& centre_distances() const { return *centre_distances_; }
    static Size bytes_per_row(Size groups) { return 4 * padded<float>(groups) + 8; }

    void update(SharedCentres<R>& shared, double unit, bool dense, bool with_distances,
                const Threads& threads) {
        groups_ = nullptr;  // released, so that the cache updates it in place
        groups_ = shared.layouts.template get<Grouping>(shared.centres, dense, threads);
        // Bounds belong to one partition: a new one drops them.
        fresh_ = empty() || groups_->partition() != partition_;
        partition_ = groups_->partition();
        if (fresh_)
            reset();
        else
            reset_former_copies(threads);
        for (Size j = 0; j < k_; ++j) copy_[std::size_t(j)] = groups_->copy(j);
        if (with_distances)
            centre_distances_->update(*groups_, shared, unit, threads);
        else
            centre_distances_->forget();
    }

    // Stores the bounds that follow from inter-centre distances, before the first pass without
    // these distances. Earlier passes pruned groups by inter-centre distances and did not renew
    // their stored bounds, which are loose by now: without this step nearly all rows would be
    // compared with nearly all groups.
    void store_centre_distances(const std::int32_t* labels, const Threads& threads) {
        threads.ranges(n_, cost::bounds_per_batch, [&](Size begin, Size end, int) {
            for (Size i = begin; i < end; ++i) {
                const GroupLowerBounds known = lowers(i, labels[i], upper(i, labels[i]));
                for (Size g = 0; g < groups_->count(); ++g) {
                    const float far = known.centre_distance[g] - known.near;
                    if (far > known.lower[g] - known.drift[g]) set_lower(i, g, far * down32);
                }
            }
        });
    }

    void moved(const Movement& movement, double unit) {
        groups_ = nullptr;
        if (empty()) return;
        const Size count = partition_->count();
        std::vector<double> farthest(static_cast<std::size_t>(count));
        TwoFarthest any;
        for (Size j = 0; j < k_; ++j) {
            const double distance = movement.distance[std::size_t(j)] * unit;
            if (distance > 0) own_drift_.add(j, distance);
            if (copy_[std::size_t(j)]) continue;
            double& most = farthest[std::size_t(partition_->group(j))];
            most = std::max(most, distance);
            any.add(j, distance);
        }
        for (Size g = 0; g < count; ++g) group_drift_.add(g, farthest[std::size_t(g)]);
        for (Size j = 0; j < k_; ++j) others_drift_.add(j, any.of_others(j));
    }

    // All rows with one lower bound each, the least of all groups.
    BoundRows summary(const std::int32_t* labels, const Margins& margins) const {
        return {labels,
                upper_.data(),
                least_.data(),
                own_drift_.sums(),
                others_drift_.sums(),
                centre_distances_->nearest(),
                margins};
    }
    // Upper bound of the distance from row i to its own centre j.
    float upper(Size i, Size j) const {
        const float bound = (upper_[std::size_t(i)] + own_drift_.sums()[j]) * up32;
        return bound < 0 ? 0.0f : bound;
    }
    // Lower bounds per group of row i, whose distance to its own centre j is at most `near`.
    GroupLowerBounds lowers(Size i, Size j, float near) const {
        return {lower_.data() + i * pitch_, group_drift_.sums(), centre_distances_->of(j), near};
    }

    void set_upper(Size i, Size j, float bound) {
        upper_[std::size_t(i)] = own_drift_.store_upper(j, bound);
    }
    void set_lower(Size i, Size g, float bound) {
        lower_[std::size_t(i * pitch_ + g)] = group_drift_.store_lower(g, bound);
    }
    // Stores the least lower bound of all groups, of row i with label j.
    void set_least(Size i, Size j, float least) {
        least_[std::size_t(i)] = others_drift_.store_lower(j, least * (least > 0 ? down32 : up32));
    }

private:
    void reset() {
        pitch_ = padded<float>(groups_->count());
        std::fill(upper_.begin(), upper_.end(), std::numeric_limits<float>::infinity());
        std::fill(least_.begin(), least_.end(), 0.0f);
        // Padding is `unreachable`; groups have no bound yet.
        lower_.assign(std::size_t(n_ * pitch_), unreachable);
        for (Size i = 0; i < n_; ++i)
            std::fill_n(lower_.begin() + i * pitch_, groups_->count(), -unreachable);
        group_drift_ = Drift(pitch_);
        centre_distances_ = std::make_unique<InterCentreDistances<R>>(k_, pitch_);
    }

    // Bounds do not hold for copies of other centres. A centre that is no longer a copy may be
    // anywhere, so the bounds of its group are reset.
    void reset_former_copies(const Threads& threads) {
        std::vector<char> is_void(static_cast<std::size_t>(pitch_), 0);
        bool any = false;
        for (Size j = 0; j < k_; ++j) {
            if (!copy_[std::size_t(j)] || groups_->copy(j)) continue;
            is_void[std::size_t(groups_->group(j))] = 1;
            any = true;
        }
        if (!any) return;
        threads.ranges(n_, cost::bounds_per_batch, [&](Size begin, Size end, int) {
            for (Size i = begin; i < end; ++i) {
                least_[std::size_t(i)] = -unreachable;
                for (Size g = 0; g < pitch_; ++g)
                    if (is_void[std::size_t(g)]) lower_[std::size_t(i * pitch_ + g)] = -unreachable;
            }
        });
    }

    Size n_, k_, pitch_ = 0;
    bool fresh_ = true;
    std::shared_ptr<const Grouping> groups_;  // during a pass
    std::shared_ptr<const typename Grouping::Partition> partition_;
    std::vector<float> lower_, upper_, least_;
    Drift own_drift_, others_drift_, group_drift_{0};
    std::unique_ptr<InterCentreDistances<R>> centre_distances_;
    std::vector<char> copy_;  // copies of other centres, for which the bounds do not hold
};

}  // namespace exactmeans
