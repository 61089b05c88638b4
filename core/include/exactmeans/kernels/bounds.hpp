// The arithmetic of bounds, compiled once per instruction set. Bounds are kept in float32 whatever
// the dtype of the rows: in units of the block, a power of two that brings its longest row to about
// 1, and every rounding goes to the safe side (docs/numerics.md, "Bounds in float32").
#pragma once

#include <cstdint>
#include <limits>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// Sixteen roundings of float32, more than any formula here takes.
inline constexpr float up32 = 1 + 0x1p-20f, down32 = 1 - 0x1p-20f;
// What stands for "no centre there": far beyond all distances, and safe to subtract from.
inline constexpr float unreachable = 0x1p120f;
// No lower bound is above this, so that "nowhere" stays apart from all bounds.
inline constexpr float farthest_bound = 0x1p100f;
// Bounds are kept while no centre is longer than this, in units: sums of movements then stay below
// `farthest_bound`, and are not so large that float32 forgets the bounds beside them.
inline constexpr double longest_bounded = 0x1p40;

// The nearest float32 that is not below (above).
inline float round_up(double x) { return float(x + (x < 0 ? -x : x) * 0x1p-23); }
inline float round_down(double x) { return float(x - (x < 0 ? -x : x) * 0x1p-23); }

// Slack of all rows of a block, in units.
struct Margins {
    const float* norm;     // |x|
    const float* gamma;    // infinite where nothing may be pruned
    float absolute, lost;  // underflow of a squared distance: absolute + lost |x|
};

// What turns scores of rows into squared distances: (norm2 + 2 score) unit2. Each row that is a
// direction has a unit2 of its own.
template <class R>
struct ScoredRows {
    const R* norm2;   // |x|^2 on the frame's scale; of directions 2|x|
    const R* units2;  // of directions 1/|x|, else null
    R unit2;
    Margins margins;
};

// Rows with an upper bound of the distance to the own centre and a lower one to all others. Both
// were true when they were set: upper stands for upper + own[label], lower for lower -
// others[label].
struct BoundRows {
    const std::int32_t* labels;  // -1: none, and then upper is infinite
    const float *upper, *lower;
    const float *own, *others;
    const float* nearest;  // of the label: how far it is from the nearest other centre
    Margins margins;
};

// Two lower bounds of each distance of a row: what is left of the one that was set, and how far its
// group is from the own centre, which is at most `near` away.
struct Lowers {
    const float *lower, *drift;
    const float* gap;
    float near;
};

// Rows whose products with all centres are kept stand in tiles: products[j * bound_tile + row].
inline constexpr Size bound_tile = 64;

struct BoundKernels {
    // Rows of [begin, end) whose label is not certain to stay.
    Size (*unsettled)(const BoundRows& rows, Size begin, Size end, Size* out);
    // A centre farther from row ids[t] than this is certain to get a higher score than one at most
    // near[t] away.
    void (*reach)(const Margins& margins, const Size* ids, const float* near, Size n, float* out);
    // Entries (of whole vectors) that may be within reach: neither lower - drift nor gap - near is
    // beyond it. And the least of what is larger of the two.
    Size (*within)(const Lowers& lowers, Size n, float reach, std::int32_t* out, float& least);
    // The lowest start[j] - scale[j] product of each row of a tile, its j, and the second lowest.
    void (*lowest_in_tile)(const float* products, const float* score_offset, const float* scale,
                           Size k, float* low, float* second, float* label);
};

const BoundKernels& bound_kernels();

}  // namespace exactmeans
