// Labels one range of rows by groups of centres. Survivors are compared with their own group, the
// one of the label, and then with the groups that are still in reach. Each group is compared at
// once with all rows that have it in reach. If `Projected`, projections are compared with a group
// before the rows are (project/projections.hpp).
#pragma once

#include <limits>
#include <numeric>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/group_filter.hpp"
#include "exactmeans/assign/survivors.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/project/projections.hpp"

namespace exactmeans {

template <class Rows, class Grouping, bool Projected>
struct GroupRange : Survivors<typename Rows::Real, Grouping> {
    using R = typename Rows::Real;
    using Base = Survivors<R, Grouping>;
    using Base::bounds, Base::id, Base::bound, Base::reach, Base::groups_in_reach, Base::workspace,
        Base::find_reach, Base::within;
    // Positions in `id`.
    using Picks = std::vector<std::int32_t>;

    const Work<Rows>& work;
    Scan<Rows>& scan;
    const Projections<R>* projections;
    const GroupFilter<R, Grouping>* filter;  // null: canonical scores give the bounds
    ScoredRows<R> scored = work.slacks.scored();
    AssignStats stats{};

    // The nearest centre so far of each row: its score, its number, and the second score in its
    // group.
    std::vector<R>&score = workspace.score, &second = workspace.second;
    Picks& label = workspace.label;
    Picks& own_group = workspace.own_group;  // compared before all others
    // Rows that are compared with other groups too, and their best score in their own group.
    Picks& remaining = workspace.remaining;
    std::vector<R>& own_group_score = workspace.own_group_score;
    std::vector<float>&near = workspace.near, &far = workspace.far;
    std::vector<Size>& picked_id = workspace.picked_id;
    std::vector<Picks>& picks = workspace.picks;  // per group: the rows to compare with it
    typename Projections<R>::Buffers projected{};

    AssignStats run(Size begin, Size end) {
        this->find(begin, end);
        stats.skipped = end - begin - Size(id.size());
        if constexpr (is_dense<Rows> && GroupFilter<R, Grouping>::possible)
            if (filter) bound_by_filter();
        const Size before = stats.distances;
        label_by_groups();
        // Rows that the filter left undecided.
        if (filter) stats.verified += stats.distances - before;
        return stats;
    }

private:
    const Grouping& groups() const { return bounds.groups(); }

    // Compares the rows in `id` with the groups in reach.
    void label_by_groups() {
        if (id.empty()) return;
        const std::size_t count = id.size();
        scan.load(work, groups().panels(), 0, id.data(), Size(count));
        score.assign(count, std::numeric_limits<R>::infinity());
        second.assign(count, std::numeric_limits<R>::infinity());
        // A row without a finite score has label 0, the lowest of equals.
        label.assign(count, 0);
        own_group.resize(count);
        remaining.clear();
        picks.resize(std::size_t(groups().count()));
        if (work.labels[id[0]] < 0 && !Projected) {
            compare_unlabelled();
        } else {
            find_own_groups();
            compare_with_own_groups();
            pick_groups_in_reach();
            compare_with_picks();
        }
        store_remaining();
    }

    // Sets labels and bounds by the 8-bit filter, a few rows at a time, so that their bounds stay
    // in L1. Afterwards `id` has the rows that the filter did not decide.
    void bound_by_filter() {
        constexpr std::size_t step = std::size_t(cost::group_bounds_rows);
        const std::vector<Size> all = id;
        std::vector<Size> rest;
        for (std::size_t begin = 0; begin < all.size(); begin += step) {
            id.assign(all.begin() + Size(begin),
                      all.begin() + Size(std::min(all.size(), begin + step)));
            bound_some_by_filter();
            for (const Size t : scan.dense_bounds.undecided) rest.push_back(id[std::size_t(t)]);
        }
        id = rest;
    }
    void bound_some_by_filter() {
        const std::size_t count = id.size(), all = std::size_t(groups().count());
        label.assign(count, -1);
        std::vector<R> best(count), lows(count * all);
        const FilterStats filtered =
            filter->run(work, scan.dense_bounds, id, [&](Size t, const BoundedRow<R>& row) {
                const std::size_t at = std::size_t(t);
                label[at] = filter->centre(row.place());
                best[at] = row.upper();
                for (std::size_t g = 0; g < all; ++g)
                    lows[g * count + at] = filter->lower(row, Size(g));
            });
        stats.add(filtered, 0);
        near.resize(count);
        bound.resize(count);
        score_kernels<R>().upper_bounds(scored, id.data(), best.data(), Size(count), near.data());
        for (std::size_t g = 0; g < all; ++g) {
            score_kernels<R>().lower_bounds(scored, id.data(), lows.data() + g * count, Size(count),
                                            bound.data());
            for (std::size_t t = 0; t < count; ++t)
                if (label[t] >= 0) bounds.set_lower(id[t], Size(g), bound[t]);
        }
        for (std::size_t t = 0; t < count; ++t) {
            if (label[t] < 0) continue;
            float least;
            within(id[t], label[t], near[t], -2 * unreachable, least);
            store(t, near[t], least);
        }
    }

