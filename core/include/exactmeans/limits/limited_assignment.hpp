// The assignment of least cost whose clusters have between `least` and `most` rows.
//
// At the right prices every row is in its cheapest cluster (limits/priced_rows.hpp), so only rows
// near the border of two clusters are in question. A pass at the current prices labels all rows and
// gathers those whose second cluster costs at most `reach` more: the open rows, with their options.
// A transport problem over the open rows (limits/transport.hpp) gives their labels and new prices.
// If no price rose by more than `reach` relative to another, no other row would move: the result is
// the optimum over all rows. Else another pass follows, at the new prices or with a wider reach.
//
// The first prices come from samples of every 4^s-th row with limits to match; later assignments
// start from the prices of the last one. Prices solve the dual of the transport problem
// (Aurenhammer, Hoffmann and Aronov, Minkowski-type theorems and least-squares clustering, 1998).
//
// The result depends on the rows, the limits and the state at the start, not on threads or blocks.
// Bounds of gaps follow the prices and the moving centres as in Hamerly's algorithm, so that rows
// far from borders are not scored again. Memory: 8 bytes per row, 48 per option of an open row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/limits/priced_rows.hpp"
#include "exactmeans/limits/transport.hpp"

namespace exactmeans {

struct SizeLimits {
    Size least, most;
};

// A pass is begin(), add() for every block, solve(). Passes follow until solve() returns true; then
// write() sets the labels of each block.
class LimitedAssignment {
public:
    // `n` counts the rows that are in a cluster. `weighted`: costs are multiplied by weights.
    LimitedAssignment(Size n, Size k, SizeLimits limits, bool weighted)
        : n_(n), k_(k), limits_(limits), weighted_(weighted), price_(std::size_t(k)) {}

    const std::vector<double>& prices() const { return price_; }
    // Beyond which gap rows are not open in the next pass; negative before the first assignment.
    double reach() const { return started_ ? reach_ : -1.0; }
    // Continues from prices() and reach() of an assignment to other centres.
    void set_state(std::vector<double> prices, double reach) {
        price_ = std::move(prices);
        reach_ = std::max(0.0, reach);
        started_ = reach >= 0;
    }

    // The centres moved since the last assignment. Without it, bounds of rows are not kept.
    void moved(const Movement& movement) { steps_ = movement.distance; }

    // Starts an assignment to new centres. `many`: many rows changed their cluster in the last one,
    // so prices may be far from right and samples come first.
    void start(bool many = false) {
        stride_ = 1;
        if (many || !started_) {
            started_ = false;
            reach_ = infinite;
            while ((n_ / stride_) * k_ > cost::sampled_options) stride_ *= sample_step;
        }
        before_ = price_;
        narrowest_ = infinite;
        round_ = 0;
        bounds_follow_ = finished_ = false;
    }

    void begin() {
        fixed_.assign(std::size_t(k_), 0);
        for (BlockState& block : blocks_) block.open = {};
        gathered_ = 0;
    }

    // Labels the rows of a block, of which the first is row `first` of all, and gathers open rows.
    template <class Rows>
    void add(Size number, Size first, const Rows& x, SharedCentres<typename Rows::Real>& shared,
             std::int32_t* labels, const Threads& threads) {
        if (!bounds_follow_) follow_centres(shared.centres, x);
        if (Size(blocks_.size()) <= number) blocks_.resize(std::size_t(number + 1));
        BlockState& block = blocks_[std::size_t(number)];
        const PricedRows<Rows> rows(x, shared, price_, reach_, weighted_, threads);
        if (block.gap.empty()) measure(rows, block, threads);
        const std::vector<Size> ids = rows_to_score(rows, first, block, labels);
        const Size count = Size(ids.size()), step = 960;
        std::vector<OpenRows> parts(std::size_t((count + step - 1) / step));
        std::vector<PricedScan<Rows>> scans(static_cast<std::size_t>(threads.n_jobs));
        threads.ranges(count, step, [&](Size begin, Size end, int worker) {
            gather(rows, scans[std::size_t(worker)], ids.data() + begin, end - begin, block, labels,
                   parts[std::size_t(begin / step)]);
        });
        for (const Size i : ids)
            if (block.gap[std::size_t(i)] > unknown) ++fixed_[std::size_t(labels[i])];
        for (const OpenRows& part : parts) block.open.append(part);
        scored_ += count;
    }

