// Rows against centres with prices: row i in cluster j costs factor_i * score_ij + price_j.
//
// Costs are float64 values of canonical scores, so the cheapest cluster of a row, the lowest number
// on ties, does not depend on threads, blocks or the filter. The factor of a row is its weight
// where costs are weighted, divided by its length for spherical metrics.
//
// The int8 filter of CSR rows certifies for most rows that every other cluster costs more by a
// wanted gap; only the others need canonical scores. It takes prices as part of the score offsets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/filter/filter_probe.hpp"
#include "exactmeans/filter/quantized_filter.hpp"
#include "exactmeans/kernels/scores.hpp"

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
    HeldPanels<R> panels;

    // `weighted`: costs are multiplied by the weights of the rows.
    PricedRows(const Rows& rows, SharedCentres<R>& shared, const std::vector<double>& prices,
               bool weighted, const Threads& threads)
        : x(rows),
          centroids(shared.centres),
          price(prices),
          panels(shared.layouts.panels(centroids, is_dense<Rows>, threads)),
          weighted_(weighted && rows.weights),
          unpack_(std::ldexp(1.0, -centroids.frame().packing)) {
        if constexpr (!is_dense<Rows>)
            if (!weighted_ && !x.norms && centroids.in_range() &&
                FilterProbe<R>::fits(centroids, shared.layouts.settings()))
                start_filter(shared, threads);
    }

    double factor(Size i) const {
        return row_factor(weighted_ ? x.weight(i) : 1.0, x.norms, i) * unpack_;
    }
    // Does row i have a cost? Without a direction, it is in no cluster.
    bool counts(Size i) const { return !x.norms || x.norms[i] > 0; }

    bool filters() const { return filter_ != nullptr; }
    const QuantizedCentres<R>& filter() const { return *filter_; }
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
    // What the rounding of costs may take from a gap that the filter certifies.
    double filter_margin() const { return (largest_offset_ + largest_price_) * 0x1p-40; }

private:
    // Score offsets with prices, all raised by the same amount so that none is negative.
    void start_filter(SharedCentres<R>& shared, const Threads& threads) {
        filter_ = shared.layouts.template get<QuantizedCentres<R>>(centroids, false, threads);
        const Size k = centroids.k(), places = filter_->panels().places();
        const double lowest = *std::min_element(price.begin(), price.end());
        offset_.assign(std::size_t(places), std::numeric_limits<float>::infinity());
        for (Size j = 0; j < k; ++j) {
            const double offset =
                double(centroids.score_offset()[j]) + (price[std::size_t(j)] - lowest);
            largest_offset_ = std::max(largest_offset_, offset);
            largest_price_ = std::max(largest_price_, std::abs(price[std::size_t(j)]));
            offset_[std::size_t(filter_->place(j))] = QuantizedPanels::stored_offset(offset);
        }
        if (!(largest_offset_ < QuantizedRow::largest)) filter_ = nullptr;
    }

    bool weighted_;
    double unpack_;
    std::shared_ptr<const QuantizedCentres<R>> filter_;
    std::vector<float> offset_;  // per place of the filter
    double largest_offset_ = 0, largest_price_ = 0;
};

// The comparisons of one thread. Results of row ids[t] are at [t].
template <class Rows>
class PricedScan {
public:
    using R = typename Rows::Real;

    // Rows whose costs are computed at a time: 1 MiB of costs, whole register tiles of dense rows.
    static Size batch(Size k) { return std::clamp<Size>((Size(1) << 17) / k / 48 * 48, 48, 960); }

    std::vector<std::int32_t> label;
    // A lower bound of what every other cluster costs more; exact for rows in `exact`.
    std::vector<double> gap;
    std::vector<std::int32_t> exact;  // positions t of rows with canonical scores, ascending

