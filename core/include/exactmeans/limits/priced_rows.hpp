// Rows against centres with prices: row i in cluster j costs factor_i * score_ij + price_j.
//
// Costs are float64 values of canonical scores, so the cheapest cluster of a row, the lowest number
// on ties, does not depend on threads, blocks or the filter. The factor of a row is its weight
// where costs are weighted, divided by its length for spherical metrics.
//
// For most CSR rows, the 8-bit filter certifies that every other cluster costs more by at least the
// gap of interest, `wanted`; the other rows get canonical scores of the clusters within the gap.
// Prices enter the filter as part of the score offsets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/centres/single_centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/filter/filter_probe.hpp"
#include "exactmeans/filter/quantized_filter.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/scan/all_scores.hpp"

namespace exactmeans {

// Costs of centres out of range count as this much; costs are below it.
inline constexpr double highest_cost = 0x1p1000;

// A pass over rows at given prices; shared by all threads.
template <class Rows>
class PricedRows {
public:
    using R = typename Rows::Real;

    const Rows& x;
    const Centres<R>& centroids;
    const std::vector<double>& price;
    const double wanted;   // rows with a larger gap need no canonical scores
    HeldPanels<R> panels;  // unless the filter is used

    // `weighted`: costs are multiplied by the weights of the rows.
    PricedRows(const Rows& rows, SharedCentres<R>& shared, const std::vector<double>& prices,
               double wanted_gap, bool weighted, const Threads& threads)
        : x(rows),
          centroids(shared.centres),
          price(prices),
          wanted(wanted_gap),
          weighted_(weighted && rows.weights),
          unpack_(std::ldexp(1.0, -centroids.frame().packing)) {
        if constexpr (!is_dense<Rows>)
            if (!weighted_ && !x.norms && centroids.in_range() &&
                wanted < std::numeric_limits<double>::infinity() &&
                FilterProbe<R>::fits(centroids, shared.layouts.settings()))
                start_filter(shared, threads);
        if (!filters()) panels = shared.layouts.panels(centroids, is_dense<Rows>, threads);
    }

    double factor(Size i) const {
        return row_factor(weighted_ ? x.weight(i) : 1.0, x.norms, i) * unpack_;
    }
    // A row without a direction has no cost and is in no cluster.
    bool has_cluster(Size i) const { return !x.norms || x.norms[i] > 0; }

    bool filters() const { return filter_ != nullptr; }
    const QuantizedCentres<R>& filter() const { return *filter_; }
    const SingleCentres<R>& singles() const { return *singles_; }
    // A cost is a score of the filter plus this.
    double lowest_price() const { return lowest_price_; }
    QuantizedPanels filter_panels() const {
        QuantizedPanels own = filter_->panels();
        own.score_offset = offset_.data();
        return own;
    }
    Quantization quantization() const {
        Quantization own = filter_->quantization();
        own.largest_score_offset = largest_offset_;
        return own;
    }
    // The rounding of costs, by which a certified gap may be too large.
    double filter_margin() const { return (largest_offset_ + largest_price_) * 0x1p-40; }

private:
    // Score offsets with prices, all raised by the same amount so that none is negative.
    void start_filter(SharedCentres<R>& shared, const Threads& threads) {
        filter_ = shared.layouts.template get<QuantizedCentres<R>>(centroids, false, threads);
        const Size k = centroids.k(), places = filter_->panels().places();
        lowest_price_ = *std::min_element(price.begin(), price.end());
        offset_.assign(std::size_t(places), std::numeric_limits<float>::infinity());
        for (Size j = 0; j < k; ++j) {
            const double offset =
                double(centroids.score_offset()[j]) + (price[std::size_t(j)] - lowest_price_);
            largest_offset_ = std::max(largest_offset_, offset);
            largest_price_ = std::max(largest_price_, std::abs(price[std::size_t(j)]));
            offset_[std::size_t(filter_->place(j))] = QuantizedPanels::stored_offset(offset);
        }
        if (!(largest_offset_ < QuantizedRow::largest)) filter_ = nullptr;
        if (filter_)
            singles_ = shared.layouts.template get<SingleCentres<R>>(centroids, false, threads);
    }

