// Coordinates in place of rows: their features about an origin, or what they have along a few axes
// from there (project/axes.hpp). No two rows get farther apart, so coordinates that are farther
// apart than a row and its seed rule a candidate out.
//
// Coordinates are whole numbers of steps in 8 bits. What lies outside of their range is moved to
// its border, and that brings no two points farther apart either: the range is convex. So only
// rounding needs a slack, which is per row and per point (docs/numerics.md, "Seeding"). Points are
// rounded to finer steps.
//
// They lie in tiles while all rows are asked about, and row by row where others come first and
// leave a few. Memory: m + 12 bytes per row, m rounded up.
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
    // Origin and range, which most coordinates should be in, are on the frame's scale; without
    // axes, which are orthonormal, features are the coordinates.
    Projection(std::vector<double> origin, const std::vector<double>& axes, double range,
               double scale)
        : d_(Size(origin.size())),
          origin_(std::move(origin)),
          axes_(axes.empty() ? nullptr : std::make_shared<const Axes>(axes, d_)),
          m_(axes_ ? axes_->coordinates() : d_),
          padded_(axes_ ? (m_ + 1) / 2 * 2 : (m_ + bound_rows - 1) / bound_rows * bound_rows),
          per_unit_(most / range),
          scale_(scale),
          // The square of a distance is off by at most e relatively: see kernels.hpp.
          error_(double(d_ + 32) * 0x1p-52) {
        // No sum of products may exceed 31 bits: it is at most the product of the norms.
        while (fine_ > 1 && double(m_) * most * most * fine_ >= 0x1p31) fine_ /= 2;
    }

    // Do sums of products fit, and are squares far from underflow?
    bool usable() const { return double(m_) * most * most < 0x1p31 && per_unit_ < 1e100; }
    bool along_axes() const { return axes_ != nullptr; }

    template <class R>
    void project(const DenseRows<R>& x, const Threads& threads) {
        const Size padded_rows = (x.n + bound_rows - 1) / bound_rows * bound_rows;
        // What stands behind the last coordinate meets zeros of points.
        values_.reset(new std::int8_t[std::size_t(padded_rows * padded_)]);
        for (auto* of_rows : {&norm2_, &slack_, &near_})
            of_rows->assign(std::size_t(padded_rows), 0.0f);
        // As many rows at once as fill the registers of the kernels.
        threads.ranges(x.n, 48, [&](Size begin, Size end, int) {
            SeedTile<R> tile;
            std::vector<double> at;
            tile.rows(x, begin, nullptr, end - begin,
                      [&](const auto* const* rows) { coordinates(rows, end - begin, scale_, at); });
            for (Size i = begin; i < end; ++i) {
                double* own = at.data() + (i - begin) * (m_ + 1);
                const WholeSums sums = seed_kernels().to_whole(own, m_, most, 1.0);
                std::int8_t* to = values_.get() + i / bound_rows * bound_rows * padded_;
                for (Size f = 0; f < m_; ++f)
                    to[place(i % bound_rows, f)] = std::int8_t(std::int32_t(own[f]));
                norm2_[std::size_t(i)] = float(sums.norm2);
                slack_[std::size_t(i)] = up(std::sqrt(sums.off2) + own[m_]);
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
        std::vector<double> at;
        coordinates(rows.data(), of.count, 1.0, at);
        const Size pairs = tiled_ ? (m_ + 1) / 2 : padded_ / 2;
        point_.assign(std::size_t(of.count * 2 * pairs), 0);
        point_norm2_.resize(std::size_t(of.count));
        point_slack_.resize(std::size_t(of.count));
        for (Size s = 0; s < of.count; ++s) {
            double* own = at.data() + s * (m_ + 1);
            const WholeSums sums = seed_kernels().to_whole(own, m_, most, fine_);
            for (Size f = 0; f < m_; ++f)
                point_[std::size_t(s * 2 * pairs + f)] = std::int16_t(std::int32_t(own[f]));
            point_norm2_[std::size_t(s)] = float(sums.norm2 / (fine_ * fine_));
            point_slack_[std::size_t(s)] = up(std::sqrt(sums.off2) / fine_ + own[m_]);
        }
        return {point_.data(), point_norm2_.data(), point_slack_.data(), pairs,
                of.count,      float(fine_)};
    }

    // bound_rows rows, as they lie at first.
    BoundTile tile(Size t) const {
        return {values_.get() + t * bound_rows * padded_, norm2_.data() + t * bound_rows,
                near_.data() + t * bound_rows};
    }

    // From now on rows are asked about one by one, which is for features only.
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
    static constexpr double most = 127;
    // What arithmetic in float64 may add to the error of a coordinate in the range: a few units in
    // the last place of 127.
    static constexpr double rounding = 0x1p-43;
    // Of points farther out, in steps, nothing is said.
    static constexpr double horizon = 1e15;

    static float up(double value) { return float(value) * (1 + 0x1p-22f); }

    // Where a tile has coordinate f of its row r.
    static Size place(Size r, Size f) { return f / 2 * 2 * bound_rows + 2 * r + f % 2; }

    // Of each row m coordinates and their slack, in steps.
    template <class T>
    void coordinates(const T* const* rows, Size count, double scale,
                     std::vector<double>& at) const {
        at.resize(std::size_t(count * (m_ + 1)));
        if (axes_) return cast(rows, count, scale, at.data());
        for (Size r = 0; r < count; ++r) {
            double* own = at.data() + r * (m_ + 1);
            see(rows[r], scale, own);
            own[m_] = std::sqrt(double(m_)) * rounding;
        }
    }
    template <class T>
    void cast(const T* const* rows, Size count, double scale, double* at) const {
        std::vector<double> seen(std::size_t(count * d_));
        std::vector<float> shadows(std::size_t(count * m_));
        for (Size r = 0; r < count; ++r) see(rows[r], scale, seen.data() + r * d_);
        axes_->project(seen.data(), count, shadows.data());
        for (Size r = 0; r < count; ++r, at += m_ + 1) {
            const float* own = shadows.data() + r * m_;
            double norm2 = 0;
            for (Size a = 0; a < m_; ++a) norm2 += double(own[a]) * double(own[a]);
            const double norm = std::sqrt(norm2);
            const bool far = !(norm < horizon);
            for (Size a = 0; a < m_; ++a) at[a] = far ? 0.0 : double(own[a]);
            // A shadow is off by error() of the point's length, which is hardly more than its own.
            at[m_] = far ? std::numeric_limits<double>::infinity()
                         : 2 * axes_->error() * norm + std::sqrt(double(m_)) * rounding;
        }
    }
    // A point as seen from the origin, in steps.
    template <class T>
    void see(const T* x, double scale, double* out) const {
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
