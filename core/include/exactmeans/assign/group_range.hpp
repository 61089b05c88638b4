// One range of rows against groups of centres: rows that bounds do not settle are compared with the
// group of their label, and then with those groups only that are still in reach. Each group is
// compared with all rows that need it at once. If `Sifted`, shadows are compared before rows are
// (project/projections.hpp).
#pragma once

#include <limits>
#include <numeric>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/survivors.hpp"
#include "exactmeans/project/projections.hpp"

namespace exactmeans {

template <class Rows, class Grouping, bool Projected>
struct GroupRange : Survivors<typename Rows::Real, Grouping> {
    using R = typename Rows::Real;
    using Open = Survivors<R, Grouping>;
    using Open::bounds, Open::id, Open::bound, Open::reach, Open::open, Open::room,
        Open::find_reach, Open::within;
    using Picks = std::vector<std::int32_t>;

    const Work<Rows>& work;
    Scan<Rows>& scan;
    const Projections<R>* shadows;
    ScoredRows<R> scored = work.slacks.scored();
    AssignStats tally{};

    // Of the nearest centre so far: score, label, and the second score of its group.
    std::vector<R>&score = room.score, &second = room.second;
    Picks& label = room.label;
    // The group that a row began with, the best score there, and rows that go on from it.
    Picks &home = room.home, &left = room.left;
    std::vector<R>& first = room.first;
    std::vector<float>&near = room.near, &far = room.far;
    std::vector<Size>& some = room.some;
    std::vector<Picks>& picks = room.picks;
    typename Projections<R>::Buffers shadow{};

    AssignStats run(Size begin, Size end) {
        this->find(begin, end);
        tally.skipped = end - begin - Size(id.size());
        if (id.empty()) return tally;
        const std::size_t count = id.size();
        scan.load(work, groups().panels(), 0, id.data(), Size(count));
        score.assign(count, std::numeric_limits<R>::infinity());
        second.assign(count, std::numeric_limits<R>::infinity());
        // A row without a finite score has label 0, the lowest of equals.
        label.assign(count, 0);
        home.resize(count);
        left.clear();
        picks.resize(std::size_t(groups().count()));
        if (work.labels[id[0]] < 0 && !Projected) {
            compare_one_by_one();
        } else {
            find_homes();
            compare_with_homes();
            pick_other_groups();
            compare_with_picks();
        }
        keep_what_is_left();
        return tally;
    }

private:
    const Grouping& groups() const { return bounds.groups(); }

    // Picked rows against group g.
    void measure(Size g, const Picks& picked) {
        groups().compare(scan, g, picked.data(), Size(picked.size()));
        tally.distances += Size(picked.size()) * groups().size(g);
    }

    // The same improves what is known of their nearest centre, and keeps the bound of the group.
    void compare(Size g, const Picks& picked) {
        if (picked.empty()) return;
        measure(g, picked);
        some_of(picked);
        bound.resize(picked.size());
        score_kernels<R>().lower_bounds(scored, some.data(), scan.score.data(), Size(picked.size()),
                                        bound.data());
        for (std::size_t t = 0; t < picked.size(); ++t) {
            const std::size_t at = std::size_t(picked[t]);
            bounds.set_lower(some[t], g, bound[t]);
            const std::int32_t j = groups().centre(scan.label[t]);
            const R found = scan.score[t];
            if (!(found < score[at] || (found == score[at] && j < label[at]))) continue;
            score[at] = found;
            second[at] = scan.second[t];
            label[at] = j;
        }
    }

    void some_of(const Picks& picked) {
        some.resize(picked.size());
        for (std::size_t t = 0; t < picked.size(); ++t) some[t] = id[std::size_t(picked[t])];
    }

    // Rows without a label: each group is left to those rows whose best so far is not so near that
    // the group is out of reach.
    void compare_one_by_one() {
        Picks picked(id.size()), best(id.size(), -1);
        std::iota(picked.begin(), picked.end(), 0);
        left = picked;
        std::vector<float> limit(id.size());
        compare(0, picked);
        for (Size g = 1; g < groups().count(); ++g) {
            limit_reach(picked, best, limit);
            picked.clear();
            for (std::size_t t = 0; t < id.size(); ++t)
                if (!(bounds.gaps().of(label[t])[g] > limit[t])) picked.push_back(std::int32_t(t));
            compare(g, picked);
        }
        for (std::size_t t = 0; t < id.size(); ++t) home[t] = groups().group(label[t]);
        first = score;
    }

    // How far a group must be from the best centre to be out of reach, where that is new.
    void limit_reach(const Picks& picked, Picks& best, std::vector<float>& limit) {
        Picks renewed;
        std::vector<R> found;
        for (const std::int32_t t : picked) {
            const std::size_t at = std::size_t(t);
            if (label[at] == best[at]) continue;
            best[at] = label[at];
            renewed.push_back(t);
            found.push_back(score[at]);
        }
        some_of(renewed);
        bound.resize(some.size());
        score_kernels<R>().upper_bounds(scored, some.data(), found.data(), Size(some.size()),
                                        bound.data());
        find_reach(some, bound);
        for (std::size_t t = 0; t < some.size(); ++t)
            limit[std::size_t(renewed[t])] = (bound[t] + reach[t]) * up32;
    }

