// Layouts that the score kernels read: panels of centres, posting lists, packed CSR rows.
#pragma once

#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// Lanes run across centres, in units of 32 bytes: one AVX2 vector, two NEON vectors, half an
// AVX-512 vector. Centres are padded to whole units, not to whole vectors, so that a small k leaves
// few lanes empty.
template <class R>
inline constexpr Size unit_width = Size(32 / sizeof(R));
template <class R>
constexpr Size padded(Size k) {
    return (k + unit_width<R> - 1) / unit_width<R> * unit_width<R>;
}

// Kernels keep centre numbers in lanes of reals, and float32 is exact up to 2^24.
inline constexpr Size largest_k = Size(1) << 24;

// One entry of a posting list: the position of a centre in the layout, and minus its (scaled) value
// of a rare feature.
template <class R>
struct Posting {
    // Flag in `place`: the last posting of its feature.
    static constexpr std::uint32_t last = std::uint32_t(1) << 31;
    std::uint32_t place;
    R value;
};
// The packed column of a feature that no centre has.
inline constexpr std::uint32_t no_column = ~std::uint32_t(0);

// Minus the (shifted, scaled) centres, split into `count` panels of whole units, each stored
// feature by feature. With `first` the first centre of a panel and `width` its lanes, feature f of
// centre first + lane is values[first * d + f * width + lane]. `score_offset` has one value per
// centre, added to the sum of products: half the squared norm (euclidean), 0 (spherical), or the L1
// norm (manhattan with CSR rows). Lanes without a centre have infinity.
//
// For CSR rows, f is a packed column: packed_columns[feature], or the feature itself if
// packed_columns is null. With posting lists, packed column d - 1 is all zeros, a column c >= d
// means the posting list that begins at postings[c - d], and features that no centre has map to
// no_column.
template <class R>
struct Panels {
    const R* values = nullptr;
    const R* score_offset = nullptr;
    Size k = 0, d = 0;
    Size count = 0;
    const std::uint32_t* packed_columns = nullptr;
    const Posting<R>* postings = nullptr;

    struct Panel {
        Size first, units;
        Size width() const { return units * unit_width<R>; }
    };
    Panel panel(Size p) const {
        const Size units = padded<R>(k) / unit_width<R>;
        const Size from = p * units / count, to = (p + 1) * units / count;
        return {from * unit_width<R>, to - from};
    }
};

// Panels for dense rows have two units; the last one may have three, or one if k is small. Six rows
// by two vectors then fill the registers of AVX2.
template <class R>
Size dense_panels(Size k) {
    const Size units = padded<R>(k) / unit_width<R>;
    return units < 2 ? 1 : units / 2;
}
// Panels for CSR rows are as wide as the registers allow, because every nonzero is read once per
// panel.
inline constexpr Size csr_units = 14;
template <class R>
Size csr_panels(Size k) {
    return (padded<R>(k) / unit_width<R> + csr_units - 1) / csr_units;
}

// A posting that applies to an entry of a CSR row: the kernel adds x * value to the sum of the
// centre at `place` before it adds entry number `at` of the row.
template <class R>
struct PostingHit {
    std::uint32_t at, place;
    R x, value;
};

// A CSR row for the kernels: index[t] is the packed column of an entry. Hits are sorted by panel,
// and by `at` within a panel.
template <class R>
struct PackedCsrRow {
    const std::uint32_t* index;
    const R* value;
    Size nonzeros;
    const PostingHit<R>* hits = nullptr;
    const PostingHit<R>* hits_end = nullptr;
};

// Per row: the nearest centre (lowest index on ties), its score and, unless null, the second lowest
// score.
template <class R>
struct Nearest {
    std::int32_t* label;
    R* score;
    R* second;  // may be null
};

}  // namespace exactmeans
