// The assignment of least cost whose clusters have between `least` and `most` rows.
//
// At optimal prices every row is in its cheapest cluster (limits/priced_rows.hpp), so only the
// labels of rows near the border of two clusters are uncertain. A pass at the current prices labels
// all rows and gathers those whose second cluster costs at most `reach` more: the open rows, with
// their options. A transport problem over the open rows (limits/transport.hpp) gives their labels
// and new prices. If the largest and the smallest rise of a price differ by at most `reach`, no
// other row would move: the result is the optimum over all rows. Else another pass follows, at the
// new prices or with a wider reach.
//
// The first prices come from samples of every 4^s-th row with limits to match; later assignments
// start from the prices of the last one. Prices solve the dual of the transport problem
// (Aurenhammer, Hoffmann and Aronov, Minkowski-type theorems and least-squares clustering, 1998).
//
// Limits count rows, or the masses of rows: integers in proportion to their weights. The optimum of
// the linear program then splits at most k - 1 rows, each of which goes to one of its clusters
// (limits/split_rows.hpp), so that sizes keep to the limits up to the largest mass of a row.
//
// The result depends on the rows, the limits and the state at the start, not on threads or blocks.
// Bounds of gaps (limits/gap_bounds.hpp) follow the prices and the moving centres, so that rows far
// from borders are not scored again. docs/proofs/size_limits.md has the proof. Memory: 8 bytes per
// row, 48 per option of an open row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/limits/gap_bounds.hpp"
#include "exactmeans/limits/open_rows.hpp"
#include "exactmeans/limits/priced_rows.hpp"
#include "exactmeans/limits/reach.hpp"
#include "exactmeans/limits/transport.hpp"

namespace exactmeans {

// A pass is begin(), add() for every block, solve(). Passes follow until solve() returns true; then
// write() sets the labels of each block.
class LimitedAssignment {
public:
    explicit LimitedAssignment(const LimitedProblem& problem)
        : problem_(problem), price_(std::size_t(problem.k)), bounds_(problem.k) {}

    const std::vector<double>& prices() const { return price_; }
    // Rows whose two cheapest clusters differ by more are not open in the next pass; negative
    // before the first assignment.
    double reach() const { return reach_.state(); }
    // Continues from prices() and reach() of an assignment to other centres.
    void set_state(std::vector<double> prices, double reach) {
        price_ = std::move(prices);
        reach_.set_state(reach);
    }

    // Records the movement of the centres since the last assignment. Without it, bounds of rows are
    // dropped.
    void moved(const Movement& movement) { bounds_.moved(movement); }

    // Starts an assignment to new centres. `many`: many rows changed their cluster in the last one,
    // so prices may be far from optimal.
    void start(bool many = false) {
        reach_.start(problem_, many);
        centres_followed_ = false;
        before_ = price_;
        finished_ = false;
    }

    void begin() {
        reach_.begin_round();
        fixed_.assign(std::size_t(problem_.k), 0);
        for (BlockState& block : blocks_) block.open = {};
        gathered_ = 0;
    }

    // Labels the rows of a block, of which the first is row `first` of all, and gathers open rows.
    template <class Rows>
    void add(Size number, Size first, const Rows& x, SharedCentres<typename Rows::Real>& shared,
             std::int32_t* labels, const Threads& threads) {
        if (Size(blocks_.size()) <= number) blocks_.resize(std::size_t(number + 1));
        BlockState& block = blocks_[std::size_t(number)];
        follow_centres(shared.centres, x);
        if (block.gap.empty()) {
            block.gap.assign(std::size_t(x.n), GapBounds::unknown);
            block.length = row_lengths(x, shared.centres.frame(), threads);
        }
        const PricedRows<Rows> rows(x, shared, price_, reach_.value(), problem_.weighted, threads);
        const std::vector<Size> ids = rows_to_score(rows, first, block, labels);
        const Size count = Size(ids.size()), step = cost::priced_rows_per_task;
        std::vector<OpenRows> parts(std::size_t((count + step - 1) / step));
        std::vector<PricedScan<Rows>> scans(static_cast<std::size_t>(threads.n_jobs));
        threads.ranges(count, step, [&](Size begin, Size end, int worker) {
            gather(rows, scans[std::size_t(worker)], ids.data() + begin, end - begin, block, labels,
                   parts[std::size_t(begin / step)]);
        });
        for (const Size i : ids)
            if (block.gap[std::size_t(i)] > GapBounds::unknown)
                fixed_[std::size_t(labels[i])] += mass(x, i);
        for (const OpenRows& part : parts) block.open.append(part);
        scored_ += count;
    }

