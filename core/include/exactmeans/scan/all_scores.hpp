// Canonical scores of a few rows and all centres.
#pragma once

#include <vector>

#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

// Buffers of one thread. Row t of a call is row ids[t], or begin + t if ids is null.
template <class Rows>
class AllScores {
public:
    using R = typename Rows::Real;

    void run(const Rows& x, const Centres<R>& centres, const Panels<R>& panels, Size begin,
             const Size* ids, Size count) {
        k_ = centres.k();
        scores_.resize(std::size_t(count * k_));
        const ScoreKernels<R>& by = score_kernels<R>();
        const bool l1 = centres.frame().metric == Metric::manhattan;
        load(x, centres, begin, ids, count);
        if constexpr (is_dense<Rows>)
            (l1 ? by.scores_dense_l1 : by.scores_dense)(tile_.rows(), count, panels,
                                                        scores_.data());
        else
            (l1 ? by.scores_csr_l1 : by.scores_csr)(packed_.load(x, panels, begin, ids, count),
                                                    count, panels, scores_.data());
    }
    // Loads dense rows for values() and norm2(), as run() does.
    void load(const Rows& x, const Centres<R>& centres, Size begin, const Size* ids, Size count) {
        if constexpr (is_dense<Rows>)
            tile_.load(x, centres.frame().shift_or_null(), begin, ids, count);
    }

    // The k scores of row t.
    const R* of_row(Size t) const { return scores_.data() + t * k_; }
    // The values of dense row t, shifted.
    const R* values(Size t) const { return tile_.rows()[t]; }
    // |x|^2 of row i, row t of the call, times scale^2; of the shifted row if rows are shifted.
    double norm2(const Rows& x, Size i, Size t, double scale) const {
        const R* values;
        Size count = x.d;
        if constexpr (is_dense<Rows>) {
            values = tile_.rows()[t];
        } else {
            values = x.row(i).value;
            count = x.row(i).nonzeros;
        }
        return vector_kernels<R>().square_sum(values, nullptr, count, scale).value();
    }

private:
    DenseTile<R> tile_;
    PackedCsrRows<R> packed_;
    std::vector<R> scores_;
    Size k_ = 0;
};

}  // namespace exactmeans
