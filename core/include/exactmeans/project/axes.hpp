// An origin amid some points, and orthonormal axes from there along which the points differ most. A
// point's shadow is what it has along each axis, and the length of what is left as one coordinate
// more. By Pythagoras and Cauchy-Schwarz no two shadows are farther apart than what casts them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/project/principal_directions.hpp"

namespace exactmeans {

class Axes {
public:
    static constexpr Size most = 48;

    // points: n x d
    Axes(std::vector<double> points, Size n, Size d) : d_(d), origin_(std::size_t(d), 0.0) {
        for (Size i = 0; i < n; ++i)
            for (Size f = 0; f < d; ++f)
                origin_[std::size_t(f)] += points[std::size_t(i * d + f)] / double(n);
        for (Size i = 0; i < n; ++i)
            for (Size f = 0; f < d; ++f) points[std::size_t(i * d + f)] -= origin_[std::size_t(f)];
        pack(Directions::leading(points.data(), n, d, std::min({most, n, d})));
    }
    // Axes that are orthonormal, one after the other; points come as seen from an origin.
    Axes(const std::vector<double>& axes, Size d) : d_(d) { pack(axes); }
    Axes(const Axes&) = delete;

    Size d() const { return d_; }
    Size coordinates() const { return count_ + 1; }
    const double* origin() const { return origin_.data(); }
    // How far a shadow may be from where it should be, as a part of the point's distance from the
    // origin (docs/numerics.md, "Shadows").
    double error() const {
        return 3 * std::sqrt(double(d_ + 32) * double(coordinates()) * 0x1p-52) + 0x1p-22;
    }

    // Shadows of n points that are given as seen from the origin: out[t * coordinates() + a].
    void cast(const double* points, Size n, float* out) const {
        std::vector<const double*> rows(static_cast<std::size_t>(n));
        std::vector<double> along(static_cast<std::size_t>(n * count_));
        for (Size t = 0; t < n; ++t) rows[std::size_t(t)] = points + t * d_;
        if (count_ > 0) score_kernels<double>().scores_dense(rows.data(), n, panels_, along.data());
        for (Size t = 0; t < n; ++t) {
            double rest2 =
                vector_kernels<double>().square_sum(points + t * d_, nullptr, d_, 1.0).value();
            for (Size a = 0; a < count_; ++a) {
                const double value = along[std::size_t(t * count_ + a)];
                rest2 -= value * value;
                *out++ = float(value);
            }
            *out++ = float(std::sqrt(std::max(0.0, rest2)));
        }
    }

private:
    // As kernels read them. A score is minus the product with a centre, and packed is minus the
    // centre: axes as they are give the product itself.
    void pack(const std::vector<double>& axes) {
        count_ = Size(axes.size()) / d_;
        start_.assign(std::size_t(padded<double>(count_)), 0.0);
        values_.assign(std::size_t(padded<double>(count_) * d_), 0.0);
        panels_ = {values_.data(), start_.data(), count_, d_, dense_panels<double>(count_)};
        for (Size p = 0; p < panels_.count; ++p) {
            const auto panel = panels_.panel(p);
            double* to = values_.data() + panel.first * d_;
            for (Size a = panel.first; a < std::min(count_, panel.first + panel.width()); ++a)
                for (Size f = 0; f < d_; ++f)
                    to[f * panel.width() + a - panel.first] = axes[std::size_t(a * d_ + f)];
        }
    }

    Size d_, count_ = 0;
    std::vector<double> origin_, values_, start_;
    Panels<double> panels_;
};

}  // namespace exactmeans
