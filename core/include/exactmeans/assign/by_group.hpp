// What Yinyang's and Elkan's algorithms share: a row keeps an upper bound of the distance to its
// own centre, and a lower bound per group of the distance to that group's other centres. A row
// whose bounds stay apart is settled; any other is compared with its own group and then with those
// groups only that are still in reach. Bounds hold with the drift of their group since they were
// set (drift.hpp), so rows that nobody looks at cost nothing. If `Sifted`, shadows are compared
// before rows are (shadows.hpp).
//
// A Grouping<R> offers what Groups and Singles do: count, group, size, centre, copy; `of`, brought
// up to date with the centres; the panels that rows are looked up in; `compare`, loaded rows
// against a group, with a second; and whether gaps are worth their cost in every pass.
//
// All comparisons carry the rounding slack, so that a pruned row keeps the label that the computed
// scores would give it.
#pragma once

#include <atomic>
#include <limits>
#include <numeric>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/drift.hpp"
#include "exactmeans/gaps.hpp"
#include "exactmeans/shadows.hpp"

namespace exactmeans {

template <class R, class Grouping, bool Sifted = false>
class ByGroup {
public:
    using Real = R;

    ByGroup(Size n, Size k)
        : n_(n),
          k_(k),
          upper_(std::size_t(n), infinity),
          least_(std::size_t(n), 0.0f),
          own_(k),
          others_(k),
          copy_(std::size_t(k), 0) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.look_at_rows(threads);
        unit_ = work.slacks.unit();
        dense_ = is_dense<Rows>;
        // They take k^2 products, and save several times what a pass takes with them; little where
        // shadows do the same.
        const Size before = compared_.exchange(0) * (Sifted ? 1 : 4);
        gaps_pay_ =
            gaps_pay(work.x, k_) && (Grouping::always_gaps || lower_.empty() || before >= k_ * k_);
        look_at_centres(work.centroids, threads);
        if constexpr (Sifted) {
            if (!shadows_) shadows_ = std::make_unique<Shadows<R>>(work, unit_, threads);
            shadows_->update(*groups_, work.centroids, threads);
        }
    }

    // Is every label certain to stay? Needs no rows, but that they were labelled before.
    bool settled(const Centroids<R>& centroids, const RowSlacks<R>& slacks,
                 const std::int32_t* labels, const Threads& threads) {
        if (lower_.empty()) return false;
        look_at_centres(centroids, threads);
        RangeRoom<R> room;
        Unsettled rows{*this, labels, slacks.margins(), room};
        for (Size begin = 0; begin < n_; begin += 4096) {
            rows.find(begin, std::min(n_, begin + 4096));
            if (!rows.id.empty()) return false;
        }
        return true;
    }

    template <class Rows>
    Tally assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        const ScoredRows<R> scored = work.slacks.scored();
        Range<Rows> range{{*this, work.labels, scored.margins, scan.room}, work, scan, scored, {}};
        const Tally tally = range.run(begin, end);
        compared_.fetch_add(tally.distances, std::memory_order_relaxed);
        return tally;
    }

    void moved(const Movement& movement) {
        std::vector<double> farthest(static_cast<std::size_t>(groups_->count()));
        double first = 0, second = 0;
        Size first_index = -1;
        for (Size j = 0; j < k_; ++j) {
            const double went = movement.distance[std::size_t(j)] * unit_;
            if (went > 0) own_.add(j, went);
            if (copy_[std::size_t(j)]) continue;
            double& most = farthest[std::size_t(groups_->group(j))];
            most = std::max(most, went);
            if (went > first) {
                second = first;
                first = went;
                first_index = j;
            } else {
                second = std::max(second, went);
            }
        }
        for (Size g = 0; g < groups_->count(); ++g) drift_.add(g, farthest[std::size_t(g)]);
        for (Size j = 0; j < k_; ++j) others_.add(j, j == first_index ? second : first);
    }

    // Bounds of a row fill whole vectors.
    static Size bytes_for(Size groups) {
        return 4 * padded<float>(groups) + 8 + RowSlacks<R>::bytes_per_row;
    }

    // Bounds leave few rows of a range over, and these should fill tiles: long ranges, as far as
    // their rows stay in the third-level cache.
    template <class Rows>
    Size range_rows(const Rows& x, Size, int n_jobs) const {
        Size bytes = x.d * Size(sizeof(R));
        if constexpr (!is_dense<Rows>)
            bytes = x.n ? x.nonzeros() / x.n * Size(sizeof(R) + 4) + 16 : 16;
        const Size most = std::clamp<Size>((Size(4) << 20) / bytes, 256, 8192);
        return std::clamp<Size>(x.n / (4 * n_jobs), 256, most);
    }

