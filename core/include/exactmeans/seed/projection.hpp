// Coordinates in place of rows: their features about an origin, or what they have along a few
// orthonormal axes from there, with the length of the rest as one coordinate more. By Pythagoras
// and Cauchy-Schwarz no two rows get farther apart, so coordinates that are farther apart than a
// row and its seed rule a candidate out.
//
// Coordinates are whole numbers of steps in 8 bits. What lies outside of their range is moved to
// its border, and that brings no two points farther apart either: the range is convex. So only
// rounding needs a slack, which is per row and per point (docs/numerics.md, "Seeding"). Points are
// rounded to finer steps. Memory: m + 12 bytes per row.
//
// Coordinates along axes come from the distances to the origin and to one point on each axis, by
// the kernel that measures everything else: with R = |x - o| and a length h along axis q, x.q =
// (R^2 + h^2 - |x - o - h q|^2) / 2h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "exactmeans/seed/points.hpp"
#include "exactmeans/seed/tile.hpp"

namespace exactmeans {

class Projection {
public:
    // points: the origin, then origin + length * axis for each axis; without axes, features are the
    // coordinates. All on the frame's scale, as is `range`, which most coordinates should be in.
    // length is a power of two.
    Projection(const double* points, Size axes, Size d, double length, double range, double scale)
        : axes_(axes),
          d_(d),
          m_(axes > 0 ? axes + 1 : d),
          pitch_((d + seed_stripes - 1) / seed_stripes * seed_stripes),
          length_(length),
          per_unit_(most / range),
          scale_(scale),
          points_(std::size_t((axes + 1) * pitch_), 0.0) {
        for (Size p = 0; p <= axes; ++p)
            std::copy(points + p * d, points + (p + 1) * d, points_.data() + p * pitch_);
        // The square of a distance is off by at most e relatively: see the header of kernels.hpp.
        error_ = double(d + 32) * 0x1p-52;
        skew_ = error_ + skew();
        // No sum of products may exceed 31 bits: it is at most the product of the norms.
        while (fine_ > 1 && double(m_) * most * most * fine_ >= 0x1p31) fine_ /= 2;
    }

    // Do sums of products fit, and are squares far from underflow?
    bool usable() const {
        return double(m_) * most * most < 0x1p31 && per_unit_ < 1e100 && length_ < 1e100;
    }

    template <class R>
    void project(const DenseRows<R>& x, const Threads& threads) {
        const Size tiles = (x.n + bound_rows - 1) / bound_rows;
        values_.assign(std::size_t(tiles * tile_values()), 0);
        for (auto* of_rows : {&norm2_, &slack_, &near_})
            of_rows->assign(std::size_t(tiles * bound_rows), 0.0f);
        threads.ranges(tiles, 4, [&](Size begin, Size end, int) {
            SeedTile<R> tile;
            std::vector<double> at(std::size_t(bound_rows * (m_ + 1)));
            for (Size t = begin; t < end; ++t) {
                const Size first = t * bound_rows, count = std::min(bound_rows, x.n - first);
                tile.rows(x, first, nullptr, count, [&](const auto* const* rows) {
                    coordinates(rows, count, scale_, at.data());
                });
                for (Size r = 0; r < count; ++r) {
                    std::int8_t* to = values_.data() + t * tile_values() + 2 * r;
                    double* own = at.data() + r * (m_ + 1);
                    const std::size_t i = std::size_t(first + r);
                    const WholeSums sums = seed_kernels().to_whole(own, m_, most, 1.0);
                    for (Size f = 0; f < m_; ++f)
                        to[f / 2 * 2 * bound_rows + f % 2] = std::int8_t(std::int32_t(own[f]));
                    norm2_[i] = float(sums.norm2);
                    slack_[i] = up(std::sqrt(sums.off2) + own[m_]);
                }
            }
        });
    }

    // Row i is d2 away from its seed.
    void set_near(Size i, double d2) {
        const double near = std::sqrt(std::max(0.0, d2)) * per_unit_ * (1 + error_);
        near_[std::size_t(i)] = up(near + double(slack_[std::size_t(i)]));
    }

