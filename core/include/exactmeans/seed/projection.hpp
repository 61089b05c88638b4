// Quantised projections of rows: their features relative to an origin, or their coordinates along a
// few axes (project/axes.hpp). The distance between two projections is a lower bound of the
// distance between the points. If it exceeds the distance of a row to its seed, the candidate is
// pruned.
//
// Coordinates of rows are int8 multiples of a step; those of candidates are multiples of a finer
// step. Coordinates outside the range are clamped, which is a projection onto a convex set and
// never increases a distance. So only rounding needs slack, per row and per candidate
// (docs/proofs/seeding.md).
//
// Rows are stored in tiles if all rows are bounded, and row by row if another projection prunes
// most of them first. Memory: m + 12 bytes per row, with m coordinates, rounded up.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/project/axes.hpp"
#include "exactmeans/seed/points.hpp"
#include "exactmeans/seed/tile.hpp"

namespace exactmeans {

class Projection {
public:
    // axes: orthonormal; if empty, the features are the coordinates. range: coordinates in [-range,
    // range] are not clamped. Origin and range are on the frame's scale.
    Projection(std::vector<double> origin, const std::vector<double>& axes, double range,
               double scale)
        : d_(Size(origin.size())),
          origin_(std::move(origin)),
          axes_(axes.empty() ? nullptr : std::make_shared<const Axes>(axes, d_)),
          m_(axes_ ? axes_->coordinates() : d_),
          padded_(axes_ ? (m_ + 1) / 2 * 2 : (m_ + bound_rows - 1) / bound_rows * bound_rows),
          per_unit_(most / range),
          scale_(scale),
          // Relative error of a squared distance (kernels/seeding.hpp).
          error_(double(d_ + 32) * 0x1p-52) {
        // Sums of products must fit in int32: they are at most the product of the norms.
        while (fine_ > 1 && double(m_) * most * most * fine_ >= 0x1p31) fine_ /= 2;
    }

    // Do sums of products fit, and are squares far from underflow?
    bool usable() const { return double(m_) * most * most < 0x1p31 && per_unit_ < 1e100; }
    bool along_axes() const { return axes_ != nullptr; }

    template <class R>
    void project(const DenseRows<R>& x, const Threads& threads) {
        const Size padded_rows = (x.n + bound_rows - 1) / bound_rows * bound_rows;
        // Padding is not initialised: candidates have zeros there.
        values_.reset(new std::int8_t[std::size_t(padded_rows * padded_)]);
        for (auto* of_rows : {&norm2_, &slack_, &near_})
            of_rows->assign(std::size_t(padded_rows), 0.0f);
        threads.ranges(x.n, dense_tile_rows, [&](Size begin, Size end, int) {
            SeedTile<R> tile;
            std::vector<double> at;
            tile.rows(x, begin, nullptr, end - begin,
                      [&](const auto* const* rows) { coordinates(rows, end - begin, scale_, at); });
            for (Size i = begin; i < end; ++i) {
                double* coordinate = at.data() + (i - begin) * (m_ + 1);
                const WholeSums sums = seed_kernels().to_whole(coordinate, m_, most, 1.0);
                std::int8_t* to = values_.get() + i / bound_rows * bound_rows * padded_;
                for (Size f = 0; f < m_; ++f)
                    to[place(i % bound_rows, f)] = std::int8_t(std::int32_t(coordinate[f]));
                norm2_[std::size_t(i)] = float(sums.norm2);
                slack_[std::size_t(i)] = up(std::sqrt(sums.off2) + coordinate[m_]);
            }
        });
    }

    // Sets the squared distance of row i to its seed: the limit up to which candidates survive.
    void set_near(Size i, double d2) {
        const double near = std::sqrt(std::max(0.0, d2)) * per_unit_ * (1 + error_);
        near_[std::size_t(i)] = up(near + double(slack_[std::size_t(i)]));
    }

    // Projects the candidates of a panel, which are on the frame's scale.
    SeedBounds candidates(const SeedPanel& of) {
        std::vector<const double*> rows;
        for (Size s = 0; s < of.count; ++s) rows.push_back(of.points + s * of.pitch);
        std::vector<double> at;
        coordinates(rows.data(), of.count, 1.0, at);
        const Size pairs = tiled_ ? (m_ + 1) / 2 : padded_ / 2;
        point_.assign(std::size_t(of.count * 2 * pairs), 0);
        point_norm2_.resize(std::size_t(of.count));
        point_slack_.resize(std::size_t(of.count));
        for (Size s = 0; s < of.count; ++s) {
            double* coordinate = at.data() + s * (m_ + 1);
            const WholeSums sums = seed_kernels().to_whole(coordinate, m_, most, fine_);
            for (Size f = 0; f < m_; ++f)
                point_[std::size_t(s * 2 * pairs + f)] = std::int16_t(std::int32_t(coordinate[f]));
            point_norm2_[std::size_t(s)] = float(sums.norm2 / (fine_ * fine_));
            point_slack_[std::size_t(s)] = up(std::sqrt(sums.off2) / fine_ + coordinate[m_]);
        }
        return {point_.data(), point_norm2_.data(), point_slack_.data(), pairs,
                of.count,      float(fine_)};
    }

