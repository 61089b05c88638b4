// Bounds of costs of CSR rows while centres move and prices change, per group of centres.
//
// The bounds are those of `moving` (assign/sparse/grouped_delta_bounds.hpp), which prune far better
// on texts than the movement of centres does: an upper bound of the score of a row's label, and per
// group a lower bound of the costs of all others. Prices need no pass over the rows: the price of
// the label is added to its score, and a group's bound rises by the least rise of its prices.
// docs/proofs/size_limits.md. Memory: 20 bytes per row, kept by the caller; codes of the centres
// and the centres of the last pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/assign/sparse/grouped_delta_bounds.hpp"
#include "exactmeans/centres/history.hpp"
#include "exactmeans/filter/quantized_centres.hpp"
#include "exactmeans/filter/quantized_filter.hpp"

namespace exactmeans {

// The centres as codes of the 8-bit filter, in groups, and their change since the last pass.
template <class R>
class PricedCentres {
public:
    PricedCentres(const Centres<R>& centroids,
                  const std::shared_ptr<const LayoutSettings>& settings, bool)
        : history_(centroids.k()), all_(centroids, settings, false), groups_(centroids.k()) {}
    // Are so many centres kept in groups?
    static bool in_groups(Size k, Size d) {
        return QuantizedPanels{nullptr, nullptr, k, d}.groups() > 1;
    }

    Size version() const { return history_.version(); }
    void update(const Centres<R>& centroids, const Threads& threads) {
        if (!history_.begin(centroids)) return;
        follows_ = history_.from() >= 0;
        // Centres get their features in the first iterations, in which bounds prune little.
        if (arranged_ < arrangements) {
            all_.arrange(longest_first(centroids));
            ++arranged_;
            follows_ = false;
        }
        all_.update(centroids, history_.moved(), history_.previous(), threads);
        if (follows_) groups_.build(history_, centroids, [&](Size j) { return group(j); }, threads);
        history_.remember(centroids, threads);
        history_.finish(centroids);
    }

    const QuantizedCentres<R>& all() const { return all_; }
    Size group(Size j) const { return all_.group(all_.place(j)); }
    // How often centres were arranged in groups.
    int arranged() const { return arranged_; }
    // Can bounds of this version of the centres be brought up to date?
    bool follows(Size version) const { return follows_ && history_.from() == version; }

    // Brings the bounds of all rows, which have these labels, up to date.
    template <class I>
    void follow(const CsrRows<R, I>& x, bool any_negative, const std::int32_t* labels,
                RowBounds* bounds, const Threads& threads) const {
        struct Buffers {
            Float32Rows<R> rows;
            std::vector<std::int32_t> crossed;
        };
        std::vector<Buffers> buffers(static_cast<std::size_t>(threads.n_jobs));
        threads.ranges(x.n, cost::pruned_rows_per_call, [&](Size begin, Size end, int worker) {
            Buffers& own = buffers[std::size_t(worker)];
            own.rows.load(x, begin, end);
            groups_.update(own.rows.data(), end - begin, any_negative, labels + begin,
                           bounds + begin, own.crossed);
        });
    }

private:
    static constexpr int arrangements = 4;

    CentreHistory<R> history_;
    QuantizedCentres<R> all_;
    GroupedDeltaBounds<R> groups_;
    bool follows_ = false;
    int arranged_ = 0;
};

// Prices by group, and bounds of rows relative to them.
class GroupPrices {
public:
    static constexpr std::size_t groups = std::size_t(QuantizedPanels::most_groups);
    // Of a row that has no bounds.
    static constexpr float lowest = -std::numeric_limits<float>::infinity();
    static constexpr RowBounds unknown{0, {lowest, lowest, lowest, lowest}};

    // Centre j is in group_of(j) from now on; bounds stored before are worthless.
    template <class GroupOf>
    void arrange(Size k, GroupOf group_of) {
        group_.resize(std::size_t(k));
        for (Size j = 0; j < k; ++j) group_[std::size_t(j)] = std::size_t(group_of(j));
        std::fill(std::begin(risen_), std::end(risen_), 0.0);
    }
    void follow(const std::vector<double>& before, const std::vector<double>& after) {
        double least[groups];
        std::fill(std::begin(least), std::end(least), std::numeric_limits<double>::infinity());
        for (std::size_t j = 0; j < group_.size(); ++j) {
            const double rise = after[j] - before[j],
                         rounding = 0x1p-50 * (std::abs(after[j]) + std::abs(before[j]));
            least[group_[j]] = std::min(least[group_[j]], rise - rounding);
        }
        for (std::size_t g = 0; g < groups; ++g)
            if (std::isfinite(least[g])) risen_[g] += least[g] - 0x1p-50 * std::abs(risen_[g]);
    }

    // Bounds of a row whose label costs at most `cost`, of which `price` is its price, and all
    // others of group g at least lows[g].
    RowBounds stored(double cost, double price, const double (&lows)[groups]) const {
        RowBounds own{above(cost - price + 0x1p-50 * (std::abs(cost) + std::abs(price))), {}};
        for (std::size_t g = 0; g < groups; ++g) {
            const double low = std::min(lows[g], 0x1p100);  // infinite in a group without others
            own.low[g] = -above(risen_[g] - low + 0x1p-50 * (std::abs(risen_[g]) + std::abs(low)));
        }
        return own;
    }
    // Do all others certainly cost more than the label, by more than `reach`?
    bool exceeds(const RowBounds& own, double price, double reach) const {
        const double cost = double(own.high) + price;
        bool certain = true;
        for (std::size_t g = 0; g < groups; ++g) {
            const double low = double(own.low[g]) + risen_[g];
            certain &=
                low - cost -
                    0x1p-45 * (std::abs(double(own.high)) + std::abs(price) + std::abs(risen_[g])) >
                reach;
        }
        return certain;
    }

private:
    // A float32 above x.
    static float above(double x) { return float(x + std::abs(x) * 0x1p-22 + 0x1p-120); }

    std::vector<std::size_t> group_;  // per centre
    double risen_[groups] = {};       // by how much costs in a group rose at least, through prices
};

}  // namespace exactmeans
