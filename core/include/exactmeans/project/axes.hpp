// An affine projection: the mean of some points as the origin, and orthonormal axes along their
// leading principal directions. The projection of a point has one coordinate per axis, and as the
// last coordinate the length of the residual. By Pythagoras and Cauchy-Schwarz, the distance
// between two projections is a lower bound of the distance between the points.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/project/principal_directions.hpp"

namespace exactmeans {

class Axes {
public:
    static constexpr Size most = cost::most_axes;

    // The axes of n points (n x d).
    Axes(std::vector<double> points, Size n, Size d) : d_(d), origin_(std::size_t(d), 0.0) {
        for (Size i = 0; i < n; ++i)
            for (Size f = 0; f < d; ++f)
                origin_[std::size_t(f)] += points[std::size_t(i * d + f)] / double(n);
        for (Size i = 0; i < n; ++i)
            for (Size f = 0; f < d; ++f) points[std::size_t(i * d + f)] -= origin_[std::size_t(f)];
        pack(Directions::leading(points.data(), n, d, std::min({most, n, d})));
    }
    // axes: orthonormal, axis by axis. There is no origin: project() takes centred points.
    Axes(const std::vector<double>& axes, Size d) : d_(d) { pack(axes); }
    Axes(const Axes&) = delete;

    Size d() const { return d_; }
    // Coordinates of a projection: one per axis, and the residual.
    Size coordinates() const { return count_ + 1; }
    const double* origin() const { return origin_.data(); }
    // Rounding error of a projection, relative to the point's distance from the origin
    // (docs/proofs/projections.md).
    double error() const {
        return 3 * std::sqrt(double(d_ + 32) * double(coordinates()) * 0x1p-52) + 0x1p-22;
    }

    // Projections of n points, from which the caller has subtracted the origin:
    // out[t * coordinates() + a].
    void project(const double* points, Size n, float* out) const {
        std::vector<const double*> rows(static_cast<std::size_t>(n));
        std::vector<double> along(static_cast<std::size_t>(n * count_));
        for (Size t = 0; t < n; ++t) rows[std::size_t(t)] = points + t * d_;
        if (count_ > 0) score_kernels<double>().scores_dense(rows.data(), n, panels_, along.data());
        for (Size t = 0; t < n; ++t) {
            double residual2 =
                vector_kernels<double>().square_sum(points + t * d_, nullptr, d_, 1.0).value();
            for (Size a = 0; a < count_; ++a) {
                const double value = along[std::size_t(t * count_ + a)];
                residual2 -= value * value;
                *out++ = float(value);
            }
            *out++ = float(std::sqrt(std::max(0.0, residual2)));
        }
    }

private:
    // Packs the axes as panels. Packed centres are negated, so that a score is minus a product;
    // axes are not negated, so that the score kernels give the product itself.
    void pack(const std::vector<double>& axes) {
        count_ = Size(axes.size()) / d_;
        score_offset_.assign(std::size_t(padded<double>(count_)), 0.0);
        values_.assign(std::size_t(padded<double>(count_) * d_), 0.0);
        panels_ = {values_.data(), score_offset_.data(), count_, d_, dense_panels<double>(count_)};
        for (Size p = 0; p < panels_.count; ++p) {
            const auto panel = panels_.panel(p);
            double* to = values_.data() + panel.first * d_;
            for (Size a = panel.first; a < std::min(count_, panel.first + panel.width()); ++a)
                for (Size f = 0; f < d_; ++f)
                    to[f * panel.width() + a - panel.first] = axes[std::size_t(a * d_ + f)];
        }
    }

    Size d_, count_ = 0;
    std::vector<double> origin_, values_, score_offset_;
    Panels<double> panels_;
};

}  // namespace exactmeans