    // Solves for the open rows. Returns true if the labels are final; else another pass must
    // follow.
    bool solve(const Threads& threads) {
        ++round_;
        if (gathered_ > cost::most_options && narrows()) {
            narrowest_ = reach_ = reach_ / 4;
            return false;
        }
        Size open = 0, all = 0;
        for (const BlockState& block : blocks_) open += Size(block.open.row.size());
        for (const Size own : fixed_) all += own;
        all += open;
        bool holds = true;
        Transport transport = transport_of(open, all, holds);
        const bool solved =
            transport.solve(reach_, [&] { threads.run(1, [](Size, int) {}); }) && holds;
        for (Size j = 0; j < k_; ++j) set_price(j, transport.price(j));
        if (solved && stride_ == 1) {
            finish(transport);
        } else if (solved) {
            next_stride(transport, all);
        } else {
            reach_ = reach_ > 0 ? 2 * reach_ : lowest_reach();
            if (round_ <= wide_rounds) reach_ = std::min(reach_, narrowest_);
        }
        follow_prices();
        return finished_;
    }

    // Sets the labels of the open rows of a block of n rows.
    void write(Size number, std::int32_t* labels, Size n) const {
        const BlockState& block = blocks_.at(std::size_t(number));
        if (Size(block.gap.size()) != n)
            throw std::invalid_argument("the block has another length");
        for (std::size_t t = 0; t < block.solved.size(); ++t)
            labels[block.open.row[t]] = block.solved[t];
    }

    // Pairs of a row and a centre whose costs were compared since construction, divided by k.
    Size rows_scored() const { return scored_; }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();
    static constexpr Size sample_step = 4;
    static constexpr float unknown = -std::numeric_limits<float>::infinity();
    static constexpr int wide_rounds = 40;  // passes that respect cost::most_options

    // Rows in question, ascending, and their options, the cheapest first.
    struct OpenRows {
        std::vector<std::int32_t> row;
        std::vector<Size> past;  // behind the last option of each row
        std::vector<TransportOption> options;

        void append(const OpenRows& more) {
            const Size before = Size(options.size());
            row.insert(row.end(), more.row.begin(), more.row.end());
            for (const Size end : more.past) past.push_back(before + end);
            options.insert(options.end(), more.options.begin(), more.options.end());
        }
        const TransportOption* first(std::size_t t) const {
            return options.data() + (t ? past[t - 1] : 0);
        }
        Size count(std::size_t t) const { return past[t] - (t ? past[t - 1] : 0); }
    };
    struct BlockState {
        // Lower bounds of what other clusters cost more than the label, plus lost() when they were
        // found; unknown: the row was open in the last pass, or has not been scored.
        std::vector<float> gap;
        std::vector<float> length;  // upper bounds of the lengths of the rows
        OpenRows open;
        std::vector<std::int32_t> solved;  // labels of the open rows
    };

    // May a pass that finds too many options be repeated with a narrower reach?
    bool narrows() const { return round_ <= wide_rounds && reach_ > 0; }

