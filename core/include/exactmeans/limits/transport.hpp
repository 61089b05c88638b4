// The cheapest assignment of rows to clusters whose sizes have limits.
//
// For given costs this is a transportation problem. Successive shortest paths solve it (Ahuja,
// Magnanti and Orlin 1993, ch. 9) on a graph whose nodes are the clusters: the arc a -> b stands
// for the row of cluster a that is cheapest to move to b. A path from a cluster with too many rows
// to one with too few moves one row along each arc. The dual variables are prices: at the end every
// row is in a cluster with the lowest cost + price, a cluster with a price above 0 is full, and one
// with a price below 0 has its least size (Aurenhammer, Hoffmann and Aronov 1998).
//
// A sink, node k, takes the rows of all clusters: cluster j sends it between least[j] and most[j].
// Ties are broken by the number of the row, so the result depends on the input alone.
//
// A row may count as several rows: its mass, an integer. A path then moves the least mass that an
// arc of it allows, which may split a row between clusters: the optimum of the linear program. All
// parts of a split row cost the same with prices; limits/split_rows.hpp gives it to one of them.
//
// Memory: 32 bytes per option of a row, or more where rows move often.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/limits/split_rows.hpp"

namespace exactmeans {

// A cluster that a row may go to, and the cost, which includes the starting price of the cluster.
struct TransportOption {
    std::int32_t cluster;
    double cost;
};

class Transport {
public:
    // Sizes, in units of mass, must end in [least[j], most[j]]. `price`: the starting prices.
    Transport(std::vector<Size> least, std::vector<Size> most, std::vector<double> price)
        : k_(Size(least.size())),
          least_(std::move(least)),
          most_(std::move(most)),
          start_(std::move(price)),
          change_(std::size_t(k_ + 1)),
          size_(std::size_t(k_)),
          arcs_(std::size_t(k_)) {
        start_.push_back(0);  // of the sink
    }

    // Adds a row, which is in the cluster of its first option. No option may be cheaper than that.
    void add(const TransportOption* options, Size count, Size mass = 1) {
        if (count < 1) throw std::invalid_argument("a row needs a cluster");
        if (label_.size() >= std::size_t(std::numeric_limits<std::int32_t>::max()))
            throw std::invalid_argument("a transport takes fewer than 2^31 rows");
        label_.push_back(options[0].cluster);
        mass_.push_back(mass);
        size_[std::size_t(options[0].cluster)] += mass;
        options_.insert(options_.end(), options, options + count);
        past_.push_back(Size(options_.size()));
    }

    // Moves rows until all sizes are within the limits, at the least cost. Returns false if the
    // options do not allow that, or only with a price_range() above `most_range`: prices and labels
    // are then those of an optimal assignment with other limits. Calls poll(), which may throw,
    // every few paths.
    template <class Poll>
    bool solve(double most_range, Poll poll) {
        most_range_ = most_range;
        if (!set_targets()) return false;
        build_arcs();
        for (Size paths = 0;
             std::any_of(surplus_.begin(), surplus_.end(), [](Size own) { return own > 0; });
             ++paths) {
            if (!augment()) return false;
            if (paths % cost::paths_per_poll == 0) poll();
        }
        return true;
    }
    bool solve() {
        return solve(infinite, [] {});
    }

