// Rows listed by their nearest seed, farthest first: a candidate at least twice as far from the
// seed as a row cannot come nearer to that row or to any behind it, and if the first row is such a
// row, the whole list is skipped. A row's distance only changes when it goes to another list, so a
// list is sorted once. Once there are many seeds, a step looks at little more than the rows it has
// to measure. Rows that have left stay in a list until it is half empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

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

    // Row i, until now of seed `from`, belongs to seed `to`.
    void move(Size i, std::int32_t from, std::int32_t to, double d2) {
        ++clusters_[std::size_t(from)].gone;
        if (std::size_t(to) >= clusters_.size()) clusters_.resize(std::size_t(to) + 1);
        add(i, to, d2);
    }

    // rows(ids, count, point, worker) for the rows of a list that a point may reach.
    template <class Fn>
    void visit(const SeedReach& reach, Size points, const std::int32_t* own, const Threads& threads,
               Fn rows) {
        plan(reach, points, own);
        std::vector<std::vector<Size>> ids(std::size_t(threads.n_jobs));
        threads.run(Size(tasks_.size()), [&](Size t, int worker) {
            for (std::size_t c = tasks_[std::size_t(t)].begin; c < tasks_[std::size_t(t)].end; ++c)
                look_into(near_[c], reach, points, own, ids[std::size_t(worker)], [&](Size point) {
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
        double radius2 = 0;  // not below any member's d2
        Size gone = 0;
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
        return reach.gaps[seed * reach.width + point] < reach.factor * d2 + reach.absolute;
    }

    // Lists that some point may reach, cut into tasks of about equal size.
    void plan(const SeedReach& reach, Size points, const std::int32_t* own) {
        near_.clear();
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
                tidy(cluster, j, own);
            near_.push_back(std::int32_t(j));
            size += Size(cluster.members.size());
            if (size < 1024) continue;
            tasks_.push_back({begin, near_.size()});
            begin = near_.size();
            size = 0;
        }
        if (begin < near_.size()) tasks_.push_back({begin, near_.size()});
    }

    static void tidy(Cluster& cluster, std::size_t seed, const std::int32_t* own) {
        std::erase_if(cluster.members,
                      [&](const Member& m) { return own[m.row] != std::int32_t(seed); });
        if (!cluster.sorted)
            std::sort(cluster.members.begin(), cluster.members.end(),
                      [](const Member& a, const Member& b) { return a.d2 > b.d2; });
        cluster.radius2 = cluster.members.empty() ? 0.0 : cluster.members.front().d2;
        cluster.sorted = true;
        cluster.gone = 0;
    }

    template <class Fn>
    void look_into(std::int32_t seed, const SeedReach& reach, Size points, const std::int32_t* own,
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
    std::vector<std::int32_t> near_;
    std::vector<Task> tasks_;
};

}  // namespace exactmeans