    // Rows of this sample whose gap may be within reach; counts the others as fixed.
    template <class Rows>
    std::vector<Size> rows_to_score(const PricedRows<Rows>& rows, Size first, BlockState& block,
                                    std::int32_t* labels) {
        std::vector<Size> ids;
        const Size n = rows.x.n;
        for (Size i = (stride_ - first % stride_) % stride_; i < n; i += stride_) {
            if (!rows.counts(i)) {
                labels[i] = 0;
            } else if (const float gap = block.gap[std::size_t(i)];
                       gap > unknown && double(gap) - lost(block, i, labels[i]) > reach_) {
                ++fixed_[std::size_t(labels[i])];
            } else {
                ids.push_back(i);
            }
        }
        return ids;
    }

    template <class Rows>
    void gather(const PricedRows<Rows>& rows, PricedScan<Rows>& scan, const Size* ids, Size count,
                BlockState& block, std::int32_t* labels, OpenRows& out) {
        scan.run(rows, ids, count, [&](Size t, const RowCosts& costs) {
            const std::int32_t own = scan.label[std::size_t(t)];
            double least = highest_cost;
            for (Size c = 0; c < costs.count; ++c)
                if (costs.at(c) == own) least = costs.cost[c];
            const double limit = least + reach_;
            const Size before = Size(out.options.size());
            out.options.push_back({own, least});
            for (Size c = 0; c < costs.count; ++c)
                if (costs.at(c) != own && costs.cost[c] <= limit)
                    out.options.push_back({costs.at(c), costs.cost[c]});
            // Options are counted all the same, so that threads cannot change what follows.
            if ((gathered_ += Size(out.options.size()) - before) > cost::most_options && narrows())
                return out.options.resize(std::size_t(before));
            out.row.push_back(std::int32_t(ids[t]));
            out.past.push_back(Size(out.options.size()));
        });
        for (Size t = 0; t < count; ++t) {
            const std::int32_t own = scan.label[std::size_t(t)];
            const double gap = scan.gap[std::size_t(t)];
            labels[ids[t]] = own;
            const double kept = std::min(gap, 0x1p100) + lost(block, ids[t], own);
            block.gap[std::size_t(ids[t])] =
                gap > reach_ ? float(kept - std::abs(kept) * 0x1p-22) : unknown;
        }
    }

    // The problem of the open rows; `holds` becomes false if rows that are not open break a limit.
    Transport transport_of(Size open, Size all, bool& holds) const {
        std::vector<Size> least(static_cast<std::size_t>(k_)), most(least);
        Size needed = 0;
        for (std::size_t j = 0; j < least.size(); ++j) {
            const Size high = (limits_.most * all + n_ - 1) / n_ - fixed_[j];
            holds = holds && high >= 0;
            most[j] = std::max<Size>(0, high);
            least[j] = std::max<Size>(0, limits_.least * all / n_ - fixed_[j]);
            needed += least[j];
        }
        if (needed > open) {  // as much as the open rows allow
            holds = false;
            for (Size& own : least) own = own * open / needed;
        }
        Transport transport(std::move(least), std::move(most), price_);
        for (const BlockState& block : blocks_)
            for (std::size_t t = 0; t < block.open.row.size(); ++t)
                transport.add(block.open.first(t), block.open.count(t));
        return transport;
    }

    void set_price(Size j, double price) {
        raised_.resize(std::size_t(k_));
        raised_[std::size_t(j)] = price - price_[std::size_t(j)];
        price_[std::size_t(j)] = price;
    }
    // What the gap of a row with this label lost since the bounds began: by prices and score
    // offsets, and by moving centres per length of the row.
    double lost(const BlockState& block, Size i, std::int32_t label) const {
        return fallen_[std::size_t(label)] +
               double(block.length[std::size_t(i)]) * drifted_[std::size_t(label)];
    }
    // Lowers bounds for costs that rise by these amounts: by the rise of the label's relative to
    // the least rise of all others.
    void follow_rises(const std::vector<double>& rises) {
        double low = infinite, second = infinite;
        for (const double own : rises) {
            second = std::min(second, std::max(low, own));
            low = std::min(low, own);
        }
        for (std::size_t j = 0; k_ > 1 && j < fallen_.size(); ++j)
            fallen_[j] += (rises[j] - (rises[j] == low ? second : low)) * (1 + 0x1p-40) +
                          0x1p-50 * (std::abs(rises[j]) + std::abs(low));
    }
    void follow_prices() { follow_rises(raised_); }

