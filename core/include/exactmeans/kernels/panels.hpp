// The layouts that score kernels read: panels of centres, posting lists, packed CSR rows.
#pragma once

#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// Lanes run across centres, in units of 32 bytes: one AVX2 vector, two of NEON's, half of
// AVX-512's. Centres are padded to whole units only, so that a small k does not pay for lanes it
// does not have.
template <class R>
inline constexpr Size unit_width = Size(32 / sizeof(R));
template <class R>
constexpr Size padded(Size k) {
    return (k + unit_width<R> - 1) / unit_width<R> * unit_width<R>;
}

// Kernels carry centre numbers in lanes of reals, and float32 counts no further.
inline constexpr Size largest_k = Size(1) << 24;

// What a rare feature adds to one centre: its place in the layout and minus its (scaled) value.
template <class R>
struct Posting {
    static constexpr std::uint32_t last = std::uint32_t(1) << 31;  // flag: last of its feature
    std::uint32_t place;
    R value;
};
inline constexpr std::uint32_t no_column = ~std::uint32_t(0);

// Minus the (shifted, scaled) centres, cut into `count` panels of whole units, each feature by
// feature. With `first` a panel's first centre and `width` its lanes, feature f of centre
// first + lane is values[first * d + f * width + lane]. `start` has half the squared norms; lanes
// without a centre have infinity there.
//
// For CSR rows, f is a slot: slots[feature], or the feature itself if that is null. Where there are
// postings, slot d - 1 is all zeros, a slot s >= d means the posting list that begins at
// postings[s - d], and features of no centre have no_column.
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

// Panels of two units, but for a three or a single one that is left over, so that six rows by two
// vectors fill the registers.
template <class R>
Size dense_panels(Size k) {
    const Size units = padded<R>(k) / unit_width<R>;
    return units < 2 ? 1 : units / 2;
}
// As wide as the registers allow: every nonzero is read once per panel.
inline constexpr Size csr_units = 14;
template <class R>
Size csr_panels(Size k) {
    return (padded<R>(k) / unit_width<R> + csr_units - 1) / csr_units;
}

// One posting of a CSR row's entry: the kernel adds x * value to the sum of the centre at `place`
// before it adds the row's entry number `at`.
template <class R>
struct PostingHit {
    std::uint32_t at, place;
    R x, value;
};

// A CSR row whose features have been looked up: index[t] is the slot where the panels keep that
// feature. Hits come by panel, in each panel by ascending `at`.
template <class R>
struct PackedCsrRow {
    const std::uint32_t* index;
    const R* value;
    Size nonzeros;
    const PostingHit<R>* hits = nullptr;
    const PostingHit<R>* hits_end = nullptr;
};

// Per row: the nearest centre (lowest index on ties), its score and, if asked for, the second
// lowest score.
template <class R>
struct Nearest {
    std::int32_t* label;
    R* score;
    R* second;  // may be null
};

}  // namespace exactmeans
