// The two forms of rows: dense rows with any strides, and CSR rows. Both are views of memory that
// the caller owns; no matrix is copied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "exactmeans/base/cost_model.hpp"

namespace exactmeans {

using Size = std::ptrdiff_t;

// Rows per chunk: seeding keeps one sum of sampling weights per chunk (seed/sampling_weights.hpp),
// and threads update chunks independently. Slabs of transposed rows therefore consist of whole
// chunks.
inline constexpr Size row_chunk = 1024;

// The row factor, which multiplies a row in all sums: its weight, divided by its length for
// spherical metrics, so that rows need not be normalised in a copy. A row of length 0 has no
// direction and gets factor 0.
inline double row_factor(double weight, const double* norms, Size i) {
    if (!norms) return weight;
    return norms[i] > 0 ? weight / norms[i] : 0.0;
}

// Prefetches the first cache lines. Must be inlined: GCC treats a prefetch-only
// function as pure and drops the call.
#define EXACTMEANS_INLINE __attribute__((always_inline))
template <class T>
EXACTMEANS_INLINE inline void prefetch_values(const T* values, Size n) {
    constexpr Size line = 64 / Size(sizeof(T)), most = cost::prefetch_lines * line;
    for (Size t = 0; t < std::min(n, most); t += line) __builtin_prefetch(values + t);
}

template <class R>
struct DenseRows {
    using Real = R;

    const R* data = nullptr;
    Size n = 0;
    Size d = 0;
    Size row_stride = 0;  // in elements
    Size col_stride = 1;
    const double* weights = nullptr;      // null: every row has weight 1
    const double* norms = nullptr;        // row lengths; null unless the metric is spherical
    const std::int32_t* picks = nullptr;  // null: all rows of `data`; else these n of them

    double weight(Size i) const { return weights ? weights[i] : 1.0; }
    double factor(Size i) const { return row_factor(weight(i), norms, i); }
    const R* row(Size i) const { return data + (picks ? Size(picks[i]) : i) * row_stride; }
    R at(Size i, Size f) const { return row(i)[f * col_stride]; }
    EXACTMEANS_INLINE void prefetch(Size i) const {
        // Rows of less than a cache line are not worth a prefetch: one line holds several of them.
        if (col_stride == 1 && d * Size(sizeof(R)) >= 64) prefetch_values(row(i), d);
    }
};

template <class R, class I>
struct SparseRow {
    const I* index;
    const R* value;
    Size nonzeros;
};

// CSR row offsets of 32 or 64 bits. The branch on the width is taken once per row and costs nothing
// measurable.
struct Offsets {
    const std::int32_t* offsets32 = nullptr;
    const std::int64_t* offsets64 = nullptr;

    Size operator[](Size i) const { return offsets32 ? Size(offsets32[i]) : Size(offsets64[i]); }
};

template <class R, class I>
struct CsrRows {
    using Real = R;
    using Feature = I;

    const R* data = nullptr;
    const I* indices = nullptr;
    Offsets offsets;
    Size n = 0;
    Size d = 0;
    const double* weights = nullptr;
    const double* norms = nullptr;

    double weight(Size i) const { return weights ? weights[i] : 1.0; }
    double factor(Size i) const { return row_factor(weight(i), norms, i); }
    Size nonzeros() const { return offsets[n] - offsets[0]; }
    SparseRow<R, I> row(Size i) const {
        const Size begin = offsets[i];
        return {indices + begin, data + begin, offsets[i + 1] - begin};
    }
    EXACTMEANS_INLINE void prefetch(Size i) const {
        const SparseRow<R, I> own = row(i);
        prefetch_values(own.index, own.nonzeros);
        prefetch_values(own.value, own.nonzeros);
    }
};

// Looks ahead in a CSR row: gives the feature that is read some entries later, so that the
// caller can prefetch the data of that feature. If constructed with the matrix, the cursor
// continues in the next rows.
template <class I>
class PrefetchCursor {
public:
    template <class R>
    explicit PrefetchCursor(const SparseRow<R, I>& row)
        : index_(row.index), last_(row.nonzeros - 1) {}
    template <class R>
    PrefetchCursor(const CsrRows<R, I>& x, const SparseRow<R, I>& row)
        : index_(row.index), last_(x.indices + x.offsets[x.n] - row.index - 1) {}