    // The group to begin with: that of the label, or the one whose shadows come nearest.
    void find_homes() {
        if (work.labels[id[0]] >= 0) {
            for (std::size_t t = 0; t < id.size(); ++t)
                home[t] = groups().group(work.labels[id[t]]);
            return;
        }
        if constexpr (Projected) {
            std::vector<float> least(id.size(), std::numeric_limits<float>::infinity());
            for (Size g = 0; g < groups().count(); ++g) {
                shadows->compare(g, id, shadow);
                for (std::size_t t = 0; t < id.size(); ++t) {
                    bounds.set_lower(id[t], g, shadow.far[t]);
                    if (!(shadow.far[t] < least[t])) continue;
                    least[t] = shadow.far[t];
                    home[t] = std::int32_t(g);
                }
            }
        }
    }

    // In its own group a row is bounded from the second on.
    void compare_with_homes() {
        for (std::size_t t = 0; t < id.size(); ++t)
            picks[std::size_t(home[t])].push_back(std::int32_t(t));
        for (std::size_t g = 0; g < picks.size(); ++g) {
            if (picks[g].empty()) continue;
            measure(Size(g), picks[g]);
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
        for (std::size_t t = 0; t < id.size(); ++t) bounds.set_lower(id[t], home[t], far[t]);
    }

    void bound_both(const std::vector<Size>& ids, const std::vector<R>& best,
                    const std::vector<R>& next) {
        near.resize(ids.size());
        far.resize(ids.size());
        score_kernels<R>().upper_bounds(scored, ids.data(), best.data(), Size(ids.size()),
                                        near.data());
        score_kernels<R>().lower_bounds(scored, ids.data(), next.data(), Size(ids.size()),
                                        far.data());
    }

    // Groups in reach of the best of the own group. Most rows have none and are done.
    void pick_other_groups() {
        first.clear();
        find_reach(id, near);
        for (std::size_t t = 0; t < id.size(); ++t) {
            float least;
            const Size found = within(id[t], label[t], near[t], reach[t], least);
            bool any = false;
            for (Size f = 0; f < found; ++f) {
                const std::int32_t g = open[std::size_t(f)];
                // Where nothing can be told apart, entries that only fill vectors are in reach too.
                if (g == home[t] || g >= groups().count()) continue;
                picks[std::size_t(g)].push_back(std::int32_t(t));
                any = true;
            }
            if (any) {
                left.push_back(std::int32_t(t));
                first.push_back(score[t]);
            } else {
                keep(t, near[t], least);
            }
        }
    }

    void compare_with_picks() {
        for (std::size_t g = 0; g < picks.size(); ++g) {
            if constexpr (Projected) sift(Size(g), picks[g]);
            compare(Size(g), picks[g]);
            picks[g].clear();
        }
    }

    // Leaves of the picked rows those that the shadow of the group does not rule out.
    void sift(Size g, Picks& picked) {
        if (picked.empty()) return;
        some_of(picked);
        shadows->compare(g, some, shadow);
        std::size_t kept = 0;
        for (std::size_t t = 0; t < picked.size(); ++t) {
            if (shadow.far[t] > reach[std::size_t(picked[t])])
                bounds.set_lower(some[t], g, shadow.far[t]);
            else
                picked[kept++] = picked[t];
        }
        picked.resize(kept);
    }

    void keep_what_is_left() {
        if (left.empty()) return;
        some_of(left);
        bound.resize(left.size());
        // A group that was left behind is bounded from its first on.
        score_kernels<R>().lower_bounds(scored, some.data(), first.data(), Size(left.size()),
                                        bound.data());
        std::vector<R> best, next;
        for (const std::int32_t t : left) {
            best.push_back(score[std::size_t(t)]);
            next.push_back(second[std::size_t(t)]);
        }
        bound_both(some, best, next);
        for (std::size_t t = 0; t < left.size(); ++t) {
            const std::size_t at = std::size_t(left[t]);
            const Size i = id[at], j = label[at], g = groups().group(j);
            if (g != home[at]) bounds.set_lower(i, home[at], bound[t]);
            bounds.set_lower(i, g, far[t]);
            float least;
            within(i, j, near[t], -2 * unreachable, least);
            keep(at, near[t], least);
        }
    }

    void keep(std::size_t at, float upper, float least) {
        const Size i = id[at];
        tally.changed += work.labels[i] != label[at];
        work.labels[i] = label[at];
        bounds.set_upper(i, label[at], upper);
        bounds.set_least(i, label[at], least);
    }
};

}  // namespace exactmeans
