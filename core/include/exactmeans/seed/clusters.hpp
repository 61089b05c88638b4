// Rows listed by their nearest seed, farthest first. If a candidate is at least twice as far from
// the seed as a row is, it is not nearer to that row or to any later one of the list (triangle
// inequality). If this holds for the first row, the whole list is skipped. The distance of a row
// changes only when the row moves to another list, so a list need not be sorted again when it loses
// rows. With many seeds, a step reads few more rows than it must compare. Rows that moved to
// another list are erased once they are half of a list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/kernels/seeding.hpp"

namespace exactmeans {

class SeedClusters {
public:
    bool active() const { return !clusters_.empty(); }
    void clear() { clusters_.clear(); }

    void build(const std::int32_t* own, const double* d2, Size n, Size seeds) {
        clusters_.assign(std::size_t(seeds), {});
        for (Size i = 0; i < n; ++i) add(i, own[i], d2[i]);
    }

    // Moves row i from the list of seed `from` to that of seed `to`.
    void move(Size i, std::int32_t from, std::int32_t to, double d2) {
        ++clusters_[std::size_t(from)].gone;
        if (std::size_t(to) >= clusters_.size()) clusters_.resize(std::size_t(to) + 1);
        add(i, to, d2);
    }

    // Calls rows(ids, count, point, worker) for each list and point, with the rows of the list to
    // which the point may be nearer than their seed.
    template <class Fn>
    void visit(const SeedReach& reach, Size points, const std::int32_t* own, const Threads& threads,
               Fn rows) {
        plan(reach, points, own);
        std::vector<std::vector<Size>> ids(std::size_t(threads.n_jobs));
        threads.run(Size(tasks_.size()), [&](Size t, int worker) {
            for (std::size_t c = tasks_[std::size_t(t)].begin; c < tasks_[std::size_t(t)].end; ++c)
                visit_list(in_reach_[c], reach, points, own, ids[std::size_t(worker)],
                           [&](Size point) {
                               const std::vector<Size>& list = ids[std::size_t(worker)];
                               rows(list.data(), Size(list.size()), point, worker);
                           });
        });
    }

private:
    struct Member {
        double d2;
        Size row;
    };
    struct Cluster {
        std::vector<Member> members;
        double radius2 = 0;  // at least the d2 of every member
        Size gone = 0;       // members that have moved to another list
        bool sorted = false;
    };
    struct Task {
        std::size_t begin, end;
    };

    void add(Size i, std::int32_t seed, double d2) {
        Cluster& cluster = clusters_[std::size_t(seed)];
        cluster.members.push_back({d2, i});
        cluster.radius2 = std::max(cluster.radius2, d2);
        cluster.sorted = false;
    }

    static bool within(const SeedReach& reach, Size seed, Size point, double d2) {
        return reach.seed_distances2[seed * reach.width + point] <
               reach.factor * d2 + reach.absolute;
    }

    // Finds the lists with a row to which some point may be nearer, and cuts them into tasks of
    // similar size.
    void plan(const SeedReach& reach, Size points, const std::int32_t* own) {
        in_reach_.clear();
        tasks_.clear();
        std::size_t begin = 0;
        Size size = 0;
        for (std::size_t j = 0; j < clusters_.size(); ++j) {
            Cluster& cluster = clusters_[j];
            bool near = false;
            for (Size s = 0; s < points && !near; ++s)
                near = within(reach, Size(j), s, cluster.radius2);
            if (!near || cluster.members.empty()) continue;
            if (!cluster.sorted || 2 * cluster.gone > Size(cluster.members.size()))
                compact(cluster, j, own);
            in_reach_.push_back(std::int32_t(j));
            size += Size(cluster.members.size());
            if (size < cost::listed_rows_per_task) continue;
            tasks_.push_back({begin, in_reach_.size()});
            begin = in_reach_.size();
            size = 0;
        }
        if (begin < in_reach_.size()) tasks_.push_back({begin, in_reach_.size()});
    }

    // Erases rows that have moved to another list, and sorts the others.
    static void compact(Cluster& cluster, std::size_t seed, const std::int32_t* own) {
        std::erase_if(cluster.members,
                      [&](const Member& m) { return own[m.row] != std::int32_t(seed); });
        if (!cluster.sorted)
            std::sort(cluster.members.begin(), cluster.members.end(),
                      [](const Member& a, const Member& b) { return a.d2 > b.d2; });
        cluster.radius2 = cluster.members.empty() ? 0.0 : cluster.members.front().d2;
        cluster.sorted = true;
        cluster.gone = 0;
    }

    // Calls rows(point) with `ids` set to the rows of the list to which the point may be nearer.
    template <class Fn>
    void visit_list(std::int32_t seed, const SeedReach& reach, Size points, const std::int32_t* own,
                    std::vector<Size>& ids, Fn rows) {
        Cluster& cluster = clusters_[std::size_t(seed)];
        double largest = 0;
        for (const Member& m : cluster.members) {
            if (own[m.row] != seed) continue;
            largest = m.d2;
            break;
        }
        cluster.radius2 = largest;
        for (Size s = 0; s < points; ++s) {
            if (!within(reach, seed, s, largest)) continue;
            ids.clear();
            for (const Member& m : cluster.members) {
                if (!within(reach, seed, s, m.d2)) break;
                if (own[m.row] == seed) ids.push_back(m.row);
            }
            if (!ids.empty()) rows(s);
        }
    }

    std::vector<Cluster> clusters_;
    std::vector<std::int32_t> in_reach_;
    std::vector<Task> tasks_;
};

}  // namespace exactmeans