    // Lowers bounds for the movement of the centres since the last assignment, or forgets them. A
    // score changes by the change of the score offset, and by at most the length of the row times
    // the movement; both scores were rounded.
    template <class R, class Rows>
    void follow_centres(const Centres<R>& centroids, const Rows& x) {
        const R* const offset = centroids.score_offset();
        const bool known = Size(steps_.size()) == k_ && Size(offsets_.size()) == k_ &&
                           centroids.in_range() && !(weighted_ && x.weights);
        if (!known) {
            for (BlockState& block : blocks_)
                std::fill(block.gap.begin(), block.gap.end(), unknown);
            fallen_.assign(std::size_t(k_), 0.0);
            drifted_.assign(std::size_t(k_), 0.0);
        } else {
            std::vector<double> rises;
            double far = 0, second = 0, largest = 0;
            for (Size j = 0; j < k_; ++j) {
                rises.push_back(double(offset[j]) - offsets_[std::size_t(j)]);
                largest = std::max({largest, double(offset[j]), offsets_[std::size_t(j)]});
                second = std::max(second, std::min(far, steps_[std::size_t(j)]));
                far = std::max(far, steps_[std::size_t(j)]);
            }
            follow_rises(rises);
            const double longest = std::max(longest_, centroids.longest());
            const double u = 2 * double(std::numeric_limits<R>::epsilon());
            const double rounding = u * (double(x.d) + 8), tiny = 0x1p-120 * (double(x.d) + 8);
            for (std::size_t j = 0; j < drifted_.size(); ++j) {
                const double own = steps_[j];
                drifted_[j] += (own + (own == far ? second : far)) * (1 + 0x1p-40) +
                               4 * rounding * longest + tiny;
                fallen_[j] += 4 * rounding * largest + tiny;
            }
        }
        steps_.clear();
        longest_ = centroids.longest();
        offsets_.assign(offset, offset + k_);
        bounds_follow_ = true;
    }
    // Finds upper bounds of the lengths of the rows, on the scale of costs: 1 for directions.
    template <class Rows>
    void measure(const PricedRows<Rows>& rows, BlockState& block, const Threads& threads) const {
        using R = typename Rows::Real;
        const Rows& x = rows.x;
        const Frame<R>& frame = rows.centroids.frame();
        block.gap.assign(std::size_t(x.n), unknown);
        block.length.assign(std::size_t(x.n), 1.0f + 0x1p-20f);
        if (x.norms) return;
        threads.ranges(x.n, 256, [&](Size begin, Size end, int) {
            DenseTile<R> tile;
            if constexpr (is_dense<Rows>)
                tile.load(x, frame.shift_or_null(), begin, nullptr, end - begin);
            for (Size i = begin; i < end; ++i) {
                double norm2;
                if constexpr (is_dense<Rows>)
                    norm2 = vector_kernels<R>()
                                .square_sum(tile.rows()[i - begin], nullptr, x.d, frame.scale())
                                .value();
                else
                    norm2 =
                        vector_kernels<R>()
                            .square_sum(x.row(i).value, nullptr, x.row(i).nonzeros, frame.scale())
                            .value();
                block.length[std::size_t(i)] = float(std::sqrt(norm2) * (1 + 0x1p-20));
            }
        });
    }