    // Tile t, of bound_rows rows; before lay_by_row().
    BoundTile tile(Size t) const {
        return {values_.get() + t * bound_rows * padded_, norm2_.data() + t * bound_rows,
                near_.data() + t * bound_rows};
    }

    // Changes the storage from tiles to rows, for row(i); without axes only.
    void lay_by_row(const Threads& threads) {
        if (!tiled_) return;
        tiled_ = false;
        threads.ranges(Size(norm2_.size()), bound_rows, [&](Size begin, Size, int) {
            std::int8_t* tile = values_.get() + begin * padded_;
            const std::vector<std::int8_t> was(tile, tile + bound_rows * padded_);
            for (Size r = 0; r < bound_rows; ++r)
                for (Size f = 0; f < m_; ++f) tile[r * padded_ + f] = was[std::size_t(place(r, f))];
        });
    }
    BoundRow row(Size i) const {
        return {values_.get() + i * padded_, norm2_[std::size_t(i)], near_[std::size_t(i)]};
    }
    void prefetch(Size i) const {
        for (Size at = 0; at < padded_; at += 64)
            __builtin_prefetch(values_.get() + i * padded_ + at);
    }

private:
    static constexpr double most = 127;  // largest int8 code
    // Float64 error of a coordinate in the range, in steps: a few ulps of 127.
    static constexpr double rounding = 0x1p-43;
    // In steps. Points with a longer projection are not pruned.
    static constexpr double longest_projection = 1e15;

    static float up(double value) { return float(value) * (1 + 0x1p-22f); }

    // Position of coordinate f of row r in a tile.
    static Size place(Size r, Size f) { return f / 2 * 2 * bound_rows + 2 * r + f % 2; }

    // Per row: m coordinates and their slack, in steps.
    template <class T>
    void coordinates(const T* const* rows, Size count, double scale,
                     std::vector<double>& at) const {
        at.resize(std::size_t(count * (m_ + 1)));
        if (axes_) return project_onto_axes(rows, count, scale, at.data());
        for (Size r = 0; r < count; ++r) {
            double* coordinate = at.data() + r * (m_ + 1);
            centre_point(rows[r], scale, coordinate);
            coordinate[m_] = std::sqrt(double(m_)) * rounding;
        }
    }
    template <class T>
    void project_onto_axes(const T* const* rows, Size count, double scale, double* at) const {
        std::vector<double> centred(std::size_t(count * d_));
        std::vector<float> projected(std::size_t(count * m_));
        for (Size r = 0; r < count; ++r) centre_point(rows[r], scale, centred.data() + r * d_);
        axes_->project(centred.data(), count, projected.data());
        for (Size r = 0; r < count; ++r, at += m_ + 1) {
            const float* coordinate = projected.data() + r * m_;
            double norm2 = 0;
            for (Size a = 0; a < m_; ++a) norm2 += double(coordinate[a]) * double(coordinate[a]);
            const double norm = std::sqrt(norm2);
            const bool far = !(norm < longest_projection);
            for (Size a = 0; a < m_; ++a) at[a] = far ? 0.0 : double(coordinate[a]);
            // The error is relative to the length of the point. The length of the projection
            // approximates that; the factor 2 covers the difference.
            at[m_] = far ? std::numeric_limits<double>::infinity()
                         : 2 * axes_->error() * norm + std::sqrt(double(m_)) * rounding;
        }
    }
    // A point minus the origin, in steps.
    template <class T>
    void centre_point(const T* x, double scale, double* out) const {
        for (Size f = 0; f < d_; ++f)
            out[f] = (double(x[f]) * scale - origin_[std::size_t(f)]) * per_unit_;
    }

    Size d_;
    std::vector<double> origin_;
    std::shared_ptr<const Axes> axes_;
    Size m_, padded_;
    bool tiled_ = true;
    double per_unit_, scale_, error_, fine_ = 256;
    std::shared_ptr<std::int8_t[]> values_;
    std::vector<float> norm2_, slack_, near_, point_norm2_, point_slack_;
    std::vector<std::int16_t> point_;
};

}  // namespace exactmeans
