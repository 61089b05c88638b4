// A first look at CSR rows by centres in 16 bits (coarse.hpp): which of them it settles, and
// whether it is worth while.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "exactmeans/coarse.hpp"
#include "exactmeans/pair_score.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

// One thread's buffers for labels by a first look. What it finds of loaded row t stands at [t].
template <class R>
class CoarseScan {
public:
    // Makes rows [begin, begin + count), `stride` apart, ready for looks at centres.
    template <class I>
    void load(const CsrRows<R, I>& x, Size begin, Size count, Size stride = 1) {
        const I* const past = x.indices + x.offsets[x.n];
        // Features are used where they lie, if kernels may read on behind them.
        const auto in_place = [&](const auto& row) {
            return sizeof(I) == sizeof(std::uint32_t) &&
                   past - (row.index + row.nonzeros) >= coarse_ahead;
        };
        Size total = 0, moved = 0;
        for (Size t = 0; t < count; ++t) {
            const auto row = x.row(begin + t * stride);
            total += row.nonzeros;
            if (!in_place(row)) moved += row.nonzeros;
        }
        rows_.resize(std::size_t(count));
        features_.resize(std::size_t(moved + coarse_ahead));
        if constexpr (!is_single) values_.resize(std::size_t(total));
        std::uint32_t* to = features_.data();
        float* to_value = values_.data();
        for (Size t = 0; t < count; ++t) {
            const auto row = x.row(begin + t * stride);
            const Size n = row.nonzeros;
            CoarseRow& out = rows_[std::size_t(t)];
            out.nonzeros = n;
            out.error = error(norm1_about(row.value, n), n);
            if (in_place(row)) {
                const void* given = row.index;
                out.index = static_cast<const std::uint32_t*>(given);
            } else {
                out.index = to;
                to = std::copy_n(row.index, n, to);
            }
            if constexpr (is_single) {
                out.value = row.value;
            } else {
                out.value = to_value;
                to_value = std::copy_n(row.value, n, to_value);
            }
        }
        std::fill_n(to, coarse_ahead, 0u);
    }
    const CoarseRow& row(Size t) const { return rows_[std::size_t(t)]; }
    // Forgets all loaded rows but these, ascending.
    void keep(const std::vector<std::int32_t>& some) {
        for (std::size_t t = 0; t < some.size(); ++t) rows_[t] = rows_[std::size_t(some[t])];
        rows_.resize(some.size());
    }

    // Which of the centres may have the lowest score, that lowest score, and the next lowest.
    void look(const Coarse<R>& coarse) {
        score.resize(rows_.size());
        second.resize(rows_.size());
        label.resize(rows_.size());
        kernels<float>().coarse_csr(rows_.data(), Size(rows_.size()), coarse.panels(),
                                    {label.data(), score.data(), second.data()});
    }
    // The labels of the loaded rows, of which row_of(t) is number t, by a look at all centres;
    // `highest` is what their scores may be at most. Returns how many were left open by it.
    template <class I, class RowOf>
    Size nearest(const CsrRows<R, I>& x, const Centroids<R>& centroids, const Coarse<R>& coarse,
                 RowOf row_of) {
        look(coarse);
        highest.resize(rows_.size());
        Size open = 0;
        for (std::size_t t = 0; t < rows_.size(); ++t) {
            highest[t] = coarse.highest(double(score[t]), label[t], rows_[t].error);
            if (highest[t] < double(second[t])) continue;
            label[t] = decide(x.row(row_of(Size(t))), rows_[t], centroids, coarse);
            highest[t] = std::numeric_limits<double>::infinity();
            ++open;
        }
        return open;
    }

    std::vector<std::int32_t> label;
    std::vector<float> score, second;
    std::vector<double> highest;

private:
    static constexpr bool is_single = std::is_same_v<R, float>;

    // |x|_1, off by less than error() allows for.
    static double norm1_about(const R* value, Size n) {
        double sum[4] = {};
        Size e = 0;
        for (; e + 4 <= n; e += 4)
            for (Size l = 0; l < 4; ++l) sum[l] += std::abs(double(value[e + l]));
        for (; e < n; ++e) sum[0] += std::abs(double(value[e]));
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    // The nearest centre by canonical scores, of all whose scores may be as low as any.
    template <class Row>
    std::int32_t decide(const Row& row, const CoarseRow& seen, const Centroids<R>& centroids,
                        const Coarse<R>& coarse) {
        const Size k = centroids.k();
        lowest_.resize(std::size_t(k));
        coarse.lowest(seen, lowest_.data());
        double limit = std::numeric_limits<double>::infinity();
        for (Size j = 0; j < k; ++j)
            limit = std::min(limit, coarse.highest(lowest_[std::size_t(j)], j, seen.error));
        std::int32_t best = 0;
        R low = std::numeric_limits<R>::infinity();
        for (Size j = 0; j < k; ++j) {
            if (lowest_[std::size_t(j)] > limit) continue;
            const R own = score_of_(centroids, row, j);
            if (own < low) {
                low = own;
                best = std::int32_t(j);
            }
        }
        return best;
    }

    // By how many parts a score may be off; `sum` = |x|_1. Infinite where nothing is certain.
    static float error(double sum, Size nonzeros) {
        const double terms = double(nonzeros);
        if (!(sum < 0x1p100) || nonzeros > (Size(1) << 16))
            return std::numeric_limits<float>::infinity();
        return float((sum * (0.5 + 0x1p-9 * (2.1 * terms + 17)) + terms * 0x1p-130) * 0x1p16 *
                     (1 + 0x1p-20));
    }

    std::vector<CoarseRow> rows_;
    std::vector<std::uint32_t> features_;
    std::vector<float> values_;
    std::vector<double> lowest_;
    PairScore<R> score_of_;
};

// Decides, pass by pass, whether rows are labelled by a first look, which pays while it settles
// nearly all of them.
template <class R>
class FirstLook {
public:
    // May there be one at these centres?
    bool possible(const Centroids<R>& centroids) {
        if (centroids.k() < least_k || centroids.frame().metric == Metric::manhattan ||
            !Coarse<R>::fits(centroids))
            return false;
        if (wait_ == 0) return true;
        --wait_;
        return false;
    }
    // A few rows are asked.
    template <class I>
    bool pays(const CsrRows<R, I>& x, const Centroids<R>& centroids, const Coarse<R>& coarse) {
        const Size some = std::min(probed, x.n), stride = some ? x.n / some : 1;
        scan_.load(x, 0, some, stride);
        const Size open = scan_.nearest(x, centroids, coarse, [&](Size t) { return t * stride; });
        if (open * 16 <= some) return true;
        wait_ = passes_without;
        return false;
    }

private:
    static constexpr Size least_k = 32, probed = 256;
    static constexpr int passes_without = 16;

    int wait_ = 0;
    CoarseScan<R> scan_;
};

}  // namespace exactmeans