    Size rows() const { return Size(label_.size()); }
    // The cluster of a row; negative if the row is split, which rows of mass 1 never are.
    std::int32_t label(Size row) const { return label_[std::size_t(row)]; }
    // Gives every split row to one of its clusters; sizes change by less than the mass of a row.
    void round_split_rows() {
        std::vector<SplitRow> split;
        for (const auto& [row, parts] : split_) split.push_back({mass_[std::size_t(row)], parts});
        const std::vector<std::int32_t> chosen = rounded_clusters(std::move(split), k_);
        std::size_t at = 0;
        for (const auto& entry : split_) label_[std::size_t(entry.first)] = chosen[at++];
        split_.clear();
    }
    // The price of cluster j.
    double price(Size j) const { return absolute(j) - absolute(k_); }
    // The rise of the price of cluster j, up to an amount that is the same for all clusters.
    double raised(Size j) const { return change_[std::size_t(j)]; }
    // The most by which the price of a cluster rose relative to another's. Options that cost a row
    // this much more than its first one do not matter.
    double price_range() const {
        const auto [low, high] = std::minmax_element(change_.begin(), change_.end() - 1);
        return *high - *low;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();

    // A row that could move along an arc, and the rise of its cost.
    struct Mover {
        double rise;
        std::int32_t row;
        // Heaps have the least rise on top, and of equal ones the lowest row.
        bool operator<(const Mover& other) const {
            return rise != other.rise ? rise > other.rise : row > other.row;
        }
    };
    // A heap of movers; rows that left are dropped when they come to the top.
    using Movers = std::vector<Mover>;
    // Arcs that leave a cluster lie side by side, because every search reads them all.
    struct Arc {
        std::int32_t to, movers;  // the end; where the movers are
        double rise;              // the least of the movers, infinite without any
    };

    // The price of a node, up to an amount that is the same for all.
    double absolute(Size v) const { return start_[std::size_t(v)] + change_[std::size_t(v)]; }
    const TransportOption* first_option(Size row) const {
        return options_.data() + (row ? past_[std::size_t(row) - 1] : 0);
    }
    const TransportOption* past_option(Size row) const {
        return options_.data() + past_[std::size_t(row)];
    }

    // The arc between two clusters, which is inserted if it is missing.
    Arc& arc(Size from, Size to) {
        std::vector<Arc>& own = arcs_[std::size_t(from)];
        const auto at = std::lower_bound(own.begin(), own.end(), to,
                                         [](const Arc& a, Size cluster) { return a.to < cluster; });
        if (at != own.end() && at->to == to) return *at;
        movers_.emplace_back();
        return *own.insert(at, {std::int32_t(to), std::int32_t(movers_.size()) - 1, infinite});
    }
    Movers& movers_of(const Arc& a) { return movers_[std::size_t(a.movers)]; }

    // How much of a row is in a cluster.
    Size mass_in(Size row, Size cluster) const {
        const std::int32_t own = label(row);
        if (own == cluster) return mass_[std::size_t(row)];
        if (own >= 0) return 0;
        for (const RowPart& part : split_.at(row))
            if (part.cluster == cluster) return part.mass;
        return 0;
    }

    void build_arcs() {
        for (Size row = 0; row < rows(); ++row)
            for (const TransportOption* o = first_option(row) + 1; o != past_option(row); ++o)
                if (mass_[std::size_t(row)] > 0)
                    movers_of(arc(label(row), o->cluster))
                        .push_back({o->cost - first_option(row)->cost, std::int32_t(row)});
        for (std::vector<Arc>& own : arcs_)
            for (Arc& a : own) {
                Movers& movers = movers_of(a);
                std::make_heap(movers.begin(), movers.end());
                a.rise = movers.front().rise;
            }
    }
    // Drops movers at the top of the heap whose rows have left the cluster.
    void refresh(Arc& a, Size from) {
        Movers& movers = movers_of(a);
        while (!movers.empty() && mass_in(movers.front().row, from) == 0) {
            std::pop_heap(movers.begin(), movers.end());
            movers.pop_back();
        }
        a.rise = movers.empty() ? infinite : movers.front().rise;
    }

    // Sets how many rows each cluster sends to the sink, as its price requires. Returns false if
    // the limits do not allow the total.
    bool set_targets() {
        target_.resize(std::size_t(k_));
        surplus_.assign(std::size_t(k_ + 1), 0);
        for (std::size_t j = 0; j < std::size_t(k_); ++j) {
            target_[j] = start_[j] > 0   ? most_[j]
                         : start_[j] < 0 ? least_[j]
                                         : std::clamp(size_[j], least_[j], most_[j]);
            surplus_[j] = size_[j] - target_[j];
            surplus_[std::size_t(k_)] -= surplus_[j];
        }
        Size total = 0, least = 0, most = 0;
        for (std::size_t j = 0; j < std::size_t(k_); ++j) {
            total += size_[j];
            least += least_[j];
            most += most_[j];
        }
        return least <= total && total <= most;
    }

    // Calls visit(to, cost with prices) for the arcs that leave a node.
    template <class Visit>
    void for_arcs(Size from, Visit visit) const {
        if (from == k_) {
            for (Size j = 0; j < k_; ++j)
                if (target_[std::size_t(j)] > least_[std::size_t(j)])
                    visit(j, absolute(j) - absolute(k_));
            return;
        }
        if (target_[std::size_t(from)] < most_[std::size_t(from)])
            visit(k_, absolute(k_) - absolute(from));
        const double own = change_[std::size_t(from)];
        for (const Arc& a : arcs_[std::size_t(from)])
            visit(a.to, a.rise + change_[std::size_t(a.to)] - own);
    }

    // Finds the shortest path from a node with a surplus to one with a deficit (Dijkstra), updates
    // the prices and moves one row along each arc. Returns false if there is no path.
    bool augment() {
        distance_.assign(std::size_t(k_ + 1), infinite);
        previous_.assign(std::size_t(k_ + 1), -1);
        finished_.assign(std::size_t(k_ + 1), 0);
        std::vector<Reached>& queue = queue_;
        queue.clear();
        const auto reach = [&](Size v, double distance, Size from) {
            if (finished_[std::size_t(v)] || !(distance < distance_[std::size_t(v)])) return;
            distance_[std::size_t(v)] = distance;
            previous_[std::size_t(v)] = from;
            queue.emplace_back(distance, v);
            std::push_heap(queue.begin(), queue.end(), std::greater<>());
        };
        for (Size v = 0; v <= k_; ++v)
            if (surplus_[std::size_t(v)] > 0) reach(v, 0, -1);
        while (!queue.empty()) {
            const auto [distance, v] = queue.front();
            std::pop_heap(queue.begin(), queue.end(), std::greater<>());
            queue.pop_back();
            if (finished_[std::size_t(v)]) continue;
            finished_[std::size_t(v)] = 1;
            if (surplus_[std::size_t(v)] < 0) {
                if (!raise_prices(distance)) return false;
                move_along(v);
                return true;
            }
            // Costs with prices are below 0 by rounding only.
            for_arcs(v, [&, from = v, at = distance](Size to, double cost) {
                reach(to, at + std::max(0.0, cost), from);
            });
        }
        return false;
    }
    // Raises the prices of clusters that are nearer than `distance`. Returns false, and raises
    // none, if the range of all changes would exceed the most that is allowed.
    bool raise_prices(double distance) {
        double low = infinite, high = -infinite;
        for (std::size_t u = 0; u < std::size_t(k_); ++u) {
            const double raised = change_[u] + (finished_[u] ? distance - distance_[u] : 0.0);
            low = std::min(low, raised);
            high = std::max(high, raised);
        }
        if (high - low > most_range_) return false;
        for (std::size_t u = 0; u < finished_.size(); ++u)
            if (finished_[u]) change_[u] += distance - distance_[u];
        return true;
    }
    // The largest mass that can move along the path to `end`.
    Size path_mass(Size end) {
        Size least = -surplus_[std::size_t(end)], to = end;
        for (Size from; (from = previous_[std::size_t(to)]) >= 0; to = from) {
            if (to == k_)
                least = std::min(least, most_[std::size_t(from)] - target_[std::size_t(from)]);
            else if (from == k_)
                least = std::min(least, target_[std::size_t(to)] - least_[std::size_t(to)]);
            else
                least = std::min(least, mass_in(movers_of(arc(from, to)).front().row, from));
        }
        return std::min(least, surplus_[std::size_t(to)]);
    }
    // Moves this mass along each arc of the path, the last arc first.
    void move_along(Size end) {
        const Size mass = path_mass(end);
        surplus_[std::size_t(end)] += mass;
        Size to = end;
        for (Size from; (from = previous_[std::size_t(to)]) >= 0; to = from) {
            if (to == k_)
                target_[std::size_t(from)] += mass;
            else if (from == k_)
                target_[std::size_t(to)] -= mass;
            else
                move_row(movers_of(arc(from, to)).front().row, from, to, mass);
        }
        surplus_[std::size_t(to)] -= mass;
    }
    void move_row(Size row, Size from, Size to, Size mass) {
        const bool arrives = mass_in(row, to) == 0;
        move_part(row, from, to, mass);
        const bool left = mass_in(row, from) == 0;
        double own = 0;
        for (const TransportOption* o = first_option(row); o != past_option(row); ++o)
            if (o->cluster == to) own = o->cost;
        for (const TransportOption* o = first_option(row); o != past_option(row); ++o) {
            if (left && o->cluster != from) refresh(arc(from, o->cluster), from);
            if (!arrives || o->cluster == to) continue;
            Arc& a = arc(to, o->cluster);
            Movers& movers = movers_of(a);
            movers.push_back({o->cost - own, std::int32_t(row)});
            std::push_heap(movers.begin(), movers.end());
            a.rise = movers.front().rise;
        }
    }
    void move_part(Size row, Size from, Size to, Size mass) {
        std::int32_t& own = label_[std::size_t(row)];
        if (own == from && mass == mass_[std::size_t(row)]) {
            own = std::int32_t(to);
            return;
        }
        std::vector<RowPart>& parts = split_[row];
        if (own >= 0) parts = {{own, mass_[std::size_t(row)]}};
        own = -1;
        const auto part_in = [&](Size cluster) {
            return std::find_if(parts.begin(), parts.end(),
                                [&](const RowPart& part) { return part.cluster == cluster; });
        };
        if (const auto at = part_in(to); at != parts.end())
            at->mass += mass;
        else
            parts.push_back({std::int32_t(to), mass});
        const auto at = part_in(from);
        if ((at->mass -= mass) == 0) parts.erase(at);
        if (parts.size() > 1) return;
        own = parts.front().cluster;
        split_.erase(row);
    }

    Size k_;
    std::vector<Size> least_, most_;
    std::vector<double> start_, change_;  // prices of the clusters and of the sink
    std::vector<Size> size_, target_, surplus_;
    std::vector<std::vector<Arc>> arcs_;  // per cluster, by their end
    std::vector<Movers> movers_;          // per arc
    std::vector<std::int32_t> label_;
    std::vector<Size> mass_;
    std::map<Size, std::vector<RowPart>> split_;  // rows in several clusters
    std::vector<TransportOption> options_;
    std::vector<Size> past_;  // behind the last option of each row
    double most_range_ = infinite;
    // State of a search.
    using Reached = std::pair<double, Size>;
    std::vector<Reached> queue_;
    std::vector<double> distance_;
    std::vector<Size> previous_;
    std::vector<char> finished_;
};

}  // namespace exactmeans
