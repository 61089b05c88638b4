// Kernels of seeding, compiled once per instruction set. Squared distances are float64 for every
// dtype. They decide which rows become seeds, so their order of additions is fixed: features go to
// four stripes in turn, each stripe is one multiply-add chain, and the stripes are added as (0 + 2)
// + (1 + 3).
#pragma once

#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

inline constexpr Size seed_stripes = 4;
// Points per call: the survivors of a row are the bits of one 32-bit word.
inline constexpr Size most_points = 32;

// `count` float64 points, padded with zeros from d to `pitch`. The kernel multiplies rows by
// `scale`, a power of two; points are scaled already.
struct SeedPanel {
    const double* points;
    Size count, d, pitch;
    double scale;
};

// The triangle inequality for rows whose nearest seed is own[i], at squared distance d2[i]: a point
// may be nearer only if its squared distance from that seed is below factor * d2[i] + absolute (4
// d2 and a margin for rounding).
struct SeedReach {
    const double* seed_distances2;  // of seeds and points: [seed * width + point]
    Size width;                     // number of points, padded to whole stripes
    double factor, absolute;
};

// Rows and points projected into coordinates that never increase a distance (seed/projection.hpp),
// as integers. The coordinates of rows are in steps, those of points in steps / fine. If the
// coordinates of a row and a point are farther apart than near + slack, the point is not nearer to
// the row than `near`. Sums of products are exact; `keep` and `factor` cover the rounding of the
// test itself.
inline constexpr Size bound_rows = 16;
struct SeedBounds {
    const std::int16_t* points;  // count x pairs of coordinates, padded with zeros
    const float *norm2, *slack;  // per point, in steps
    Size pairs, count;
    float fine;

    static constexpr float keep = 1 - 0x1p-20f, factor = 1 + 0x1p-20f;
};
// bound_rows rows: the first two coordinates of all of them, then the next two, and so on.
struct BoundTile {
    const std::int8_t* pairs;
    const float *norm2, *near;
};
// One row; its number of pairs is a multiple of bound_rows / 2.
struct BoundRow {
    const std::int8_t* pairs;
    float norm2, near;
};

// A sparse point and rows, whose products over the rare features are known. Norms over the frequent
// features bound the rest. `keep` is slightly below 1 and covers rounding.
struct SparseTest {
    const double *norm2, *frequent;  // of each row: squared norm; norm over the frequent features
    double point_norm2, point_frequent, keep;
};

// Sums of squares: of the rounded integers, and of the rounding errors.
struct WholeSums {
    double norm2 = 0, off2 = 0;
};

struct SeedKernels {
    // out[i * count + s] = |row i - point s|^2
    void (*distances2_single)(const float* const* rows, Size n, const SeedPanel& panel,
                              double* out);
    void (*distances2_double)(const double* const* rows, Size n, const SeedPanel& panel,
                              double* out);
    // out[t] = |row t - point of_point[t]|^2
    void (*pairs2_single)(const float* const* rows, const Size* of_point, Size n,
                          const SeedPanel& panel, double* out);
    void (*pairs2_double)(const double* const* rows, const Size* of_point, Size n,
                          const SeedPanel& panel, double* out);
    // Sets bit s of survives[i] if point s may be nearer to row i than its seed (SeedReach).
    void (*reach)(const SeedReach& reach, const std::int32_t* own, const double* d2, Size n,
                  std::uint32_t* survives);
    // Clamps values to [-most, most], multiplies them by `fine` and rounds them to integers.
    WholeSums (*to_whole)(double* values, Size n, double most, double fine);
    // Sets bit s of survives[i] unless the coordinates show that point s cannot come nearer than
    // near[i].
    void (*bounds)(const SeedBounds& bounds, const BoundTile& tile, std::uint32_t* survives);
    // The bits of `survives` that the coordinates of the row do not exclude.
    std::uint32_t (*row_bounds)(const SeedBounds& bounds, const BoundRow& row,
                                std::uint32_t survives);
    // Lists the rows with norm2 + point_norm2 - 2 dot < d2, and these squared distances (at least
    // 0). Resets dot to 0.
    Size (*improved)(const double* norm2, double point_norm2, double* dot, const double* d2, Size n,
                     std::uint32_t* rows, double* distances2);
    // Lists the rows that may be nearer to the point than d2. `dot` has the products over the rare
    // features; those over the frequent ones are at most frequent * point_frequent. Resets dot to
    // 0.
    Size (*reachable)(const SparseTest& test, double* dot, const double* d2, Size n,
                      std::uint32_t* rows);

    template <class R>
    void distances2(const R* const* rows, Size n, const SeedPanel& panel, double* out) const {
        if constexpr (sizeof(R) == sizeof(float))
            distances2_single(rows, n, panel, out);
        else
            distances2_double(rows, n, panel, out);
    }
    template <class R>
    void pairs2(const R* const* rows, const Size* of_point, Size n, const SeedPanel& panel,
                double* out) const {
        if constexpr (sizeof(R) == sizeof(float))
            pairs2_single(rows, of_point, n, panel, out);
        else
            pairs2_double(rows, of_point, n, panel, out);
    }
};

const SeedKernels& seed_kernels();

}  // namespace exactmeans
