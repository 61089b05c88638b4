// What is known of the costs of rows from earlier passes, so that rows far from every border are
// not scored again: gaps (limits/gap_bounds.hpp), or for CSR rows with the 8-bit filter bounds per
// group of centres (limits/priced_centres.hpp) as well. docs/proofs/size_limits.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/limits/gap_bounds.hpp"
#include "exactmeans/limits/priced_centres.hpp"
#include "exactmeans/limits/priced_rows.hpp"

namespace exactmeans {

class CostBounds {
public:
    // Of the rows of a block.
    struct Block {
        std::vector<float> gap, length;  // as GapBounds stores them; upper bounds of lengths
        Size epoch = 0;                  // of the gaps
        std::vector<RowBounds> costs;    // for this version of the centres
        Size version = none;
        bool any_negative = true, grouped = false;  // `grouped`: costs count in this pass
    };

    explicit CostBounds(Size k) : k_(k), gaps_(k) {}

    // The centres moved since the last assignment.
    void moved(const Movement& movement) { gaps_.moved(movement); }
    // An assignment to new centres begins.
    void start() { centres_known_ = false; }
    void follow_prices(const std::vector<double>& before, const std::vector<double>& after) {
        std::vector<double> rises;
        for (std::size_t j = 0; j < after.size(); ++j) rises.push_back(after[j] - before[j]);
        gaps_.follow_rises(rises);
        prices_.follow(before, after);
    }

    // Brings the bounds of a block up to date with the centres. Returns the codes that the filter
    // reads, or null. `reach`: of this pass.
    template <class Rows>
    std::shared_ptr<const QuantizedCentres<typename Rows::Real>> begin(
        const Rows& x, SharedCentres<typename Rows::Real>& shared, bool weighted, double reach,
        const std::int32_t* labels, Block& block, const Threads& threads) {
        if (!centres_known_) {
            // Lengths would have to be weighted as costs are.
            if (!gaps_.follow_centres(shared.centres) || (weighted && x.weights)) ++epoch_;
            centres_known_ = true;
        }
        if (block.length.empty()) block.length = row_lengths(x, shared.centres.frame(), threads);
        if (block.epoch != epoch_) {
            block.gap.assign(std::size_t(x.n), GapBounds::unknown);
            block.epoch = epoch_;
        }
        using R = typename Rows::Real;
        block.grouped = PricedRows<Rows>::may_filter(x, shared, reach, weighted) &&
                        PricedCentres<R>::in_groups(k_, x.d);
        if constexpr (!is_dense<Rows>)
            if (block.grouped) return follow_groups(x, shared, labels, block, threads);
        return nullptr;
    }

    // Do all clusters certainly cost row i more than its label, by more than `reach`?
    bool exceeds(const Block& block, Size i, std::int32_t label, double price, double reach) const {
        const std::size_t at = std::size_t(i);
        return gaps_.exceeds(block.gap[at], block.length[at], label, reach) ||
               (block.grouped && prices_.exceeds(block.costs[at], price, reach));
    }
    // Row i, of which the scan has results at t, is open or not.
    template <class Scan>
    void store(Block& block, Size i, const Scan& scan, Size t, double price, bool open) const {
        const std::size_t at = std::size_t(i), result = std::size_t(t);
        block.gap[at] = open ? GapBounds::unknown
                             : gaps_.stored(scan.gap[result], block.length[at], scan.label[result]);
        if (block.costs.empty()) return;
        block.costs[at] = open || scan.high.empty()
                              ? GroupPrices::unknown
                              : prices_.stored(scan.high[result], price, scan.lows[result].of);
    }
    // Of `rows` rows that a first pass with bounds looked at, `scored` were not certain.
    void record(Size rows, Size scored) {
        if (pruned_ && rows > 0) backoff_.record(double(scored) <= cost::kept_share * double(rows));
    }

private:
    static constexpr Size none = -2;  // not a version, nor the -1 of an unknown one

    template <class R, class I>
    std::shared_ptr<const QuantizedCentres<R>> follow_groups(const CsrRows<R, I>& x,
                                                             SharedCentres<R>& shared,
                                                             const std::int32_t* labels,
                                                             Block& block, const Threads& threads) {
        const std::shared_ptr<const PricedCentres<R>> centres =
            shared.layouts.template state<PricedCentres<R>>(shared.centres, threads);
        if (version_ != centres->version()) {
            version_ = centres->version();
            pruned_ = backoff_.due();
        }
        if (arranged_ != centres->arranged()) {  // no bounds follow a new arrangement
            arranged_ = centres->arranged();
            prices_.arrange(k_, [&](Size j) { return centres->group(j); });
        }
        if (block.version != version_) {
            if (block.costs.empty())
                block.any_negative = std::any_of(x.data + x.offsets[0], x.data + x.offsets[x.n],
                                                 [](R value) { return value < 0; });
            if (pruned_ && centres->follows(block.version))
                centres->follow(x, block.any_negative, labels, block.costs.data(), threads);
            else
                block.costs.assign(std::size_t(x.n), GroupPrices::unknown);
            block.version = version_;
        }
        return {centres, &centres->all()};
    }

    Size k_;
    GapBounds gaps_;
    GroupPrices prices_;
    bool centres_known_ = false;
    Size epoch_ = 1;  // of gaps: those of an earlier one are worthless
    int arranged_ = 0;
    Size version_ = none;                     // of the centres
    bool pruned_ = true;                      // do bounds by groups follow to this version?
    Backoff backoff_{0, cost::longest_wait};  // versions without, after bounds that did not pay
};

}  // namespace exactmeans