    // The feature that is read soon after entry e, or the last one.
    Size feature(Size e) const {
        return Size(index_[std::min(e + cost::csr_entries_ahead, last_)]);
    }

private:
    const I* index_;
    Size last_;
};

using AnyRows = std::variant<DenseRows<float>, DenseRows<double>, CsrRows<float, std::int32_t>,
                             CsrRows<float, std::int64_t>, CsrRows<double, std::int32_t>,
                             CsrRows<double, std::int64_t>>;

template <class T>
inline constexpr bool is_dense = false;
template <class R>
inline constexpr bool is_dense<DenseRows<R>> = true;

// Values that a row stores: d, or the nonzeros of a CSR row on average. At least 1.
template <class Rows>
Size values_per_row(const Rows& x) {
    if constexpr (is_dense<Rows>)
        return std::max<Size>(1, x.d);
    else
        return std::max<Size>(1, x.n ? x.nonzeros() / x.n : 1);
}

// `count` equally spaced rows of n, or all if there are no more.
inline std::vector<Size> spaced_rows(Size n, Size count) {
    std::vector<Size> ids(static_cast<std::size_t>(std::min(n, count)));
    for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = Size(t) * (n / Size(ids.size()));
    return ids;
}

inline Size row_count(const AnyRows& rows) {
    return std::visit([](const auto& r) { return r.n; }, rows);
}
inline Size column_count(const AnyRows& rows) {
    return std::visit([](const auto& r) { return r.d; }, rows);
}

// Contiguous rows for the kernels. A contiguous row without a shift is used in place; others
// (Fortran order, strides, shifted data) are packed into this buffer, one tile at a time.
template <class R>
class DenseTile {
public:
    // Sets rows()[t] to row ids[t], or begin + t if ids is null, minus `shift` unless that is null.
    void load(const DenseRows<R>& x, const R* shift, Size begin, const Size* ids, Size count) {
        rows_.resize(std::size_t(count));
        const auto id = [&](Size t) { return ids ? ids[t] : begin + t; };
        if (x.col_stride == 1 && !shift) {
            if (!ids && !x.picks) {
                const R* from = x.row(begin);
                for (const R*& row : rows_) row = std::exchange(from, from + x.row_stride);
                return;
            }
            for (Size t = 0; t < count; ++t) rows_[std::size_t(t)] = x.row(id(t));
            return;
        }
        buffer_.resize(std::size_t(count * x.d));
        for (Size t = 0; t < count; ++t) rows_[std::size_t(t)] = buffer_.data() + t * x.d;
        if (x.col_stride == 1) {
            for (Size t = 0; t < count; ++t) {
                const R* from = x.row(id(t));
                R* __restrict to = buffer_.data() + t * x.d;
                for (Size f = 0; f < x.d; ++f) to[f] = from[f] - shift[f];
            }
            return;
        }
        for (Size f = 0; f < x.d; ++f) {
            const R minus = shift ? shift[f] : R(0);
            for (Size t = 0; t < count; ++t) {
                const R value = x.at(id(t), f);
                buffer_[std::size_t(t * x.d + f)] = shift ? value - minus : value;
            }
        }
    }

    const R* const* rows() const { return rows_.data(); }

private:
    std::vector<const R*> rows_;
    std::vector<R> buffer_;
};

// Throws if offsets or indices would lead to reads out of bounds. Returns whether the indices of
// every row ascend strictly (no duplicates), which the kernels require.
template <class R, class I>
bool check_csr(const CsrRows<R, I>& x, Size entries) {
    if (x.offsets[0] != 0) throw std::invalid_argument("X.indptr must start with 0");
    Size before = 0;
    for (Size i = 1; i <= x.n; ++i) {
        const Size here = x.offsets[i];
        if (here < before)
            throw std::invalid_argument("X.indptr must not decrease, but it does at row " +
                                        std::to_string(i - 1));
        if (here > entries)
            throw std::invalid_argument("X.indptr points past the end of X.data at row " +
                                        std::to_string(i - 1));
        before = here;
    }
    // One vectorised pass over all entries counts the indices out of bounds, and the indices that
    // are not above their predecessor in memory. The first index of a row follows the last one of
    // another row, so it is subtracted from the second count afterwards.
    using U = std::make_unsigned_t<I>;
    constexpr Size block = 4096;
    // A negative index becomes an unsigned number above the limit.
    const U limit = U(std::min<Size>(x.d, std::numeric_limits<I>::max()));
    Size outside = 0, descents = 0;
    for (Size begin = 0; begin < before; begin += block) {
        U bad = 0, descending = 0;
        const Size end = std::min(before, begin + block);
        for (Size e = begin; e < end; ++e) bad += U(x.indices[e]) >= limit;
        for (Size e = std::max<Size>(1, begin); e < end; ++e)
            descending += x.indices[e] <= x.indices[e - 1];
        outside += Size(bad);
        descents += Size(descending);
    }
    for (Size i = 0; i < x.n; ++i) {
        const auto row = x.row(i);
        for (Size t = 0; outside > 0 && t < row.nonzeros; ++t)
            if (row.index[t] < 0 || Size(row.index[t]) >= x.d)
                throw std::invalid_argument("X.indices must lie in [0, " + std::to_string(x.d) +
                                            "), but row " + std::to_string(i) + " has " +
                                            std::to_string(row.index[t]));
        if (row.nonzeros > 0 && x.offsets[i] > 0) descents -= row.index[0] <= row.index[-1];
    }
    return descents == 0;
}

}  // namespace exactmeans