    // The gaps of the open rows at the new prices, ascending.
    std::vector<double> open_gaps(const Transport& transport) const {
        std::vector<double> gaps;
        for (const BlockState& block : blocks_)
            for (std::size_t t = 0; t < block.open.row.size(); ++t) {
                double low = infinite, second = infinite;
                for (Size o = 0; o < block.open.count(t); ++o) {
                    const TransportOption& option = block.open.first(t)[o];
                    const double cost = option.cost + transport.raised(option.cluster);
                    second = std::min(second, std::max(low, cost));
                    low = std::min(low, cost);
                }
                gaps.push_back(second - low);
            }
        std::sort(gaps.begin(), gaps.end());
        return gaps;
    }
    // After a sample of m rows, sizes of clusters are off by about sqrt(k / m) of their size: reach
    // three times as many of the rows that are nearest to a border.
    void next_stride(const Transport& transport, Size m) {
        const std::vector<double> gaps = open_gaps(transport);
        const double share = std::min(1.0, 3 * std::sqrt(double(k_) / double(m)));
        const std::size_t at = std::size_t(share * double(m));
        if (at < gaps.size())
            reach_ = gaps[at];
        else if (!gaps.empty() && reach_ == infinite)
            reach_ = gaps.back();
        if (!(reach_ < infinite)) reach_ = 0;
        stride_ /= sample_step;
        narrowest_ = infinite;
        round_ = 0;
    }
    void finish(const Transport& transport) {
        Size at = 0;
        for (BlockState& block : blocks_) {
            block.solved.resize(block.open.row.size());
            for (std::int32_t& own : block.solved) own = transport.label(at++);
        }
        double low = infinite, high = -infinite;
        for (std::size_t j = 0; j < price_.size(); ++j) {
            low = std::min(low, price_[j] - before_[j]);
            high = std::max(high, price_[j] - before_[j]);
        }
        // Prices change less and less from iteration to iteration. A few rows stay open.
        const std::vector<double> gaps = open_gaps(transport);
        const std::size_t few = std::size_t(4 * k_);
        const double least = gaps.empty() ? 0.0 : gaps[std::min(few, gaps.size() - 1)];
        // A wide reach is dear, a narrow one costs little more than a second pass.
        const double range = (20 * Size(gaps.size()) < n_ ? 1.0 : 0.5) * (high - low);
        reach_ = started_ ? std::max(range, least) : std::max(least, gaps_share(gaps));
        if (!(reach_ < infinite)) reach_ = 0;
        started_ = finished_ = true;
    }
    // After the first assignment centres move most: a gap that a twentieth of the rows are within.
    double gaps_share(const std::vector<double>& gaps) const {
        const std::size_t at = std::size_t(n_ / 20);
        return gaps.empty() ? 0.0 : gaps[std::min(at, gaps.size() - 1)];
    }
    // A reach above 0 where there is none to double.
    double lowest_reach() const {
        double largest = 0x1p-1000;
        for (const double own : price_) largest = std::max(largest, std::abs(own));
        return largest * 0x1p-20;
    }

    Size n_, k_;
    SizeLimits limits_;
    bool weighted_;
    std::vector<double> price_, before_, raised_;
    std::vector<double> fallen_, drifted_;  // per cluster; see lost()
    std::vector<double> steps_, offsets_;   // of the centres since, and at, the last assignment
    double longest_ = 0;                    // centre at the last assignment
    bool bounds_follow_ = false, finished_ = false;
    double reach_ = 0, narrowest_ = infinite;
    bool started_ = false;
    Size stride_ = 1, scored_ = 0;
    std::atomic<Size> gathered_ = 0;  // options
    int round_ = 0;
    std::vector<Size> fixed_;
    std::vector<BlockState> blocks_;
};

// The same for rows in one block: labels and prices become the optimum. `state` keeps prices from
// call to call.
template <class Rows>
void assign_within_limits(const Rows& x, SharedCentres<typename Rows::Real>& shared,
                          LimitedAssignment& state, std::int32_t* labels, const Threads& threads) {
    state.start();
    do {
        state.begin();
        state.add(0, 0, x, shared, labels, threads);
    } while (!state.solve(threads));
    state.write(0, labels, x.n);
}

}  // namespace exactmeans
