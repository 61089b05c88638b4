// The arithmetic of seeding, compiled once per instruction set like the kernels of scores. Squared
// distances are float64 for every dtype. They decide which rows become seeds, so their value must
// not depend on who asks: features are dealt out to four stripes in turn, each stripe is one
// multiply-add chain, and the stripes are added as (0 + 2) + (1 + 3).
#pragma once

#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

inline constexpr Size seed_stripes = 4;
// Up to this many points are compared with at once: a row's survivors are one word of bits.
inline constexpr Size most_points = 32;

// Points to measure rows against: `count` float64 vectors, zeros behind the last feature up to
// `pitch`. Rows are multiplied by `scale`, a power of two; points already are.
struct SeedPanel {
    const double* points;
    Size count, d, pitch;
    double scale;
};

// Rows whose nearest seed is own[i], at squared distance d2[i], against points that are `gaps[seed
// * width + point]` (squared) away from the seeds.
struct SeedReach {
    const double* gaps;
    Size width;  // points, padded to whole stripes
    double factor, absolute;
};

// Rows and points in coordinates that bring none of them farther apart (projection.hpp), in whole
// numbers: of steps for rows, of 1 / fine steps for points. A point cannot come nearer to a row
// than near + slack if their coordinates are farther apart than that. Sums of products are exact;
// `keep` and `factor` cover what rounding does to the test itself.
inline constexpr Size bound_rows = 16;
struct SeedBounds {
    const std::int16_t* points;  // count x pairs of coordinates, zeros behind the last
    const float *norm2, *slack;  // of each point, in steps
    Size pairs, count;
    float fine;

    static constexpr float keep = 1 - 0x1p-20f, factor = 1 + 0x1p-20f;
};
// bound_rows rows: the first two coordinates of all of them, then the next two.
struct BoundTile {
    const std::int8_t* pairs;
    const float *norm2, *near;
};
// One row; its pairs are a multiple of bound_rows / 2.
struct BoundRow {
    const std::int8_t* pairs;
    float norm2, near;
};

// A sparse point against rows of which only products with rare features are known. `keep` is a
// little below 1 and covers rounding.
struct SparseTest {
    const double *norm2, *frequent;
    double point_norm2, point_frequent, keep;
};

// Squares of whole numbers and of what rounding to them took away, added up.
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
    // Bit s of survives[i]: gaps < factor d2 + absolute, so that point s may be nearer than the
    // row's seed.
    void (*reach)(const SeedReach& reach, const std::int32_t* own, const double* d2, Size n,
                  std::uint32_t* survives);
    // Values, moved to [-most, most] and multiplied by `fine`, become the nearest whole numbers.
    WholeSums (*to_whole)(double* values, Size n, double most, double fine);
    // Sets bit s of survives[i] unless the coordinates show that point s cannot come nearer than
    // near[i].
    void (*bounds)(const SeedBounds& bounds, const BoundTile& tile, std::uint32_t* survives);
    // Those bits of `survives` that the row's coordinates leave.
    std::uint32_t (*row_bounds)(const SeedBounds& bounds, const BoundRow& row,
                                std::uint32_t survives);
    // Rows with norm2 + point_norm2 - 2 dot < d2, and that distance (not below 0); sets dot back to
    // 0.
    Size (*improved)(const double* norm2, double point_norm2, double* dot, const double* d2, Size n,
                     std::uint32_t* rows, double* distances2);
    // Rows whose products with the point may reach so far that they come below d2. Their products
    // with frequent features are not in `dot`: they are at most frequent times point_frequent.
    // Sets dot back to 0.
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
