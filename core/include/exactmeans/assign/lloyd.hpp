// Lloyd's algorithm (S. P. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28,
// 1982).
//
// Compares every row with every centre. The kernels keep scores in registers, so there is no matrix
// of rows by centres. Its labels are the reference: all other algorithms must give the same.
// Memory: none per row for dense rows; norms and slack of CSR rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/filter/quantized_filter.hpp"

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
        coarse_ = nullptr;
        if constexpr (!is_dense<Rows>) {
            if (look_.possible(work.centroids, work.layouts.settings())) {
                auto coarse =
                    work.layouts.template get<QuantizedCentres<R>>(work.centroids, false, threads);
                if (look_.pays(work.x, work.centroids, *coarse)) {
                    coarse_ = std::move(coarse);
                    return;
                }
            }
        }
        float32_scores_.pack(work, threads);
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        AssignStats stats;
        stats.distances = (end - begin) * work.centroids.k();
        const auto take = [&](const std::vector<std::int32_t>& label, Size first) {
            std::int32_t* const to = work.labels + first;
            std::int32_t changed = 0;  // as wide as labels, so that the loop vectorizes well
            for (std::size_t t = 0; t < label.size(); ++t) changed += label[t] != to[t];
            std::copy(label.begin(), label.end(), to);
            stats.changed += changed;
        };
        if constexpr (!is_dense<Rows>) {
            if (coarse_) {
                const Size batch = coarse_->batch(end - begin);
                for (Size first = begin; first < end; first += batch) {
                    const auto row_of = [&](Size t) { return first + t; };
                    const Size past = std::min(end, first + batch);
                    scan.coarse.take(work.x, first, past);
                    scan.coarse.expect(work.x, past, std::min(end, past + batch));
                    scan.coarse.get_ready(*coarse_);
                    scan.coarse.nearest(work.x, work.centroids, *coarse_, row_of);
                    take(scan.coarse.label, first);
                }
                return stats;
            }
        }
        scan.nearest(work, begin, nullptr, end - begin, false);
        if constexpr (is_dense<Rows>)
            for (const R score : scan.score)
                stats.doubtful += !(std::abs(score) < std::numeric_limits<R>::infinity());
        take(scan.label, begin);
        return stats;
    }

    void moved(const Movement&) { coarse_ = nullptr; }

private:
    std::shared_ptr<const QuantizedCentres<R>> coarse_;  // null: this pass does not use the filter
    FirstLook<R> look_;
    Float32Scores float32_scores_;
};

}  // namespace exactmeans
