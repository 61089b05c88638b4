// Decides, pass by pass, whether the 8-bit filter compares the dense rows of a block, and keeps
// what that needs: the codes of the centres, and the statistics of the last pass.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/filter/dense_filter.hpp"

namespace exactmeans {

template <class R>
class DenseFilterPass {
public:
    using Input = typename DenseFilter<R>::Input;

    // May the filter be used in this pass? If so, quantises the centres, and, the first time, the
    // rows. `labels` are those of the rows before the pass.
    bool start(const DenseRows<R>& x, const Centres<R>& centroids, DenseCodes<R>& rows,
               const std::int32_t* labels, const Threads& threads) {
        if (passed_.rows) backoff_.record(pays(x, centroids.k(), passed_));
        passed_ = {};
        if (!may_pay(x, centroids.k()) || !rows.possible(x, centroids.frame())) return false;
        if (!backoff_.due()) return false;
        rows.choose_origin(x, centroids.frame());
        if (!centres_.update(centroids, rows, threads)) return false;
        if (rows.stored()) return true;
        if (!probe(x, centroids, rows, labels)) return false;
        if (rows.may_store()) rows.store(x, centroids.frame(), threads);
        return true;
    }
    const DenseCentreCodes<R>& centres() const { return centres_; }

    // Adds the statistics of one range.
    void record(const FilterStats& stats) {
        const std::lock_guard lock(mutex_);
        passed_ += stats;
    }

private:
    // Times in multiply-adds of float32 by one vector lane, measured on Zen 4 with AVX512-VNNI.
    static constexpr double per_score = 10, per_row = 1600, per_candidate = 700,
                            per_candidate_value = 2.5, per_quantized_value = 12;
    static constexpr Size least_rows = 2048, probed = 256;

    // Can the filter be faster if it decides nearly all rows?
    static bool may_pay(const DenseRows<R>& x, Size k) {
        const int speed = integer_products().speed;
        return speed > 1 && x.n >= least_rows &&
               filtered_cost(x, k) + 0.5 * cost_of(x) < 0.9 * plain_cost(x, k);
    }
    static bool pays(const DenseRows<R>& x, Size k, const FilterStats& stats) {
        const double n = double(stats.rows), open = double(stats.open);
        return filtered_cost(x, k) + double(stats.scores) / n * cost_of(x) +
                   open / n * plain_cost(x, k) <
               0.95 * plain_cost(x, k);
    }
    static double plain_cost(const DenseRows<R>& x, Size k) {
        return double(k) * (double(x.d) + 4) * double(sizeof(R) / sizeof(float));
    }
    static double filtered_cost(const DenseRows<R>& x, Size k) {
        return double(k) * (double(x.d) / integer_products().speed + per_score) + per_row;
    }
    static double cost_of(const DenseRows<R>& x) {
        return per_candidate +
               per_candidate_value * double(x.d) * double(sizeof(R) / sizeof(float));
    }

    // Tries the filter with a few rows.
    bool probe(const DenseRows<R>& x, const Centres<R>& centroids, const DenseCodes<R>& rows,
               const std::int32_t* labels) {
        const Size some = std::min(probed, x.n);
        std::vector<Size> ids(static_cast<std::size_t>(some));
        for (Size t = 0; t < some; ++t) ids[std::size_t(t)] = t * (x.n / some);
        const Input in{x, centroids, rows, centres_};
        const bool paid = pays(x, centroids.k(), probe_.nearest(in, 0, ids.data(), some, labels));
        backoff_.record(paid);
        return paid;
    }

    DenseCentreCodes<R> centres_;
    DenseFilter<R> probe_;
    Backoff backoff_{4, 64};  // passes
    std::mutex mutex_;
    FilterStats passed_;
};

}  // namespace exactmeans