    // Candidates of a panel whose points are on the frame's scale already.
    SeedBounds candidates(const SeedPanel& of) {
        std::vector<const double*> rows;
        for (Size s = 0; s < of.count; ++s) rows.push_back(of.points + s * of.pitch);
        std::vector<double> at(std::size_t(of.count * (m_ + 1)));
        coordinates(rows.data(), of.count, 1.0, at.data());
        point_.assign(std::size_t(of.count * 2 * pairs()), 0);
        point_norm2_.resize(std::size_t(of.count));
        point_slack_.resize(std::size_t(of.count));
        for (Size s = 0; s < of.count; ++s) {
            double* own = at.data() + s * (m_ + 1);
            const WholeSums sums = seed_kernels().to_whole(own, m_, most, fine_);
            for (Size f = 0; f < m_; ++f)
                point_[std::size_t(s * 2 * pairs() + f)] = std::int16_t(std::int32_t(own[f]));
            point_norm2_[std::size_t(s)] = float(sums.norm2 / (fine_ * fine_));
            point_slack_[std::size_t(s)] = up(std::sqrt(sums.off2) / fine_ + own[m_]);
        }
        return {point_.data(), point_norm2_.data(), point_slack_.data(), pairs(),
                of.count,      float(fine_)};
    }

    BoundTile tile(Size t) const {
        return {values_.data() + t * tile_values(), norm2_.data() + t * bound_rows,
                near_.data() + t * bound_rows};
    }

private:
    static constexpr double most = 127;
    // What arithmetic in float64 may add to the error of a coordinate in the range: a few units in
    // the last place of 127.
    static constexpr double rounding = 0x1p-43;

    static float up(double value) { return float(value) * (1 + 0x1p-22f); }
    Size pairs() const { return (m_ + 1) / 2; }
    Size tile_values() const { return 2 * pairs() * bound_rows; }

    // Of each row m coordinates and their slack, in steps.
    template <class T>
    void coordinates(const T* const* rows, Size count, double scale, double* at) const {
        if (axes_ == 0) {
            for (Size r = 0; r < count; ++r, at += m_ + 1) {
                for (Size f = 0; f < d_; ++f)
                    at[f] = (double(rows[r][f]) * scale - points_[std::size_t(f)]) * per_unit_;
                at[m_] = std::sqrt(double(m_)) * rounding;
            }
            return;
        }
        std::vector<double> d2(std::size_t(count * (axes_ + 1)));
        seed_kernels().distances2(rows, count, {points_.data(), axes_ + 1, d_, pitch_, scale},
                                  d2.data());
        for (Size r = 0; r < count; ++r) along_axes(d2.data() + r * (axes_ + 1), at + r * (m_ + 1));
    }

    // From squared distances to the origin and to a point on each axis. Lengths here are in units
    // of length_.
    void along_axes(const double* d2, double* at) const {
        const double unit2 = 1 / (length_ * length_), radius2 = d2[0] * unit2,
                     radius = std::sqrt(radius2), steps = per_unit_ * length_;
        if (!(radius < 1e15)) {
            std::fill_n(at, m_, 0.0);
            at[m_] = std::numeric_limits<double>::infinity();
            return;
        }
        double rest2 = radius2;
        for (Size a = 0; a < axes_; ++a) {
            const double value = 0.5 * (radius2 + 1 - d2[a + 1] * unit2);
            at[a] = value * steps;
            rest2 -= value * value;
        }
        at[axes_] = std::sqrt(std::max(0.0, rest2)) * steps;
        // Each coordinate is off by at most e (R^2 + 1 + (R + 1)^2) / 2 <= 2 e (R + 1)^2; the
        // square of the rest by what that and the skew of the axes make of R^2 and of the squared
        // coordinates.
        const double out2 = (radius + 1) * (radius + 1), off = 2 * error_ * out2;
        const double count = double(m_), skew = count * skew_;
        const double rest_off2 = error_ * radius2 + count * off * (2 * radius + off) + skew * out2;
        const double slack = std::sqrt(count) * off + skew * (radius + 1) + std::sqrt(rest_off2);
        at[m_] = slack * steps + std::sqrt(count) * rounding;
    }

    // How far the axes, as their points tell them, are from orthonormal: by the largest entry of
    // what their products with each other have beyond the unit matrix.
    double skew() const {
        double most_off = 0;
        for (Size a = 1; a <= axes_; ++a)
            for (Size b = 1; b <= a; ++b) {
                double product = 0;
                for (Size f = 0; f < d_; ++f) product += along(a, f) * along(b, f);
                most_off = std::max(most_off, std::fabs(product - (a == b)));
            }
        return most_off;
    }
    double along(Size axis, Size f) const {
        return (points_[std::size_t(axis * pitch_ + f)] - points_[std::size_t(f)]) / length_;
    }

    Size axes_, d_, m_, pitch_;
    double length_, per_unit_, scale_, error_ = 0, skew_ = 0, fine_ = 256;
    std::vector<double> points_;
    std::vector<std::int8_t> values_;
    std::vector<float> norm2_, slack_, near_, point_norm2_, point_slack_;
    std::vector<std::int16_t> point_;
};

}  // namespace exactmeans