    // Solves for the open rows. Returns true if the labels are final; else another pass must
    // follow.
    bool solve(const Threads& threads) {
        if (gathered_ > problem_.most_options) {
            if (reach_.narrows()) {
                reach_.narrow();
                return false;
            }
            if (problem_.most_options < cost::most_options) refuse_options();
        }
        bool holds = true;
        Transport transport = transport_of(holds);
        const bool solved =
            transport.solve(reach_.value(), [&] { threads.run(1, [](Size, int) {}); }) && holds;
        std::vector<double> rises;
        for (std::size_t j = 0; j < price_.size(); ++j) {
            rises.push_back(transport.price(Size(j)) - price_[j]);
            price_[j] = transport.price(Size(j));
        }
        bounds_.follow_rises(rises);
        if (!solved)
            reach_.widen(lowest_reach());
        else if (reach_.stride() > 1)
            reach_.next_sample(problem_, open_gaps(transport));
        else
            finish(transport);
        return finished_;
    }

    // Sets the labels of the open rows of a block of n rows.
    void write(Size number, std::int32_t* labels, Size n) const {
        const BlockState& block = blocks_.at(std::size_t(number));
        if (Size(block.gap.size()) != n)
            throw std::invalid_argument("the block has another length");
        for (std::size_t t = 0; t < block.solved.size(); ++t)
            labels[block.open.row(Size(t))] = block.solved[t];
    }

    // Rows compared with all clusters since construction, counted once per pass.
    Size rows_scored() const { return scored_; }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();

    struct BlockState {
        std::vector<float> gap;  // as GapBounds stores it; unknown: open in the last pass, or new
        std::vector<float> length;  // upper bounds of the lengths of the rows
        OpenRows open;
        std::vector<std::int32_t> solved;  // labels of the open rows
    };

    template <class Rows>
    Size mass(const Rows& x, Size i) const {
        if (problem_.mass_scale == 0) return 1;
        return Size(std::llrint(x.weight(i) * problem_.mass_scale));
    }

    [[noreturn]] void refuse_options() const {
        throw std::invalid_argument(
            "memory_limit must leave " + std::to_string(gathered_ * cost::option_bytes) +
            " bytes for the clusters that rows near borders may go to, but it leaves " +
            std::to_string(problem_.most_options * cost::option_bytes) +
            ": raise it, or set wider size limits.");
    }

    // Rows of this sample whose gap may be within reach; counts the others as fixed.
    template <class Rows>
    std::vector<Size> rows_to_score(const PricedRows<Rows>& rows, Size first, BlockState& block,
                                    std::int32_t* labels) {
        std::vector<Size> ids;
        const Size n = rows.x.n, stride = reach_.stride();
        for (Size i = (stride - first % stride) % stride; i < n; i += stride) {
            const std::size_t at = std::size_t(i);
            if (!rows.has_cluster(i))
                labels[i] = 0;
            else if (bounds_.exceeds(block.gap[at], block.length[at], labels[i], reach_.value()))
                fixed_[std::size_t(labels[i])] += mass(rows.x, i);
            else
                ids.push_back(i);
        }
        return ids;
    }

    template <class Rows>
    void gather(const PricedRows<Rows>& rows, PricedScan<Rows>& scan, const Size* ids, Size count,
                BlockState& block, std::int32_t* labels, OpenRows& out) {
        const double reach = reach_.value();
        const bool drops = reach_.narrows() || problem_.most_options < cost::most_options;
        scan.run(rows, ids, count, [&](Size t, const RowCosts& costs) {
            const std::int32_t own = scan.label[std::size_t(t)];
            double least = highest_cost;
            for (Size c = 0; c < costs.count; ++c)
                if (costs.at(c) == own) least = costs.cost[c];
            const double limit = least + reach;
            const Size before = out.options();
            out.add_option({own, least});
            for (Size c = 0; c < costs.count; ++c)
                if (costs.at(c) != own && costs.cost[c] <= limit)
                    out.add_option({costs.at(c), costs.cost[c]});
            // All options are counted, even dropped ones, so that the count does not depend on
            // threads.
            if ((gathered_ += out.options() - before) > problem_.most_options && drops)
                return out.drop_options(before);
            out.add_row(ids[t], mass(rows.x, ids[t]));
        });
        for (Size t = 0; t < count; ++t) {
            const std::int32_t own = scan.label[std::size_t(t)];
            const std::size_t i = std::size_t(ids[t]);
            const double gap = scan.gap[std::size_t(t)];
            labels[i] = own;
            block.gap[i] =
                gap > reach ? bounds_.stored(gap, block.length[i], own) : GapBounds::unknown;
        }
    }