    // Computes the scores of the picked rows with group g; the results are in `scan`.
    void score_group(Size g, const Picks& picked) {
        groups().compare(scan, g, picked.data(), Size(picked.size()));
        stats.distances += Size(picked.size()) * groups().size(g);
    }

    // Compares the picked rows with group g: updates their nearest centre and stores the group's
    // lower bound.
    void compare(Size g, const Picks& picked) {
        if (picked.empty()) return;
        score_group(g, picked);
        set_picked_ids(picked);
        bound.resize(picked.size());
        score_kernels<R>().lower_bounds(scored, picked_id.data(), scan.score.data(),
                                        Size(picked.size()), bound.data());
        for (std::size_t t = 0; t < picked.size(); ++t) {
            const std::size_t at = std::size_t(picked[t]);
            bounds.set_lower(picked_id[t], g, bound[t]);
            const std::int32_t j = groups().centre(scan.label[t]);
            const R found = scan.score[t];
            if (!(found < score[at] || (found == score[at] && j < label[at]))) continue;
            score[at] = found;
            second[at] = scan.second[t];
            label[at] = j;
        }
    }

    void set_picked_ids(const Picks& picked) {
        picked_id.resize(picked.size());
        for (std::size_t t = 0; t < picked.size(); ++t) picked_id[t] = id[std::size_t(picked[t])];
    }

    // Rows without labels: compares each group with the rows whose best centre so far does not
    // prune the group by inter-centre distances.
    void compare_unlabelled() {
        Picks picked(id.size()), best(id.size(), -1);
        std::iota(picked.begin(), picked.end(), 0);
        remaining = picked;
        std::vector<float> limit(id.size());
        compare(0, picked);
        for (Size g = 1; g < groups().count(); ++g) {
            limit_reach(picked, best, limit);
            picked.clear();
            for (std::size_t t = 0; t < id.size(); ++t)
                if (!(bounds.centre_distances().of(label[t])[g] > limit[t]))
                    picked.push_back(std::int32_t(t));
            compare(g, picked);
        }
        for (std::size_t t = 0; t < id.size(); ++t) own_group[t] = groups().group(label[t]);
        own_group_score = score;
    }

    // Sets limit[t] for the picked rows whose best centre is new: groups farther than the limit
    // from the best centre are out of reach.
    void limit_reach(const Picks& picked, Picks& best, std::vector<float>& limit) {
        Picks changed;
        std::vector<R> found;
        for (const std::int32_t t : picked) {
            const std::size_t at = std::size_t(t);
            if (label[at] == best[at]) continue;
            best[at] = label[at];
            changed.push_back(t);
            found.push_back(score[at]);
        }
        set_picked_ids(changed);
        bound.resize(picked_id.size());
        score_kernels<R>().upper_bounds(scored, picked_id.data(), found.data(),
                                        Size(picked_id.size()), bound.data());
        find_reach(picked_id, bound);
        for (std::size_t t = 0; t < picked_id.size(); ++t)
            limit[std::size_t(changed[t])] = (bound[t] + reach[t]) * up32;
    }

    // Sets the own group of each row: the group of its label, or without labels the group with the
    // nearest projection.
    void find_own_groups() {
        if (work.labels[id[0]] >= 0) {
            for (std::size_t t = 0; t < id.size(); ++t)
                own_group[t] = groups().group(work.labels[id[t]]);
            return;
        }
        if constexpr (Projected) {
            std::vector<float> least(id.size(), std::numeric_limits<float>::infinity());
            for (Size g = 0; g < groups().count(); ++g) {
                projections->compare(g, id, projected);
                for (std::size_t t = 0; t < id.size(); ++t) {
                    bounds.set_lower(id[t], g, projected.far[t]);
                    if (!(projected.far[t] < least[t])) continue;
                    least[t] = projected.far[t];
                    own_group[t] = std::int32_t(g);
                }
            }
        }
    }

