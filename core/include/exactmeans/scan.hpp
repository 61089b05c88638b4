// Rows against all centres, through the kernels: what every algorithm does with the rows it cannot prune.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

// The layout of the centres that rows of this kind are compared with.
template <class R>
Panels<R> layout_for(const DenseRows<R>&, const Centroids<R>& centroids, const Threads& threads) {
    return centroids.panels(threads);
}
template <class R, class I>
FeatureMajor<R> layout_for(const CsrRows<R, I>&, const Centroids<R>& centroids, const Threads& threads) {
    return centroids.feature_major(threads);
}

// What an algorithm gets to work on: a block of rows, the centres, and the block's labels.
template <class Rows>
struct Work {
    using R = typename Rows::Real;

    const Rows& x;
    const Centroids<R>& centroids;
    std::int32_t* labels;
    decltype(layout_for(std::declval<const Rows&>(), std::declval<const Centroids<R>&>(), Threads{})) layout;

    Work(const Rows& rows, const Centroids<R>& centres, std::int32_t* row_labels, const Threads& threads)
        : x(rows), centroids(centres), labels(row_labels), layout(layout_for(rows, centres, threads)) {}
};

// One thread's buffers for such comparisons. Results of row ids[t] (or begin + t) stand at [t].
template <class Rows>
class Scan {
  public:
    using R = typename Rows::Real;

    void nearest(const Work<Rows>& work, Size begin, const Size* ids, Size count, bool with_second) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        second.resize(std::size_t(with_second ? count : 0));
        const Nearest<R> out{label.data(), score.data(), with_second ? second.data() : nullptr};
        if constexpr (is_dense<Rows>) {
            tile_.load(work.x, work.centroids.frame().shift_or_null(), begin, ids, count);
            kernels<R>().nearest_dense(tile_.rows(), count, work.layout, out);
        } else {
            rows_.resize(std::size_t(count));
            for (Size t = 0; t < count; ++t) rows_[std::size_t(t)] = work.x.row(ids ? ids[t] : begin + t);
            if constexpr (sizeof(typename Rows::Feature) == 4)
                kernels<R>().nearest_csr32(rows_.data(), count, work.layout, out);
            else
                kernels<R>().nearest_csr64(rows_.data(), count, work.layout, out);
        }
    }

    std::vector<std::int32_t> label;
    std::vector<R> score;
    std::vector<R> second;

  private:
    struct Nothing {};
    template <class T, bool Dense>
    struct SparseBuffer {
        using type = Nothing;
    };
    template <class T>
    struct SparseBuffer<T, false> {
        using type = std::vector<SparseRow<R, typename T::Feature>>;
    };

    DenseTile<R> tile_;
    typename SparseBuffer<Rows, is_dense<Rows>>::type rows_;
};

// Rows per unit of parallel work: about a million multiply-adds, and whole register tiles.
template <class Rows>
Size chunk_rows(const Rows& x, Size k) {
    Size per_row = x.d;
    if constexpr (!is_dense<Rows>) per_row = x.n ? x.nonzeros() / x.n + 1 : 1;
    const Size rows = (Size(1) << 20) / std::max<Size>(1, per_row * std::max<Size>(1, k));
    return std::clamp<Size>(rows / 48 * 48, 48, 960);
}

}  // namespace exactmeans