    // Adjusts the bounds to the movement of the centres, once per assignment, or drops them.
    template <class R, class Rows>
    void follow_centres(const Centres<R>& centroids, const Rows& x) {
        if (std::exchange(centres_followed_, true)) return;
        const bool weighted = problem_.weighted && x.weights;  // lengths would have to be weighted
        if (!bounds_.follow_centres(centroids) || weighted)
            for (BlockState& block : blocks_)
                std::fill(block.gap.begin(), block.gap.end(), GapBounds::unknown);
    }

    // The share of a limit for a sample of the rows with this mass.
    double share(Size limit, Size all) const {
        return double(limit) * (double(all) / double(problem_.total));
    }
    // The problem of the open rows; `holds` becomes false if rows that are not open break a limit.
    Transport transport_of(bool& holds) const {
        Size open = 0, all = 0;
        for (const BlockState& block : blocks_)
            for (Size t = 0; t < block.open.size(); ++t) open += block.open.mass(t);
        for (const Size own : fixed_) all += own;
        all += open;
        const auto [low, high] = problem_.limits;
        const bool whole = all == problem_.total;
        const Size lower = whole ? low : Size(std::floor(share(low, all))),
                   upper = whole ? high : Size(std::ceil(share(high, all)));
        std::vector<Size> least(fixed_.size()), most(least);
        Size needed = 0;
        for (std::size_t j = 0; j < least.size(); ++j) {
            holds = holds && upper >= fixed_[j];
            most[j] = std::max<Size>(0, upper - fixed_[j]);
            // Below 0 if fixed rows exceed the least size: then no price below 0 is optimal.
            least[j] = lower - fixed_[j];
            needed += std::max<Size>(0, least[j]);
        }
        if (needed > open) {  // as much as the open rows allow
            holds = false;
            for (Size& own : least)
                if (own > 0) own = Size(double(own) * (double(open) / double(needed)));
        }
        Transport transport(std::move(least), std::move(most), price_);
        for (const BlockState& block : blocks_)
            for (Size t = 0; t < block.open.size(); ++t) {
                const TransportOption* const first = block.open.first(t);
                transport.add(first, block.open.past(t) - first, block.open.mass(t));
            }
        return transport;
    }

    // The gaps of the open rows at the new prices, ascending.
    std::vector<double> open_gaps(const Transport& transport) const {
        std::vector<double> gaps;
        for (const BlockState& block : blocks_)
            for (Size t = 0; t < block.open.size(); ++t)
                gaps.push_back(
                    block.open.cheapest(t, [&](Size j) { return transport.raised(j); }).gap);
        std::sort(gaps.begin(), gaps.end());
        return gaps;
    }
    void finish(Transport& transport) {
        transport.round_split_rows();
        Size at = 0;
        for (BlockState& block : blocks_) {
            block.solved.clear();
            for (Size t = 0; t < block.open.size(); ++t, ++at)
                // The transport problem leaves out rows without mass: they go where they cost
                // least.
                block.solved.push_back(
                    block.open.mass(t) > 0
                        ? transport.label(at)
                        : block.open.cheapest(t, [&](Size j) { return transport.raised(j); })
                              .cluster);
        }
        double low = infinite, high = -infinite;
        for (std::size_t j = 0; j < price_.size(); ++j) {
            low = std::min(low, price_[j] - before_[j]);
            high = std::max(high, price_[j] - before_[j]);
        }
        reach_.finish(problem_, open_gaps(transport), high - low);
        finished_ = true;
    }
    // The reach after a reach of 0, because doubling 0 does not widen it.
    double lowest_reach() const {
        double largest = 0x1p-1000;
        for (const double own : price_) largest = std::max(largest, std::abs(own));
        return largest * 0x1p-20;
    }

    LimitedProblem problem_;
    std::vector<double> price_, before_;  // now, and at the start of the assignment
    GapBounds bounds_;
    Reach reach_;
    bool centres_followed_ = false, finished_ = false;
    Size scored_ = 0;                 // rows
    std::atomic<Size> gathered_ = 0;  // options
    std::vector<Size> fixed_;         // per cluster: the mass of the rows that are not open
    std::vector<BlockState> blocks_;
};

}  // namespace exactmeans