private:
    static constexpr float infinity = std::numeric_limits<float>::infinity();

    void look_at_centres(const Centroids<R>& centroids, const Threads& threads) {
        groups_ = &Grouping::of(centroids, dense_, threads);
        if (lower_.empty()) {
            fresh_ = true;
            pitch_ = padded<float>(groups_->count());
            // Nothing is known of groups, and nothing is where entries only fill vectors.
            lower_.assign(std::size_t(n_ * pitch_), nowhere);
            for (Size i = 0; i < n_; ++i)
                std::fill_n(lower_.begin() + i * pitch_, groups_->count(), -nowhere);
            drift_ = Drift(pitch_);
            gaps_ = std::make_unique<Gaps<R>>(k_, pitch_);
        } else {
            fresh_ = false;
            admit(threads);
        }
        for (Size j = 0; j < k_; ++j) copy_[std::size_t(j)] = groups_->copy(j);
        if (gaps_pay_)
            gaps_->update(*groups_, centroids, unit_, threads);
        else
            gaps_->forget();
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
                least_[std::size_t(i)] = -nowhere;
                for (Size g = 0; g < pitch_; ++g)
                    if (unknown[std::size_t(g)]) lower_[std::size_t(i * pitch_ + g)] = -nowhere;
            }
        });
    }

    // The rows of one range that are not settled.
    struct Unsettled {
        ByGroup& own;
        const std::int32_t* labels;
        Margins margins;
        RangeRoom<R>& room;

        std::vector<Size>& id = room.id;
        std::vector<float>&bound = room.bound, &reach = room.reach;
        std::vector<std::int32_t>& open = room.open;

        // Of row i, which is at most `near` away from centre j.
        Lowers lowers(Size i, Size j, float near) const {
            return {own.lower_.data() + i * own.pitch_, own.drift_.sums(), own.gaps_->of(j), near};
        }

        void find(Size begin, Size end) {
            id.resize(std::size_t(end - begin));
            if (own.fresh_) {
                std::iota(id.begin(), id.end(), begin);
                return;
            }
            const BoundRows rows{labels,          own.upper_.data(),  own.least_.data(),
                                 own.own_.sums(), own.others_.sums(), own.gaps_->nearest(),
                                 margins};
            id.resize(std::size_t(bound_kernels().unsettled(rows, begin, end, id.data())));
            // The bounds of groups say more than the least of them.
            bound.resize(id.size());
            for (std::size_t t = 0; t < id.size(); ++t) {
                const std::size_t i = std::size_t(id[t]);
                bound[t] = std::max(0.0f, (own.upper_[i] + own.own_.sums()[labels[i]]) * up32);
            }
            find_reach(id);
            open.resize(std::size_t(own.pitch_));
            std::size_t left = 0;
            for (std::size_t t = 0; t < id.size(); ++t) {
                float least;
                const Lowers bounds = lowers(id[t], labels[id[t]], bound[t]);
                if (bound_kernels().within(bounds, own.pitch_, reach[t], open.data(), least) > 0)
                    id[left++] = id[t];
                else
                    own.keep_least(id[t], labels[id[t]], least);
            }
            id.resize(left);
        }

        void find_reach(const std::vector<Size>& ids) {
            reach.resize(ids.size());
            bound_kernels().reach(margins, ids.data(), bound.data(), Size(ids.size()),
                                  reach.data());
        }
    };

    // They, and what is found of them.
    template <class Rows>
    struct Range : Unsettled {
        using Unsettled::own, Unsettled::id, Unsettled::bound, Unsettled::reach, Unsettled::open,
            Unsettled::room, Unsettled::lowers, Unsettled::find_reach;
        const Work<Rows>& work;
        Scan<Rows>& scan;
        ScoredRows<R> scored;
        Tally tally;

        std::vector<R>&score = room.score, &second = room.second;
        std::vector<std::int32_t>& label = room.label;
        std::vector<Size>& some = room.some;
        std::vector<std::vector<std::int32_t>>& picks = room.picks;
        std::vector<std::int32_t> home{};
        typename Shadows<R>::Buffers shadows{};

        Tally run(Size begin, Size end) {
            this->find(begin, end);
            tally.skipped = end - begin - Size(id.size());
            if (id.empty()) return tally;
            const std::size_t count = id.size();
            scan.load(work, own.groups_->panels(), 0, id.data(), Size(count));
            score.assign(count, std::numeric_limits<R>::infinity());
            second.assign(count, std::numeric_limits<R>::infinity());
            label.assign(count, std::numeric_limits<std::int32_t>::max());
            picks.resize(std::size_t(own.groups_->count()));
            open.resize(std::size_t(own.pitch_));
            if (work.labels[id[0]] < 0 && !Sifted) {
                compare_one_by_one();
            } else {
                find_homes();
                compare_with_own_group();
                pick_other_groups();
                compare_with_picks<Sifted>();
            }
            keep();
            return tally;
        }

        // Picked rows against group g: improves what is known of their nearest centre, and keeps
        // the bound of the group.
        void compare(Size g, const std::vector<std::int32_t>& picked) {
            if (picked.empty()) return;
            const Grouping& groups = *own.groups_;
            const Size count = Size(picked.size());
            groups.compare(scan, g, picked.data(), count);
            tally.distances += count * groups.size(g);
            some.resize(picked.size());
            bound.resize(picked.size());
            for (std::size_t t = 0; t < picked.size(); ++t) some[t] = id[std::size_t(picked[t])];
            kernels<R>().lower_bounds(scored, some.data(), scan.score.data(), count, bound.data());
            for (std::size_t t = 0; t < picked.size(); ++t) {
                const std::size_t at = std::size_t(picked[t]);
                own.lower_[std::size_t(some[t] * own.pitch_ + g)] =
                    own.drift_.store_lower(g, bound[t]);
                const std::int32_t j = groups.centre(scan.label[t]);
                const R found = scan.score[t];
                if (!(found < score[at] || (found == score[at] && j < label[at]))) continue;
                score[at] = found;
                second[at] = scan.second[t];
                label[at] = j;
            }
        }

        // Rows without a label: each group is left to those rows whose best so far is not so near
        // that the group is out of reach.
        void compare_one_by_one() {
            std::vector<std::int32_t> picked(id.size()), best(id.size(), -1);
            std::iota(picked.begin(), picked.end(), 0);
            std::vector<float> limit(id.size());
            compare(0, picked);
            for (Size g = 1; g < own.groups_->count(); ++g) {
                limit_reach(picked, best, limit);
                picked.clear();
                for (std::size_t t = 0; t < id.size(); ++t)
                    if (!(own.gaps_->of(label[t])[g] > limit[t])) picked.push_back(std::int32_t(t));
                compare(g, picked);
            }
        }

        // How far a group must be from the best centre to be out of reach, where that is new.
        void limit_reach(const std::vector<std::int32_t>& picked, std::vector<std::int32_t>& best,
                         std::vector<float>& limit) {
            std::vector<std::int32_t> renewed;
            std::vector<R> found;
            some.clear();
            for (const std::int32_t t : picked) {
                const std::size_t at = std::size_t(t);
                if (label[at] == best[at]) continue;
                best[at] = label[at];
                renewed.push_back(t);
                some.push_back(id[at]);
                found.push_back(score[at]);
            }
            bound.resize(some.size());
            kernels<R>().upper_bounds(scored, some.data(), found.data(), Size(some.size()),
                                      bound.data());
            find_reach(some);
            for (std::size_t t = 0; t < some.size(); ++t)
                limit[std::size_t(renewed[t])] = (bound[t] + reach[t]) * up32;
        }

        // The group to begin with: that of the label, or the one whose shadows come nearest.
        void find_homes() {
            home.resize(id.size());
            if (work.labels[id[0]] >= 0) {
                for (std::size_t t = 0; t < id.size(); ++t)
                    home[t] = own.groups_->group(work.labels[id[t]]);
                return;
            }
            if constexpr (Sifted) {
                std::vector<float> least(id.size(), infinity);
                for (Size g = 0; g < own.groups_->count(); ++g) {
                    own.shadows_->compare(g, id, shadows);
                    for (std::size_t t = 0; t < id.size(); ++t) {
                        own.lower_[std::size_t(id[t] * own.pitch_ + g)] =
                            own.drift_.store_lower(g, shadows.far[t]);
                        if (!(shadows.far[t] < least[t])) continue;
                        least[t] = shadows.far[t];
                        home[t] = std::int32_t(g);
                    }
                }
            }
        }

        // Leaves of the picked rows those that the shadow of the group does not rule out.
        void sift(Size g, std::vector<std::int32_t>& picked) {
            if (picked.empty()) return;
            some.resize(picked.size());
            for (std::size_t t = 0; t < picked.size(); ++t) some[t] = id[std::size_t(picked[t])];
            own.shadows_->compare(g, some, shadows);
            std::size_t left = 0;
            for (std::size_t t = 0; t < picked.size(); ++t) {
                if (shadows.far[t] > reach[std::size_t(picked[t])])
                    own.lower_[std::size_t(some[t] * own.pitch_ + g)] =
                        own.drift_.store_lower(g, shadows.far[t]);
                else
                    picked[left++] = picked[t];
            }
            picked.resize(left);
        }

        void compare_with_own_group() {
            for (std::size_t t = 0; t < id.size(); ++t)
                picks[std::size_t(home[t])].push_back(std::int32_t(t));
            compare_with_picks<false>();
        }

        template <bool Sift>
        void compare_with_picks() {
            for (std::size_t g = 0; g < picks.size(); ++g) {
                if constexpr (Sift) sift(Size(g), picks[g]);
                compare(Size(g), picks[g]);
                picks[g].clear();
            }
        }

        // Groups in reach of the best of the own group.
        void pick_other_groups() {
            bound.resize(id.size());
            kernels<R>().upper_bounds(scored, id.data(), score.data(), Size(id.size()),
                                      bound.data());
            find_reach(id);
            for (std::size_t t = 0; t < id.size(); ++t) {
                float least;
                const Size found = bound_kernels().within(lowers(id[t], label[t], bound[t]),
                                                          own.pitch_, reach[t], open.data(), least);
                for (Size f = 0; f < found; ++f) {
                    const std::int32_t g = open[std::size_t(f)];
                    // Where nothing can be told apart, entries that only fill vectors are in reach
                    // too.
                    if (g != home[t] && g < own.groups_->count())
                        picks[std::size_t(g)].push_back(std::int32_t(t));
                }
            }
        }

        void keep() {
            const Size count = Size(id.size());
            bound.resize(id.size());
            reach.resize(id.size());
            kernels<R>().upper_bounds(scored, id.data(), score.data(), count, bound.data());
            // In its own group a row is bounded from the second on.
            kernels<R>().lower_bounds(scored, id.data(), second.data(), count, reach.data());
            for (std::size_t t = 0; t < id.size(); ++t) {
                const Size i = id[t], j = label[t], g = own.groups_->group(j);
                tally.changed += work.labels[i] != label[t];
                work.labels[i] = label[t];
                own.upper_[std::size_t(i)] = own.own_.store_upper(j, bound[t]);
                own.lower_[std::size_t(i * own.pitch_ + g)] = own.drift_.store_lower(g, reach[t]);
                float least;
                bound_kernels().within(lowers(i, j, bound[t]), own.pitch_, -2 * nowhere,
                                       open.data(), least);
                own.keep_least(i, j, least);
            }
        }
    };

    void keep_least(Size i, Size j, float least) {
        least_[std::size_t(i)] = others_.store_lower(j, least * (least > 0 ? down32 : up32));
    }

    Size n_, k_, pitch_ = 0;
    bool fresh_ = true, dense_ = true, gaps_pay_ = false;
    std::atomic<Size> compared_ = 0;  // distances of the pass that runs
    double unit_ = 1;
    const Grouping* groups_ = nullptr;
    std::vector<float> lower_, upper_, least_;
    Drift own_, others_, drift_{0};
    std::unique_ptr<Gaps<R>> gaps_;
    std::unique_ptr<Shadows<R>> shadows_;
    std::vector<char> copy_;  // centres that the bounds leave out
};

}  // namespace exactmeans
