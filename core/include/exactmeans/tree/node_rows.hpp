// The rows of a node, gathered from the rows of the whole matrix: a dense copy, or CSR rows with
// only the features that occur in them, numbered in ascending order. Scores, sums and distances
// have the same bits as with all features, because features that no row of the node has add only
// zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"

namespace exactmeans {

// Buffers of one thread, reused from node to node.
template <class Rows>
class NodeRows;

namespace detail {

inline const double* gather(const double* from, const Size* ids, Size n, std::vector<double>& to) {
    if (!from) return nullptr;
    to.resize(std::size_t(n));
    for (Size i = 0; i < n; ++i) to[std::size_t(i)] = from[ids[i]];
    return to.data();
}

}  // namespace detail

template <class R>
class NodeRows<DenseRows<R>> {
public:
    using Gathered = DenseRows<R>;

    explicit NodeRows(Size) {}

    Gathered gather(const DenseRows<R>& x, const Size* ids, Size n) {
        values_.resize(std::size_t(n * x.d));
        for (Size i = 0; i < n; ++i) {
            const R* const from = x.row(ids[i]);
            R* const to = values_.data() + i * x.d;
            if (i + cost::prefetch_rows < n) x.prefetch(ids[i + cost::prefetch_rows]);
            if (x.col_stride == 1)
                std::copy_n(from, x.d, to);
            else
                for (Size f = 0; f < x.d; ++f) to[f] = from[f * x.col_stride];
        }
        return {values_.data(),
                n,
                x.d,
                x.d,
                1,
                detail::gather(x.weights, ids, n, weights_),
                detail::gather(x.norms, ids, n, norms_)};
    }

private:
    std::vector<R> values_;
    std::vector<double> weights_, norms_;
};

template <class R, class I>
class NodeRows<CsrRows<R, I>> {
public:
    using Gathered = CsrRows<R, std::int32_t>;

    // For rows with d features.
    explicit NodeRows(Size d) : column_(static_cast<std::size_t>(d), -1) {}

    Gathered gather(const CsrRows<R, I>& x, const Size* ids, Size n) {
        number_features(x, ids, n);
        offsets_.assign(1, 0);
        values_.clear();
        indices_.clear();
        for (Size i = 0; i < n; ++i) {
            const auto row = x.row(ids[i]);
            if (i + cost::prefetch_rows < n) x.prefetch(ids[i + cost::prefetch_rows]);
            values_.insert(values_.end(), row.value, row.value + row.nonzeros);
            for (Size t = 0; t < row.nonzeros; ++t)
                indices_.push_back(column_[std::size_t(row.index[t])]);
            offsets_.push_back(std::int64_t(values_.size()));
        }
        for (const std::uint32_t f : features_) column_[f] = -1;
        return {values_.data(),
                indices_.data(),
                Offsets{nullptr, offsets_.data()},
                n,
                std::max<Size>(1, Size(features_.size())),
                detail::gather(x.weights, ids, n, weights_),
                detail::gather(x.norms, ids, n, norms_)};
    }

    // The features of the gathered rows, as the whole matrix numbers them.
    const std::vector<std::uint32_t>& features() const { return features_; }

    // The part of a sparse vector of all features that the gathered features have.
    SparseVector<R> restricted(const SparseVector<R>& from) const {
        SparseVector<R> out;
        for_either(features_, from.feature, [&](std::uint32_t, Size own, Size given) {
            if (own >= 0 && given >= 0) out.push(own, from.value[std::size_t(given)]);
        });
        return out;
    }

private:
    void number_features(const CsrRows<R, I>& x, const Size* ids, Size n) {
        features_.clear();
        for (Size i = 0; i < n; ++i) {
            const auto row = x.row(ids[i]);
            if (i + cost::prefetch_rows < n) x.prefetch(ids[i + cost::prefetch_rows]);
            for (Size t = 0; t < row.nonzeros; ++t) {
                std::int32_t& column = column_[std::size_t(row.index[t])];
                if (column >= 0) continue;
                column = 0;
                features_.push_back(std::uint32_t(row.index[t]));
            }
        }
        std::sort(features_.begin(), features_.end());
        for (std::size_t f = 0; f < features_.size(); ++f) column_[features_[f]] = std::int32_t(f);
    }

    std::vector<std::int32_t> column_;  // -1: not among the features of the node
    std::vector<std::uint32_t> features_;
    std::vector<R> values_;
    std::vector<std::int32_t> indices_;
    std::vector<std::int64_t> offsets_;
    std::vector<double> weights_, norms_;
};

}  // namespace exactmeans