    bool weighted_;
    double unpack_;
    std::shared_ptr<const QuantizedCentres<R>> filter_;
    std::shared_ptr<const SingleCentres<R>> singles_;
    double lowest_price_ = 0;
    std::vector<float> offset_;  // per place of the filter
    double largest_offset_ = 0, largest_price_ = 0;
};

// Costs of a row: of these centres, or of all if `centre` is null.
struct RowCosts {
    const std::int32_t* centre;
    const double* cost;
    Size count;

    std::int32_t at(Size c) const { return centre ? centre[c] : std::int32_t(c); }
};

// The comparisons of one thread. Results of row ids[t] are at [t].
template <class Rows>
class PricedScan {
public:
    using R = typename Rows::Real;

    std::vector<std::int32_t> label;
    // A lower bound of how much more every other cluster costs; exact if it is at most `wanted`.
    std::vector<double> gap;
    // Labels rows ids[0, count). Calls on_open(t, costs) for the rows that have another cluster
    // within the wanted gap, with the costs of at least all clusters within it.
    template <class OnOpen>
    void run(const PricedRows<Rows>& rows, const Size* ids, Size count, OnOpen on_open) {
        label.resize(std::size_t(count));
        gap.resize(std::size_t(count));
        if constexpr (!is_dense<Rows>)
            if (rows.filters()) return filter(rows, ids, count, on_open);
        // Whole register tiles of dense rows at a time.
        const Size k = rows.centroids.k(), fit = cost::score_bytes / (k * Size(sizeof(double))),
                   step = std::clamp<Size>(fit / dense_tile_rows * dense_tile_rows, dense_tile_rows,
                                           cost::priced_rows_per_task);
        for (Size begin = 0; begin < count; begin += step)
            score(rows, ids, begin, std::min(step, count - begin), on_open);
    }

private:
    template <class OnOpen>
    void filter(const PricedRows<Rows>& rows, const Size* ids, Size count, OnOpen on_open) {
        const QuantizedPanels panels = rows.filter_panels();
        const Panels<R> by_feature = rows.singles().panels();
        filter_.load_some(rows.x, count, [&](Size t) { return ids[t]; });
        filter_.quantize(rows.quantization());
        filter_.score(panels);
        typename QuantizedFilter<R>::GroupLows others;
        for (Size t = 0; t < count; ++t) {
            const auto best = filter_.best(panels, t, others);
            const double certain = others.lowest() - best.high - rows.filter_margin();
            label[std::size_t(t)] = std::int32_t(rows.filter().centre(best.place));
            gap[std::size_t(t)] = certain;
            if (certain > rows.wanted) continue;
            const double limit = best.high + rows.wanted + rows.filter_margin();
            list_candidates(rows, panels, t, limit);
            scores_.resize(candidates_.size());
            const PackedCsrRow<R>* const row = packed_.load(rows.x, by_feature, 0, ids + t, 1);
            for (std::size_t c = 0; c < candidates_.size(); ++c)
                score_kernels<R>().centre_csr(row, 1, rows.singles().values(candidates_[c]),
                                              rows.centroids.score_offset()[candidates_[c]],
                                              &scores_[c]);
            decide(rows, ids[t], t, candidates_.data(), scores_.data(), Size(candidates_.size()),
                   limit + rows.lowest_price(), on_open);
        }
    }
    // Lists the centres whose scores with prices may be as low as the limit.
    void list_candidates(const PricedRows<Rows>& rows, const QuantizedPanels& panels, Size t,
                         double limit) {
        const float most = filter_.score_limit(t, limit);
        listed_.resize(std::size_t(panels.places()));
        float others[QuantizedPanels::most_groups] = {};
        candidates_.clear();
        for (Size p = 0; p < panels.count(); ++p) {
            const Size found = quantized_kernels().places_below(filter_.quantized(t), panels, p,
                                                                most, listed_.data(), others);
            for (Size c = 0; c < found; ++c)
                if (const Size j = rows.filter().centre(Size(listed_[std::size_t(c)]));
                    j != QuantizedCentres<R>::none)
                    candidates_.push_back(std::int32_t(j));
        }
    }

