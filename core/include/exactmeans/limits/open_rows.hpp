// Open rows, ascending, and the clusters to which each may go, the cheapest first.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/limits/transport.hpp"

namespace exactmeans {

class OpenRows {
public:
    Size size() const { return Size(row_.size()); }
    Size options() const { return Size(options_.size()); }
    Size row(Size t) const { return row_[std::size_t(t)]; }
    Size mass(Size t) const { return mass_[std::size_t(t)]; }
    const TransportOption* first(Size t) const {
        return options_.data() + (t ? past_[std::size_t(t) - 1] : 0);
    }
    const TransportOption* past(Size t) const { return options_.data() + past_[std::size_t(t)]; }

    // Adds options of the next row, then the row.
    void add_option(const TransportOption& option) { options_.push_back(option); }
    void add_row(Size row, Size mass) {
        row_.push_back(std::int32_t(row));
        mass_.push_back(mass);
        past_.push_back(options());
    }
    // Drops all options but the first `kept`.
    void drop_options(Size kept) { options_.resize(std::size_t(kept)); }

    void append(const OpenRows& more) {
        const Size before = options();
        row_.insert(row_.end(), more.row_.begin(), more.row_.end());
        mass_.insert(mass_.end(), more.mass_.begin(), more.mass_.end());
        for (const Size end : more.past_) past_.push_back(before + end);
        options_.insert(options_.end(), more.options_.begin(), more.options_.end());
    }

    // The cheapest option of row t if the cost of cluster j rises by raised(j), the lowest cluster
    // on ties, and how much more the next one costs.
    struct Cheapest {
        std::int32_t cluster;
        double gap;
    };
    template <class Raised>
    Cheapest cheapest(Size t, Raised raised) const {
        constexpr double infinite = std::numeric_limits<double>::infinity();
        double low = infinite, second = infinite;
        std::int32_t cluster = first(t)->cluster;
        for (const TransportOption* o = first(t); o != past(t); ++o) {
            const double cost = o->cost + raised(o->cluster);
            if (cost < low || (cost == low && o->cluster < cluster)) cluster = o->cluster;
            second = std::min(second, std::max(low, cost));
            low = std::min(low, cost);
        }
        return {cluster, second - low};
    }

private:
    std::vector<std::int32_t> row_;
    std::vector<Size> mass_;
    std::vector<Size> past_;  // behind the last option of each row
    std::vector<TransportOption> options_;
};

}  // namespace exactmeans