    // Labels rows ids[0, count). Rows whose gap may be `wanted` or less get canonical scores, and
    // on_costs(t, costs) sees their costs.
    template <class OnCosts>
    void run(const PricedRows<Rows>& rows, const Size* ids, Size count, double wanted,
             OnCosts on_costs) {
        label.resize(std::size_t(count));
        gap.resize(std::size_t(count));
        exact.clear();
        if constexpr (!is_dense<Rows>)
            if (rows.filters()) filter(rows, ids, count, wanted);
        if (!rows.filters())
            for (Size t = 0; t < count; ++t) exact.push_back(std::int32_t(t));
        const Size k = rows.centroids.k(), step = batch(k);
        for (Size begin = 0; begin < Size(exact.size()); begin += step)
            score(rows, ids, begin, std::min(step, Size(exact.size()) - begin), on_costs);
    }

private:
    void filter(const PricedRows<Rows>& rows, const Size* ids, Size count, double wanted) {
        const QuantizedPanels panels = rows.filter_panels();
        filter_.load_some(rows.x, count, [&](Size t) { return ids[t]; });
        filter_.quantize(rows.quantization());
        filter_.score(panels);
        typename QuantizedFilter<R>::GroupLows others;
        for (Size t = 0; t < count; ++t) {
            const auto best = filter_.best(panels, t, others);
            const double certain = others.lowest() - best.high - rows.filter_margin();
            label[std::size_t(t)] = std::int32_t(rows.filter().centre(best.place));
            gap[std::size_t(t)] = certain;
            if (!(certain > wanted)) exact.push_back(std::int32_t(t));
        }
    }

    template <class OnCosts>
    void score(const PricedRows<Rows>& rows, const Size* ids, Size begin, Size count,
               OnCosts on_costs) {
        const Size k = rows.centroids.k();
        picked_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t)
            picked_[std::size_t(t)] = ids[exact[std::size_t(begin + t)]];
        scores_.resize(std::size_t(count * k));
        const ScoreKernels<R>& by = score_kernels<R>();
        if constexpr (is_dense<Rows>) {
            tile_.load(rows.x, rows.centroids.frame().shift_or_null(), 0, picked_.data(), count);
            by.scores_dense(tile_.rows(), count, rows.panels, scores_.data());
        } else {
            by.scores_csr(packed_.load(rows.x, rows.panels, 0, picked_.data(), count), count,
                          rows.panels, scores_.data());
        }
        costs_.resize(std::size_t(k));
        for (Size t = 0; t < count; ++t) {
            const double factor = rows.factor(picked_[std::size_t(t)]);
            const R* const own = scores_.data() + t * k;
            for (Size j = 0; j < k; ++j) {
                const double cost = factor * double(own[j]) + rows.price[std::size_t(j)];
                costs_[std::size_t(j)] = cost < highest_cost ? cost : highest_cost;
            }
            const Size at = Size(exact[std::size_t(begin + t)]);
            double low, second;
            score_kernels<double>().lowest_two(costs_.data(), 1, k,
                                               {&label[std::size_t(at)], &low, &second});
            gap[std::size_t(at)] = second - low;  // infinite for one centre
            on_costs(at, static_cast<const double*>(costs_.data()));
        }
    }

    QuantizedFilter<R> filter_;
    DenseTile<R> tile_;
    PackedCsrRows<R> packed_;
    std::vector<Size> picked_;
    std::vector<R> scores_;
    std::vector<double> costs_;
};

// The cluster of every row at these prices: the power diagram. Rows without a direction get 0.
template <class Rows>
void priced_labels(const Rows& x, SharedCentres<typename Rows::Real>& shared,
                   const std::vector<double>& price, std::int32_t* labels, const Threads& threads) {
    const PricedRows<Rows> rows(x, shared, price, false, threads);
    std::vector<PricedScan<Rows>> scans(static_cast<std::size_t>(threads.n_jobs));
    threads.ranges(x.n, 960, [&](Size begin, Size end, int worker) {
        PricedScan<Rows>& scan = scans[std::size_t(worker)];
        std::vector<Size> ids(static_cast<std::size_t>(end - begin));
        for (Size i = begin; i < end; ++i) ids[std::size_t(i - begin)] = i;
        scan.run(rows, ids.data(), end - begin, 0.0, [](Size, const double*) {});
        for (Size i = begin; i < end; ++i)
            labels[i] = rows.counts(i) ? scan.label[std::size_t(i - begin)] : 0;
    });
}

}  // namespace exactmeans
