// The only two ways to hold data: dense rows with any strides, and CSR rows. Both are views of
// memory that somebody else owns; nothing here copies a matrix.
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

namespace exactmeans {

using Size = std::ptrdiff_t;

// Seeding sums over this many rows at a time. Slabs of transposed rows hold whole chunks, so that a
// slab never shares a sum with another.
inline constexpr Size row_chunk = 1024;

// What a row is multiplied by where it enters a sum. Where only directions count, a row is divided
// by its length on the way, so that no matrix is copied to be normalised; one of length 0 has no
// direction and pulls at nothing.
inline double row_factor(double weight, const double* norms, Size i) {
    if (!norms) return weight;
    return norms[i] > 0 ? weight / norms[i] : 0.0;
}

// Rows that are visited in no order are asked for a few ahead, or every visit waits for memory.
// Compilers take a function that does nothing else for one that does nothing, unless it is inlined.
#define EXACTMEANS_INLINE __attribute__((always_inline))
inline constexpr Size prefetch_rows = 4;
template <class T>
EXACTMEANS_INLINE inline void prefetch_values(const T* values, Size n) {
    constexpr Size line = 64 / Size(sizeof(T)), most = 16 * line;
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
    const double* weights = nullptr;      // null: every row counts once
    const double* norms = nullptr;        // null: rows are points; else they are directions
    const std::int32_t* picks = nullptr;  // null: all rows in memory; else these n of them

    double weight(Size i) const { return weights ? weights[i] : 1.0; }
    double factor(Size i) const { return row_factor(weight(i), norms, i); }
    const R* row(Size i) const { return data + (picks ? Size(picks[i]) : i) * row_stride; }
    R at(Size i, Size f) const { return row(i)[f * col_stride]; }
    EXACTMEANS_INLINE void prefetch(Size i) const {
        // Short rows share lines with others.
        if (col_stride == 1 && d * Size(sizeof(R)) >= 64) prefetch_values(row(i), d);
    }
};

template <class R, class I>
struct SparseRow {
    const I* index;
    const R* value;
    Size nonzeros;
};

// Row offsets come as 32 or 64 bit; the width is looked at once per row, which costs nothing beside
// the row.
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

// Features of entries that come some time after those at hand, for asking ahead for what belongs to
// them: of the same row, or of whatever rows follow it.
template <class I>
class PrefetchCursor {
public:
    template <class R>
    explicit PrefetchCursor(const SparseRow<R, I>& row)
        : index_(row.index), last_(row.nonzeros - 1) {}
    template <class R>
    PrefetchCursor(const CsrRows<R, I>& x, const SparseRow<R, I>& row)
        : index_(row.index), last_(x.indices + x.offsets[x.n] - row.index - 1) {}

    // As seen from entry e of the row.
    Size feature(Size e) const { return Size(index_[std::min(e + distance, last_)]); }

private:
    static constexpr Size distance = 32;
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

inline Size row_count(const AnyRows& rows) {
    return std::visit([](const auto& r) { return r.n; }, rows);
}
inline Size column_count(const AnyRows& rows) {
    return std::visit([](const auto& r) { return r.d; }, rows);
}

// Contiguous rows for the kernels. A row that lies contiguously and needs no shift is used where it
// is; any other (Fortran order, strides, shifted data) is packed into this buffer, a tile at a
// time.
template <class R>
class DenseTile {
public:
    // Points rows()[t] at row `ids[t]`, or `begin + t` when ids is null, each minus `shift` unless
    // that is null.
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

// Refuses offsets and indices that would be read out of bounds; says whether every row has strictly
// ascending indices (no duplicates), which is what the kernels expect.
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
    // All entries at once, as vectors can: which are out of bounds, and which are not above the one
    // before. Where a row begins, they need not be.
    using U = std::make_unsigned_t<I>;
    constexpr Size some = 4096;
    const U limit = U(std::min<Size>(x.d, std::numeric_limits<I>::max()));  // no sign fits below
    Size outside = 0, falls = 0;
    for (Size begin = 0; begin < before; begin += some) {
        U bad = 0, fallen = 0;
        const Size end = std::min(before, begin + some);
        for (Size e = begin; e < end; ++e) bad += U(x.indices[e]) >= limit;
        for (Size e = std::max<Size>(1, begin); e < end; ++e)
            fallen += x.indices[e] <= x.indices[e - 1];
        outside += Size(bad);
        falls += Size(fallen);
    }
    for (Size i = 0; i < x.n; ++i) {
        const auto row = x.row(i);
        for (Size t = 0; outside > 0 && t < row.nonzeros; ++t)
            if (row.index[t] < 0 || Size(row.index[t]) >= x.d)
                throw std::invalid_argument("X.indices must lie in [0, " + std::to_string(x.d) +
                                            "), but row " + std::to_string(i) + " has " +
                                            std::to_string(row.index[t]));
        if (row.nonzeros > 0 && x.offsets[i] > 0) falls -= row.index[0] <= row.index[-1];
    }
    return falls == 0;
}

}  // namespace exactmeans
