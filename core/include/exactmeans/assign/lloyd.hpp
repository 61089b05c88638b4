// Lloyd's algorithm (S. P. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28,
// 1982).
//
// Compares every row with every centre. The kernels keep scores in registers, so there is no matrix
// of rows by centres. Where the 8-bit filters pay (filter/), they give the same labels in less
// time. All other algorithms must give the same labels. Memory: none per row, except norms and
// slack of CSR rows, and 8-bit codes of dense rows if the filter stores them
// (filter/dense_codes.hpp).
//
//   paper       here
//   q₁ … q_ν    the k centres, work.centroids
//   Q₁ … Q_ν    the clusters: Q_j has the rows i with work.labels[i] = j
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/filter/dense_filter_pass.hpp"
#include "exactmeans/filter/filter_probe.hpp"
#include "exactmeans/filter/windowed_filter.hpp"
#include "exactmeans/scan/float32_scores.hpp"

namespace exactmeans {

template <class R>
class Lloyd {
public:
    using Real = R;
    static constexpr Traits traits{"lloyd", "every row against every centre", true, true,
                                   "euclidean cosine angular manhattan"};
    static Size bytes_per_row(Size, Size, bool dense) {
        return dense ? 0 : RowSlacks<R>::bytes_per_row;
    }

    Lloyd(Size, Size) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        quantized_ = nullptr;
        windowed_ = false;
        if constexpr (!is_dense<Rows>) {
            if (probe_.due(work.centroids, work.layouts.settings())) {
                auto quantized =
                    work.layouts.template get<QuantizedCentres<R>>(work.centroids, false, threads);
                if (probe_.pays(work.x, work.centroids, *quantized)) {
                    quantized_ = std::move(quantized);
                    return;
                }
            } else if (!FilterProbe<R>::fits(work.centroids, work.layouts.settings())) {
                windowed_ = window_filter_.try_to_label(work.x, work.centroids,
                                                        work.layouts.settings(), nullptr, threads);
                if (windowed_) return;
            }
        }
        float32_scores_.pack(work, threads);
        if constexpr (is_dense<Rows>)
            filters_ = filter_.start(work.x, work.centroids, *work.codes, work.labels, threads);
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        AssignStats stats;
        stats.distances = (end - begin) * work.centroids.k();
        const auto take_some = [&](const std::int32_t* label, Size count, Size first) {
            std::int32_t* const to = work.labels + first;
            std::int32_t changed = 0;  // as wide as labels, so that the loop vectorizes well
            for (Size t = 0; t < count; ++t) changed += label[t] != to[t];
            std::copy_n(label, count, to);
            stats.changed += changed;
        };
        const auto take = [&](const std::vector<std::int32_t>& label, Size first) {
            take_some(label.data(), Size(label.size()), first);
        };
        if constexpr (!is_dense<Rows>) {
            if (windowed_) {
                take_some(window_filter_.label.data() + begin, end - begin, begin);
                return stats;
            }
            if (quantized_) {
                QuantizedFilter<R>& filter = scan.filter;
                const Size batch = quantized_->rows_per_call(end - begin);
                for (Size first = begin; first < end; first += batch) {
                    const auto row_of = [&](Size t) { return first + t; };
                    const Size past = std::min(end, first + batch);
                    filter.load(work.x, first, past);
                    filter.prefetch_next(work.x, past, std::min(end, past + batch));
                    filter.quantize(*quantized_);
                    filter.label_rows(work.x, work.centroids, *quantized_, row_of);
                    take(filter.label, first);
                }
                return stats;
            }
        }
        if constexpr (is_dense<Rows>) {
            if (filters_) {
                stats.distances = 0;
                filter_range(work, scan, begin, end, stats);
                take(scan.dense_filter.label, begin);
                return stats;
            }
        }
        scan.nearest(work, begin, nullptr, end - begin, false);
        if constexpr (is_dense<Rows>) count_doubtful(scan, stats);
        take(scan.label, begin);
        return stats;
    }

    void moved(const Movement&) { quantized_ = nullptr; }

    // With the filter, a range is a multiple of its blocks, short enough for many ranges per
    // thread.
    template <class Rows>
    Size range_rows(const Rows& x, Size k, int n_jobs) const {
        constexpr Size block = cost::dense_block_rows;
        return filters_
                   ? std::clamp<Size>(x.n / (cost::short_tasks_per_thread * n_jobs) / block * block,
                                      block, cost::dense_filter_task_rows)
                   : chunk_rows(x, k, n_jobs);
    }

private:
    template <class Rows>
    static void count_doubtful(const Scan<Rows>& scan, AssignStats& stats) {
        for (const R score : scan.score)
            stats.without_score += !(std::abs(score) < std::numeric_limits<R>::infinity());
    }

    // Labels rows [begin, end) by the filter, or, if it does not decide a row, by canonical scores
    // of all centres.
    template <class Rows>
    void filter_range(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end,
                      AssignStats& stats) {
        DenseFilter<R>& filter = scan.dense_filter;
        const FilterStats filtered =
            filter.nearest({work.x, work.centroids, *work.codes, filter_.centres()}, begin, nullptr,
                           end - begin, work.labels);
        filter_.record(filtered);
        stats.skipped += filtered.decided;
        stats.add(filtered, filtered.undecided * work.centroids.k());
        if (filter.undecided.empty()) return;
        std::vector<Size> ids;
        for (const Size t : filter.undecided) ids.push_back(begin + t);
        scan.nearest(work, 0, ids.data(), Size(ids.size()), false);
        count_doubtful(scan, stats);
        for (std::size_t o = 0; o < ids.size(); ++o)
            filter.label[std::size_t(filter.undecided[o])] = scan.label[o];
    }

    // Null: this pass does not use the filter.
    std::shared_ptr<const QuantizedCentres<R>> quantized_;
    FilterProbe<R> probe_;
    WindowedFilter<R> window_filter_;
    bool windowed_ = false;  // are the labels of this pass in window_filter_?
    Float32Scores float32_scores_;
    DenseFilterPass<R> filter_;
    bool filters_ = false;  // this pass uses the filter for dense rows
};

}  // namespace exactmeans