    template <class OnOpen>
    void score(const PricedRows<Rows>& rows, const Size* ids, Size begin, Size count,
               OnOpen on_open) {
        const Size k = rows.centroids.k();
        all_scores_.run(rows.x, rows.centroids, rows.panels, 0, ids + begin, count);
        costs_.resize(std::size_t(count * k));
        at_.resize(std::size_t(count));
        low_.resize(std::size_t(count));
        second_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t)
            set_costs(rows, ids[begin + t], nullptr, all_scores_.of_row(t), k,
                      costs_.data() + t * k);
        score_kernels<double>().lowest_two(costs_.data(), count, k,
                                           {at_.data(), low_.data(), second_.data()});
        for (Size t = 0; t < count; ++t) {
            const std::size_t r = std::size_t(t);
            keep(rows, begin + t, {at_[r], low_[r], second_[r], second_[r]},
                 {nullptr, costs_.data() + t * k, k}, on_open);
        }
    }

    // Sets label and gap of row i from canonical scores of some centres; all others cost at least
    // `others`.
    template <class OnOpen>
    void decide(const PricedRows<Rows>& rows, Size i, Size t, const std::int32_t* centres,
                const R* scores, Size count, double others, OnOpen on_open) {
        costs_.resize(std::size_t(count));
        set_costs(rows, i, centres, scores, count, costs_.data());
        double low, second;
        std::int32_t at;
        score_kernels<double>().lowest_two(costs_.data(), 1, count, {&at, &low, &second});
        // Of equal costs, the lowest number wins.
        std::int32_t best = centres[at];
        for (Size c = 0; second == low && c < count; ++c)
            if (costs_[std::size_t(c)] == low) best = std::min(best, centres[c]);
        keep(rows, t, {best, low, second, std::min(second, others)},
             {centres, costs_.data(), count}, on_open);
    }
    static void set_costs(const PricedRows<Rows>& rows, Size i, const std::int32_t* centres,
                          const R* scores, Size count, double* costs) {
        const double factor = rows.factor(i);
        const double* const price = rows.price.data();
        for (Size c = 0; c < count; ++c) {
            const double cost = factor * double(scores[c]) + price[centres ? centres[c] : c];
            costs[c] = cost < highest_cost ? cost : highest_cost;
        }
    }
    // The cheapest centre of a row, its cost, the next that is known, and a bound of all others.
    struct Best {
        std::int32_t centre;
        double cost, second, others;
    };
    template <class OnOpen>
    void keep(const PricedRows<Rows>& rows, Size t, const Best& best, const RowCosts& costs,
              OnOpen on_open) {
        label[std::size_t(t)] = best.centre;
        const bool open = best.second - best.cost <= rows.wanted;
        constexpr double infinity = std::numeric_limits<double>::infinity();
        // If a row is not open, rounding must not take its gap below the wanted one.
        gap[std::size_t(t)] =
            open ? best.second - best.cost
                 : std::max(best.others - best.cost, std::nextafter(rows.wanted, infinity));
        if (open) on_open(t, costs);
    }

    QuantizedFilter<R> filter_;
    AllScores<Rows> all_scores_;
    PackedCsrRows<R> packed_;
    std::vector<R> scores_;  // of candidates
    std::vector<double> costs_, low_, second_;
    std::vector<std::int32_t> at_;
    std::vector<std::int32_t> listed_, candidates_;
};

// The cluster of every row at these prices: the power diagram. Rows without a direction get 0.
template <class Rows>
void priced_labels(const Rows& x, SharedCentres<typename Rows::Real>& shared,
                   const std::vector<double>& price, std::int32_t* labels, const Threads& threads) {
    const PricedRows<Rows> rows(x, shared, price, 0.0, false, threads);
    std::vector<PricedScan<Rows>> scans(static_cast<std::size_t>(threads.n_jobs));
    threads.ranges(x.n, cost::priced_rows_per_task, [&](Size begin, Size end, int worker) {
        PricedScan<Rows>& scan = scans[std::size_t(worker)];
        std::vector<Size> ids(static_cast<std::size_t>(end - begin));
        for (Size i = begin; i < end; ++i) ids[std::size_t(i - begin)] = i;
        scan.run(rows, ids.data(), end - begin, [](Size, const RowCosts&) {});
        for (Size i = begin; i < end; ++i)
            labels[i] = rows.has_cluster(i) ? scan.label[std::size_t(i - begin)] : 0;
    });
}

}  // namespace exactmeans
