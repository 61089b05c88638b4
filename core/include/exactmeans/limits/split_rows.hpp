// Rows that the optimum of a transport problem splits between clusters, each given to one of them.
//
// Split rows and their clusters are the nodes of a bipartite graph with an edge for each part.
// Moving mass around a cycle changes no size and, because all parts of a row cost the same with
// prices, no cost. It continues until a part is empty, which removes the cycle. The forest that is
// left has at most k - 1 split rows. Each tree is traversed from a root: a cluster gets a whole row
// from below it if it has less than its share, and gives the row to a cluster below if it has more.
// So every size differs from the cluster's share by less than the largest mass of a row, above and
// below. (D. B. Shmoys and E. Tardos, An approximation algorithm for the generalized assignment
// problem, 1993, bound sizes from above only.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// The mass of a row that is in a cluster.
struct RowPart {
    std::int32_t cluster;
    Size mass;
};
struct SplitRow {
    Size mass;
    std::vector<RowPart> parts;
};

namespace detail {

// Split rows as a forest, in which a row has an edge to the cluster of each part.
class SplitForest {
public:
    SplitForest(std::vector<SplitRow> rows, Size k)
        : rows_(std::move(rows)), rows_of_(std::size_t(k)), chosen_(rows_.size(), -1) {
        for (std::size_t r = 0; r < rows_.size(); ++r) {
            std::vector<RowPart> parts = std::move(rows_[r].parts);
            rows_[r].parts.clear();
            for (const RowPart& part : parts) add(r, part);
        }
    }

    // The cluster of every row.
    std::vector<std::int32_t> round() {
        std::vector<Size> excess(rows_of_.size());  // over the share of the cluster
        std::vector<char> seen(rows_of_.size());
        for (std::size_t root = 0; root < rows_of_.size(); ++root) {
            if (seen[root]) continue;
            std::vector<std::size_t> queue{root};
            seen[root] = 1;
            for (std::size_t at = 0; at < queue.size(); ++at)
                for (const std::size_t r : rows_of_[queue[at]])
                    if (chosen_[r] < 0) choose(r, queue[at], excess, seen, queue);
        }
        return std::move(chosen_);
    }

private:
    // An edge of a path: row and position of the part.
    struct Edge {
        std::size_t row, part;
    };
    static constexpr std::size_t none = std::size_t(-1);

    // Adds a part to the forest, or moves mass around the cycle that it would close.
    void add(std::size_t r, RowPart part) {
        for (;;) {
            const std::vector<Edge> path = find_path(r, std::size_t(part.cluster));
            if (path.empty()) break;
            // From the row to the cluster, edges lose and gain in turn; the new part gains where
            // its neighbours lose.
            Size least = rows_[path[0].row].parts[path[0].part].mass;
            for (std::size_t e = 0; e < path.size(); e += 2)
                least = std::min(least, rows_[path[e].row].parts[path[e].part].mass);
            part.mass += least;
            for (std::size_t e = 0; e < path.size(); ++e)
                rows_[path[e].row].parts[path[e].part].mass += e % 2 ? least : -least;
            for (const Edge& edge : path) drop_empty(edge.row);
        }
        rows_[r].parts.push_back(part);
        rows_of_[std::size_t(part.cluster)].push_back(r);
    }
    void drop_empty(std::size_t r) {
        std::vector<RowPart>& parts = rows_[r].parts;
        for (std::size_t p = parts.size(); p-- > 0;) {
            if (parts[p].mass > 0) continue;
            std::vector<std::size_t>& rows = rows_of_[std::size_t(parts[p].cluster)];
            rows.erase(std::find(rows.begin(), rows.end(), r));
            parts.erase(parts.begin() + std::ptrdiff_t(p));
        }
    }
    // The edges from a row to a cluster in the same tree; empty if there is no way.
    std::vector<Edge> find_path(std::size_t r, std::size_t cluster) const {
        std::vector<Edge> to_cluster(rows_of_.size(), {none, 0});  // the edge that reached it
        std::vector<std::size_t> by(rows_.size(), none);           // the cluster that reached a row
        std::vector<std::size_t> queue{r};
        by[r] = rows_of_.size();
        for (std::size_t at = 0; at < queue.size() && to_cluster[cluster].row == none; ++at)
            for (std::size_t p = 0; p < rows_[queue[at]].parts.size(); ++p) {
                const std::size_t c = std::size_t(rows_[queue[at]].parts[p].cluster);
                if (to_cluster[c].row != none || c == by[queue[at]]) continue;
                to_cluster[c] = {queue[at], p};
                for (const std::size_t next : rows_of_[c])
                    if (by[next] == none) {
                        by[next] = c;
                        queue.push_back(next);
                    }
            }
        std::vector<Edge> path;
        if (to_cluster[cluster].row == none) return path;
        for (std::size_t c = cluster;;) {
            const Edge last = to_cluster[c];
            path.push_back(last);
            if (last.row == r) break;
            c = by[last.row];
            for (std::size_t p = 0; p < rows_[last.row].parts.size(); ++p)
                if (std::size_t(rows_[last.row].parts[p].cluster) == c)
                    path.push_back({last.row, p});
        }
        std::reverse(path.begin(), path.end());
        return path;
    }

    // Assigns row r to the cluster above it, or to the cluster below with the largest part.
    void choose(std::size_t r, std::size_t above, std::vector<Size>& excess,
                std::vector<char>& seen, std::vector<std::size_t>& queue) {
        const RowPart *own = nullptr, *below = nullptr;
        for (const RowPart& part : rows_[r].parts) {
            if (std::size_t(part.cluster) == above)
                own = &part;
            else if (!below || part.mass > below->mass)
                below = &part;
        }
        const bool stays =
            !below || excess[above] < 0 || (excess[above] == 0 && 2 * own->mass >= rows_[r].mass);
        chosen_[r] = (stays ? own : below)->cluster;
        for (const RowPart& part : rows_[r].parts) {
            const std::size_t c = std::size_t(part.cluster);
            excess[c] += (part.cluster == chosen_[r] ? rows_[r].mass : 0) - part.mass;
            if (!std::exchange(seen[c], 1)) queue.push_back(c);
        }
    }

    std::vector<SplitRow> rows_;
    std::vector<std::vector<std::size_t>> rows_of_;  // per cluster
    std::vector<std::int32_t> chosen_;
};

}  // namespace detail

// The cluster of each split row. Sizes change by less than the largest mass, for k clusters.
inline std::vector<std::int32_t> rounded_clusters(std::vector<SplitRow> rows, Size k) {
    return detail::SplitForest(std::move(rows), k).round();
}

}  // namespace exactmeans
