// Canonical scores of some rows and all centres of a node. Buffers of one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

template <class Rows>
class NodeScores {
public:
    using R = typename Rows::Real;
    static constexpr Size tile_rows = 96;

    // Computes the scores of rows [begin, begin + count), at most tile_rows.
    void run(const Rows& x, const Centres<R>& centres, const HeldPanels<R>& panels, Size begin,
             Size count) {
        k_ = centres.k();
        scores_.resize(std::size_t(count * k_));
        const ScoreKernels<R>& by = score_kernels<R>();
        const bool l1 = centres.frame().metric == Metric::manhattan;
        if constexpr (is_dense<Rows>) {
            tile_.load(x, centres.frame().shift_or_null(), begin, nullptr, count);
            (l1 ? by.scores_dense_l1 : by.scores_dense)(tile_.rows(), count, panels,
                                                        scores_.data());
        } else {
            (l1 ? by.scores_csr_l1 : by.scores_csr)(packed_.load(x, panels, begin, nullptr, count),
                                                    count, panels, scores_.data());
        }
    }
    // The k scores of row t of the tile.
    const R* row(Size t) const { return scores_.data() + t * k_; }

    // The values of dense row t of the tile, shifted.
    const R* values(Size t) const { return tile_.rows()[t]; }

    // |x|^2 of row i, row t of the tile, on the frame's scale; of the shifted row where rows are
    // shifted.
    double norm2(const Rows& x, Size i, Size t, double scale) const {
        if constexpr (is_dense<Rows>)
            return vector_kernels<R>().square_sum(tile_.rows()[t], nullptr, x.d, scale).value();
        else
            return vector_kernels<R>()
                .square_sum(x.row(i).value, nullptr, x.row(i).nonzeros, scale)
                .value();
    }

    // The cost of row i from its score, to which prices of children are added; without a term that
    // depends on the row alone. For directions, minus the cosine.
    static double cost(const Rows& x, Size i, const Frame<R>& frame, R score) {
        if (!x.norms) return std::ldexp(double(score), -2 * frame.exponent);
        return x.norms[i] > 0 ? std::ldexp(double(score), -frame.packing) / x.norms[i] : 0.0;
    }

private:
    DenseTile<R> tile_;
    PackedCsrRows<R> packed_;
    std::vector<R> scores_;
    Size k_ = 0;
};

}  // namespace exactmeans
