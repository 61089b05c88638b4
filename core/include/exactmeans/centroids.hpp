// The centres: one master matrix, as the user sees it, and what the kernels read, derived from it on demand.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "exactmeans/compensated.hpp"
#include "exactmeans/frame.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/movement.hpp"
#include "exactmeans/parallel.hpp"

namespace exactmeans {

template <class R>
class Centroids {
  public:
    Centroids(const R* centres, Size k, Size d, Frame<R> frame, const Threads& threads)
        : k_(k), d_(d), frame_(std::move(frame)), master_(centres, centres + k * d),
          start_(std::size_t(padded()), std::numeric_limits<R>::infinity()), norm2_(std::size_t(k)) {
        derive_start(threads);
    }

    Size k() const { return k_; }
    Size d() const { return d_; }
    const Frame<R>& frame() const { return frame_; }
    const R* master() const { return master_.data(); }
    const R* master(Size j) const { return master_.data() + j * d_; }

    // The centre as scores see it, before scaling: shifted like the rows and rounded.
    R derived(Size j, Size f) const { return derive(master_.data(), j, f); }

    // Replaces half the squared norms. scikit-learn's own rounding of the first centres' norms decides rows that
    // share no feature with any of them; norm_terms says how many roundings that took (see slack.hpp).
    void set_norms(const double* norms2, Size norm_terms) {
        for (Size j = 0; j < k_; ++j) start_[std::size_t(j)] = R(0.5 * norms2[j]);
        norm_terms_ = norm_terms;
    }
    Size norm_terms() const { return norm_terms_; }
    const R* start() const { return start_.data(); }
    // |c|^2 as scores see the centre, in float64.
    double norm2(Size j) const { return norm2_[std::size_t(j)]; }

    // Puts the centres elsewhere and says how far each went.
    Movement move(const R* centres, const Threads& threads) {
        Movement movement;
        movement.distance.assign(std::size_t(k_), 0.0);
        std::vector<double> own_units(static_cast<std::size_t>(k_));
        threads.ranges(k_, centres_per_task(), [&](Size begin, Size end, int) {
            for (Size j = begin; j < end; ++j) measure(j, centres, movement, own_units[std::size_t(j)]);
        });
        for (Size j = 0; j < k_; ++j) {
            const double distance = movement.distance[std::size_t(j)];
            movement.moved += distance > 0;
            movement.shift2 += own_units[std::size_t(j)];
            if (distance > movement.largest) {
                movement.second_largest = movement.largest;
                movement.largest = distance;
                movement.largest_index = j;
            } else {
                movement.second_largest = std::max(movement.second_largest, distance);
            }
        }
        std::copy(centres, centres + k_ * d_, master_.begin());
        norm_terms_ = 1;
        derive_start(threads);
        panels_.clear();
        feature_major_.clear();
        return movement;
    }

    Panels<R> panels(const Threads& threads) const {
        const std::lock_guard lock(layout_mutex_);
        if (panels_.empty()) {
            constexpr Size width = panel_width<R>;
            panels_.assign(std::size_t(padded() * d_), R(0));
            threads.run(padded() / width, [&](Size p, int) {
                for (Size j = p * width; j < std::min(k_, (p + 1) * width); ++j)
                    for (Size f = 0; f < d_; ++f)
                        panels_[std::size_t((p * d_ + f) * width + j - p * width)] = packed(j, f);
            });
        }
        return {panels_.data(), start_.data(), k_, d_};
    }

    FeatureMajor<R> feature_major(const Threads& threads) const {
        const std::lock_guard lock(layout_mutex_);
        if (feature_major_.empty()) {
            feature_major_.assign(std::size_t(padded() * d_), R(0));
            threads.ranges(d_, 256, [&](Size begin, Size end, int) {
                for (Size j = 0; j < k_; ++j)
                    for (Size f = begin; f < end; ++f)
                        feature_major_[std::size_t(f * padded() + j)] = packed(j, f);
            });
        }
        return {feature_major_.data(), start_.data(), k_, d_};
    }

  private:
    Size padded() const { return (k_ + panel_width<R> - 1) / panel_width<R> * panel_width<R>; }

    R derive(const R* centres, Size j, Size f) const {
        const R value = centres[j * d_ + f];
        return frame_.shift.empty() ? value : value - frame_.shift[std::size_t(f)];
    }
    // Scaling the centre by the square of the scale is scaling row and centre: the product is the same number.
    R packed(Size j, Size f) const {
        const R value = derived(j, f);
        return frame_.exponent ? R(-std::ldexp(double(value), 2 * frame_.exponent)) : -value;
    }

    // Small centres are not worth waking a thread each.
    Size centres_per_task() const { return std::max<Size>(1, 16384 / std::max<Size>(1, d_)); }

    void measure(Size j, const R* centres, Movement& movement, double& own2) const {
        if (std::memcmp(master(j), centres + j * d_, std::size_t(d_) * sizeof(R)) == 0) return;
        const double scale = frame_.scale();
        Compensated derived2, master2;
        for (Size f = 0; f < d_; ++f) {
            const double step = (double(derive(centres, j, f)) - double(derived(j, f))) * scale;
            const double own = (double(centres[j * d_ + f]) - double(master(j)[f])) * scale;
            derived2.add_product(step, step);
            master2.add_product(own, own);
        }
        // Differences, squares and root: a few roundings in all.
        movement.distance[std::size_t(j)] = std::sqrt(derived2.value()) * (1 + 0x1p-48);
        own2 = master2.value();
    }

    void derive_start(const Threads& threads) {
        threads.ranges(k_, centres_per_task(), [&](Size begin, Size end, int) {
            for (Size j = begin; j < end; ++j) {
                Compensated norm2;
                for (Size f = 0; f < d_; ++f) {
                    const double value = double(derived(j, f)) * frame_.scale();
                    norm2.add_product(value, value);
                }
                norm2_[std::size_t(j)] = norm2.value();
                start_[std::size_t(j)] = R(0.5 * norm2.value());
            }
        });
    }

    Size k_, d_;
    Frame<R> frame_;
    std::vector<R> master_;
    std::vector<R> start_;
    std::vector<double> norm2_;
    Size norm_terms_ = 1;
    mutable std::mutex layout_mutex_;
    mutable std::vector<R> panels_;
    mutable std::vector<R> feature_major_;
};

}  // namespace exactmeans
