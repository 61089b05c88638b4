// Kernels of distance bounds, compiled once per instruction set. Bounds are float32 for every dtype
// of rows, in units of the block: distances times a power of two that scales the longest row to
// about 1. Upper bounds are rounded up, lower bounds down (docs/proofs/bounds.md).
#pragma once

#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// Factors that cover sixteen float32 roundings; no formula here has more.
inline constexpr float up32 = 1 + 0x1p-20f, down32 = 1 - 0x1p-20f;
// The distance of a centre that does not exist: above all distances; adding or subtracting
// distances cannot overflow.
inline constexpr float unreachable = 0x1p120f;
// Lower bounds of distances are at most this, and so below `unreachable`.
inline constexpr float farthest_bound = 0x1p100f;
// Bounds are used while no centre is longer than this, in units. Drifts then stay below
// `farthest_bound`, and adding them does not round the bounds away.
inline constexpr double longest_bounded = 0x1p40;

// A float32 that is not below (not above) x.
inline float round_up(double x) { return float(x + (x < 0 ? -x : x) * 0x1p-23); }
inline float round_down(double x) { return float(x - (x < 0 ? -x : x) * 0x1p-23); }

// Slack of all rows of a block, in units (numerics/slack.hpp).
struct Margins {
    const float* norm;     // |x|
    const float* gamma;    // infinite where nothing may be pruned
    float absolute, lost;  // underflow adds at most absolute + lost |x| to a squared distance
};

// Converts scores of rows into squared distances: (norm2 + 2 score) unit2. For spherical metrics
// every row has its own unit2.
template <class R>
struct ScoredRows {
    const R* norm2;   // |x|^2 on the scale of the frame; 2|x| for spherical metrics
    const R* units2;  // 1/|x| for spherical metrics, else null
    R unit2;
    Margins margins;
};

// Rows with an upper bound of the distance to the assigned centre and a lower bound of the distance
// to all others. With the drift since they were stored, the bounds for the current centres are
// upper + own[label] and lower - others[label].
struct BoundRows {
    const std::int32_t* labels;  // -1: no label, and upper is infinite
    const float *upper, *lower;
    const float *own, *others;  // drift, per label
    const float* nearest;       // per label: distance from its centre to the nearest other centre
    Margins margins;
};

// Two lower bounds of the distance of a row to each group of centres: lower - drift, and, by the
// triangle inequality, centre_distance - near. The row is at most `near` away from its own centre,
// which is at least centre_distance away from the group.
struct GroupLowerBounds {
    const float *lower, *drift;
    const float* centre_distance;
    float near;
};

// Products of rows with all centres are stored in tiles of rows: products[j * bound_tile + row].
inline constexpr Size bound_tile = 64;

struct BoundKernels {
    // Lists the survivors: the rows of [begin, end) whose label may change. Returns their number.
    Size (*survivors)(const BoundRows& rows, Size begin, Size end, Size* out);
    // out[t]: a centre farther than this from row ids[t] certainly has a higher score than a centre
    // at most near[t] away.
    void (*reach)(const Margins& margins, const Size* ids, const float* near, Size n, float* out);
    // Lists those of the n groups that may be within reach: neither of their two bounds exceeds
    // `reach`. n is a multiple of the vector width. `least` becomes the minimum over all groups of
    // the larger of their two bounds.
    Size (*within)(const GroupLowerBounds& lowers, Size n, float reach, std::int32_t* out,
                   float& least);
    // Per row of a tile: the lowest score_offset[j] - scale[j] * product over all j, its j, and the
    // second lowest.
    void (*lowest_in_tile)(const float* products, const float* score_offset, const float* scale,
                           Size k, float* low, float* second, float* label);
};

const BoundKernels& bound_kernels();

}  // namespace exactmeans
