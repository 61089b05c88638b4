// Few coordinates in place of many: rows projected on m orthonormal directions about an origin, and
// the length of what is left as one coordinate more. By Pythagoras and Cauchy-Schwarz no two rows
// get farther apart, so coordinates that are farther apart than a row and its seed rule a candidate
// out. Memory: 4 (m + 2) bytes per row.
//
// Coordinates come from the distances to the origin and to one point on each axis, by the kernel
// that measures everything else: with R = |x - o| and a step h along axis q, x.q = (R^2 + h^2 - |x
// - o - h q|^2) / 2h. They are float32 in units of h. Rounding is covered by a slack per row and
// per point (docs/numerics.md, "Seeding").
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/seed/points.hpp"
#include "exactmeans/seed/tile.hpp"

namespace exactmeans {

class Projection {
public:
    // points: the origin, then origin + step * axis for each axis, on the frame's scale; step is a
    // power of two.
    Projection(const double* points, Size axes, Size d, double step, double scale)
        : axes_(axes),
          d_(d),
          pitch_((d + seed_stripes - 1) / seed_stripes * seed_stripes),
          step_(step),
          scale_(scale),
          points_(std::size_t((axes + 1) * pitch_), 0.0) {
        for (Size p = 0; p <= axes; ++p)
            std::copy(points + p * d, points + (p + 1) * d, points_.data() + p * pitch_);
        // The square of a distance is off by at most e relatively: see the header of kernels.hpp.
        error_ = double(d + 32) * 0x1p-52;
    }

    Size coordinates() const { return axes_ + 1; }
    // Coordinates beyond this would overflow float32 when squared.
    bool usable() const { return farthest_ < 1e15; }
    float factor() const { return 1 + float(coordinates() + 16) * 0x1p-22f; }

    template <class R>
    void project(const DenseRows<R>& x, const Threads& threads) {
        const Size tiles = (x.n + bound_rows - 1) / bound_rows;
        tiles_.assign(std::size_t(tiles * coordinates() * bound_rows), 0.0f);
        slack_.assign(std::size_t(tiles * bound_rows), 0.0f);
        near_.assign(std::size_t(tiles * bound_rows), 0.0f);
        std::vector<double> farthest(std::size_t(threads.n_jobs), 0.0);
        threads.ranges(tiles, 4, [&](Size begin, Size end, int worker) {
            SeedTile<R> tile;
            std::vector<double> out(std::size_t(bound_rows * (axes_ + 1)));
            for (Size t = begin; t < end; ++t) {
                const Size count = std::min(bound_rows, x.n - t * bound_rows);
                tile.distances2(x, t * bound_rows, nullptr, count, panel(scale_), out.data());
                for (Size r = 0; r < count; ++r) {
                    const double radius =
                        coordinates_of(out.data() + r * (axes_ + 1), coordinate(t, r), bound_rows,
                                       slack_[std::size_t(t * bound_rows + r)]);
                    farthest[std::size_t(worker)] = std::max(farthest[std::size_t(worker)], radius);
                }
            }
        });
        farthest_ = *std::max_element(farthest.begin(), farthest.end());
    }

    // Row i is d2 away from its seed.
    void set_near(Size i, double d2) {
        const double near = std::sqrt(std::max(0.0, d2)) / step_ * (1 + error_);
        near_[std::size_t(i)] = up(near + double(slack_[std::size_t(i)]) + 0x1p-60);
    }

    // Candidates of a panel whose points are on the frame's scale already.
    SeedBounds candidates(const SeedPanel& of) {
        std::vector<const double*> rows;
        for (Size s = 0; s < of.count; ++s) rows.push_back(of.points + s * of.pitch);
        std::vector<double> out(std::size_t(of.count * (axes_ + 1)));
        seed_kernels().distances2(rows.data(), of.count, panel(1.0), out.data());
        point_.resize(std::size_t(of.count * coordinates()));
        point_slack_.resize(std::size_t(of.count));
        for (Size s = 0; s < of.count; ++s)
            farthest_ = std::max(farthest_, coordinates_of(out.data() + s * (axes_ + 1),
                                                           point_.data() + s * coordinates(), 1,
                                                           point_slack_[std::size_t(s)]));
        return {point_.data(), point_slack_.data(), coordinates(), of.count, factor()};
    }

    const float* tile(Size t) const { return tiles_.data() + t * coordinates() * bound_rows; }
    const float* near(Size t) const { return near_.data() + t * bound_rows; }

private:
    static float up(double value) { return float(value) * (1 + 0x1p-22f); }

    SeedPanel panel(double scale) const { return {points_.data(), axes_ + 1, d_, pitch_, scale}; }
    float* coordinate(Size t, Size r) { return tiles_.data() + t * coordinates() * bound_rows + r; }

    // From squared distances to origin and axes; returns the distance to the origin, in steps.
    double coordinates_of(const double* out, float* to, Size stride, float& slack) const {
        const double unit2 = 1 / (step_ * step_), radius2 = out[0] * unit2,
                     radius = std::sqrt(radius2);
        double rest2 = radius2;
        for (Size a = 0; a < axes_; ++a) {
            const double along = 0.5 * (radius2 + 1 - out[a + 1] * unit2);
            to[a * stride] = float(along);
            rest2 -= along * along;
        }
        to[axes_ * stride] = float(std::sqrt(std::max(0.0, rest2)));
        // Each coordinate is off by at most e (R^2 + 1 + (R + 1)^2) / 2 <= 2 e (R + 1)^2; the axes
        // are orthonormal to within e; the square of the rest by what that makes of R^2 and of the
        // squared coordinates.
        const double off = 2 * error_ * (radius + 1) * (radius + 1), count = double(axes_ + 1);
        const double rest_off2 =
            error_ * radius2 + count * off * (2 * radius + off) + count * error_ * radius2;
        slack = up(0x1p-22 * radius + std::sqrt(count) * off + std::sqrt(rest_off2));
        return radius;
    }

    Size axes_, d_, pitch_;
    double step_, scale_, error_ = 0, farthest_ = 0;
    std::vector<double> points_;
    std::vector<float> tiles_, slack_, near_, point_, point_slack_;
};

}  // namespace exactmeans