    // The lower bound of the own group comes from the second score, because its best centre is the
    // label so far.
    void compare_with_own_groups() {
        for (std::size_t t = 0; t < id.size(); ++t)
            picks[std::size_t(own_group[t])].push_back(std::int32_t(t));
        for (std::size_t g = 0; g < picks.size(); ++g) {
            if (picks[g].empty()) continue;
            score_group(Size(g), picks[g]);
            for (std::size_t t = 0; t < picks[g].size(); ++t) {
                const std::size_t at = std::size_t(picks[g][t]);
                if (!(scan.score[t] < score[at])) continue;
                score[at] = scan.score[t];
                second[at] = scan.second[t];
                label[at] = groups().centre(scan.label[t]);
            }
            picks[g].clear();
        }
        bound_both(id, score, second);
        for (std::size_t t = 0; t < id.size(); ++t) bounds.set_lower(id[t], own_group[t], far[t]);
    }

    // Sets near to upper bounds from the best scores, far to lower bounds from the next ones.
    void bound_both(const std::vector<Size>& ids, const std::vector<R>& best,
                    const std::vector<R>& next) {
        near.resize(ids.size());
        far.resize(ids.size());
        score_kernels<R>().upper_bounds(scored, ids.data(), best.data(), Size(ids.size()),
                                        near.data());
        score_kernels<R>().lower_bounds(scored, ids.data(), next.data(), Size(ids.size()),
                                        far.data());
    }

    // Picks the other groups in reach, given the best centre of the own group. Stores the results
    // of rows without any, which are most.
    void pick_groups_in_reach() {
        own_group_score.clear();
        find_reach(id, near);
        for (std::size_t t = 0; t < id.size(); ++t) {
            float least;
            const Size found = within(id[t], label[t], near[t], reach[t], least);
            bool any = false;
            for (Size f = 0; f < found; ++f) {
                const std::int32_t g = groups_in_reach[std::size_t(f)];
                // If the reach is infinite, padding is in reach too.
                if (g == own_group[t] || g >= groups().count()) continue;
                picks[std::size_t(g)].push_back(std::int32_t(t));
                any = true;
            }
            if (any) {
                remaining.push_back(std::int32_t(t));
                own_group_score.push_back(score[t]);
            } else {
                store(t, near[t], least);
            }
        }
    }

    void compare_with_picks() {
        for (std::size_t g = 0; g < picks.size(); ++g) {
            if constexpr (Projected) prune_by_projection(Size(g), picks[g]);
            compare(Size(g), picks[g]);
            picks[g].clear();
        }
    }

    // Drops picked rows whose projection is out of reach of the group's projections.
    void prune_by_projection(Size g, Picks& picked) {
        if (picked.empty()) return;
        set_picked_ids(picked);
        projections->compare(g, picked_id, projected);
        std::size_t kept = 0;
        for (std::size_t t = 0; t < picked.size(); ++t) {
            if (projected.far[t] > reach[std::size_t(picked[t])])
                bounds.set_lower(picked_id[t], g, projected.far[t]);
            else
                picked[kept++] = picked[t];
        }
        picked.resize(kept);
    }

    // Stores labels and bounds of the remaining rows.
    void store_remaining() {
        if (remaining.empty()) return;
        set_picked_ids(remaining);
        bound.resize(remaining.size());
        // If the nearest centre is in another group, the best score in the own group is its lower
        // bound.
        score_kernels<R>().lower_bounds(scored, picked_id.data(), own_group_score.data(),
                                        Size(remaining.size()), bound.data());
        std::vector<R> best, next;
        for (const std::int32_t t : remaining) {
            best.push_back(score[std::size_t(t)]);
            next.push_back(second[std::size_t(t)]);
        }
        bound_both(picked_id, best, next);
        for (std::size_t t = 0; t < remaining.size(); ++t) {
            const std::size_t at = std::size_t(remaining[t]);
            const Size i = id[at], j = label[at], g = groups().group(j);
            if (g != own_group[at]) bounds.set_lower(i, own_group[at], bound[t]);
            bounds.set_lower(i, g, far[t]);
            float least;
            within(i, j, near[t], -2 * unreachable, least);
            store(at, near[t], least);
        }
    }

    void store(std::size_t at, float upper, float least) {
        const Size i = id[at];
        stats.changed += work.labels[i] != label[at];
        work.labels[i] = label[at];
        bounds.set_upper(i, label[at], upper);
        bounds.set_least(i, label[at], least);
    }
};

}  // namespace exactmeans
