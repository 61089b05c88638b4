// Decides, pass by pass, whether the 8-bit filter compares the dense rows of a block, and keeps the
// codes of the centres and the statistics of the last pass.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/totals.hpp"
#include "exactmeans/filter/dense_filter.hpp"

namespace exactmeans {

// Costs per row, in multiply-adds of one float32 lane (base/cost_model.hpp).
struct DenseFilterCost {
    double plain;     // canonical scores of all centres
    double filtered;  // integer products and bounds of all centres
    double candidate;

    template <class R>
    static DenseFilterCost of(Size d, Size k, bool stored) {
        constexpr double wide = double(sizeof(R) / sizeof(float));
        const double products = double(d) / integer_products().speed;
        const double quantize = stored ? 0.0 : cost::dense_quantize * double(d);
        return {.plain = double(k) * (double(d) + cost::dense_score) * wide,
                .filtered =
                    double(k) * (products + cost::dense_bound) + cost::dense_filter_row + quantize,
                .candidate = cost::dense_candidate + cost::dense_candidate_term * wide * double(d)};
    }
    // The cost of a pass with these statistics, as a share of a plain one.
    double share(const FilterStats& stats) const {
        const double n = double(stats.rows);
        const double scores = double(stats.scores + stats.labels);
        return (filtered + scores / n * candidate) / plain + double(stats.undecided) / n;
    }
};

template <class R>
class DenseFilterPass {
public:
    using Input = typename DenseFilter<R>::Input;

    // Should this pass use the filter? If so, quantises the centres, and all rows if their codes
    // may be stored. `labels` are those of the rows before the pass.
    bool start(const DenseRows<R>& x, const Centres<R>& centroids, DenseCodes<R>& rows,
               const std::int32_t* labels, const Threads& threads) {
        const Size k = centroids.k();
        const FilterStats last = totals_.take();
        if (last.rows)
            backoff_.record(DenseFilterCost::of<R>(x.d, k, rows.stored()).share(last) <
                            cost::dense_kept_share);
        const bool keeps = rows.stored() || rows.may_store();  // quantising serves later passes
        if (!may_pay(x.n, x.d, k, keeps) || !rows.possible(x, centroids.frame())) return false;
        if (!backoff_.due()) return false;
        rows.choose_origin(x, centroids.frame());
        if (!centres_.update(centroids, rows, threads)) return false;
        if (rows.stored()) return true;
        const bool pays = probe(x, centroids, rows, labels) < cost::dense_kept_share;
        backoff_.record(pays);
        if (pays && rows.may_store()) rows.store(x, centroids.frame(), threads);
        return pays;
    }
    const DenseCentreCodes<R>& centres() const { return centres_; }

    // Adds the statistics of one range.
    void record(const FilterStats& stats) { totals_.record(stats); }

    // Would the filter be faster with half a candidate per row?
    static bool may_pay(Size n, Size d, Size k, bool stored = true) {
        return may_pay(n, DenseFilterCost::of<R>(d, k, stored));
    }
    // The same for a fit of so many passes with stored codes.
    static bool may_pay_in_fit(Size n, Size d, Size k, Size passes) {
        DenseFilterCost cost = DenseFilterCost::of<R>(d, k, true);
        cost.filtered += (cost::dense_first_row + cost::dense_first_feature * double(d)) /
                         double(std::max<Size>(1, passes));
        return may_pay(n, cost);
    }

    // The cost of a pass over n rows like these, as a share of a plain one; 1 if the filter is not
    // used.
    double expected_cost(const DenseRows<R>& x, Size n, const Centres<R>& centroids,
                         const Threads& threads) {
        DenseCodes<R> rows;
        if (!may_pay(n, x.d, centroids.k()) || !rows.possible(x, centroids.frame())) return 1;
        rows.choose_origin(x, centroids.frame());
        if (!centres_.update(centroids, rows, threads)) return 1;
        return std::min(1.0, probe(x, centroids, rows, nullptr));
    }

private:
    static bool may_pay(Size n, const DenseFilterCost& cost) {
        return integer_products().speed > 1 && n >= cost::dense_filter_rows &&
               cost.filtered + 0.5 * cost.candidate < cost::dense_promised_share * cost.plain;
    }

    // Runs the filter on a few rows. Returns the cost of a pass with stored codes, as a share of a
    // plain one.
    double probe(const DenseRows<R>& x, const Centres<R>& centroids, const DenseCodes<R>& rows,
                 const std::int32_t* labels) {
        const std::vector<Size> ids = spaced_rows(x.n, cost::filter_probe_rows);
        const Input in{x, centroids, rows, centres_};
        return DenseFilterCost::of<R>(x.d, centroids.k(), true)
            .share(probe_.nearest(in, 0, ids.data(), Size(ids.size()), labels));
    }

    DenseCentreCodes<R> centres_;
    DenseFilter<R> probe_;
    Backoff backoff_{cost::dense_filter_wait, cost::dense_filter_longest_wait};
    Totals<FilterStats> totals_;  // of this pass
};

}  // namespace exactmeans
