// The centres: one master matrix, as the user sees it, and what the kernels read, derived from it
// on demand.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "exactmeans/frame.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/movement.hpp"
#include "exactmeans/parallel.hpp"

namespace exactmeans {

template <class R>
class Centroids {
public:
    Centroids(const R* centres, Size k, Size d, Frame<R> frame, const Threads& threads)
        : k_(k),
          d_(d),
          frame_(std::move(frame)),
          master_(centres, centres + k * d),
          start_(std::size_t(padded<R>(k)), std::numeric_limits<R>::infinity()),
          norm2_(std::size_t(k)),
          stale_(std::size_t(k), 1) {
        if (k > largest_k) throw std::invalid_argument("there may be at most 2^24 centres");
        threads.ranges(k_, centres_per_task(), [&](Size begin, Size end, int) {
            for (Size j = begin; j < end; ++j) derive_norm(j);
        });
    }

    Size k() const { return k_; }
    Size d() const { return d_; }
    const Frame<R>& frame() const { return frame_; }
    const R* master() const { return master_.data(); }
    const R* master(Size j) const { return master_.data() + j * d_; }

    // The centre as scores see it, before scaling: shifted like the rows and rounded.
    R derived(Size j, Size f) const {
        const R value = master(j)[f];
        return frame_.shift.empty() ? value : value - frame_.shift[std::size_t(f)];
    }

    // Replaces half the squared norms. scikit-learn's own rounding of the first centres' norms
    // decides rows that share no feature with any of them; norm_terms says how many roundings that
    // took (see slack.hpp).
    void set_norms(const double* norms2, Size norm_terms) {
        for (Size j = 0; j < k_; ++j) start_[std::size_t(j)] = R(0.5 * norms2[j]);
        norm_terms_ = norm_terms;
        norms_given_ = true;
    }
    Size norm_terms() const { return norm_terms_; }
    const R* start() const { return start_.data(); }
    // |c|^2 as scores see the centre, in float64.
    double norm2(Size j) const { return norm2_[std::size_t(j)]; }

    // Puts the centres elsewhere and says how far each went. next(j, buffer) gives the new place of
    // centre j, in the buffer or not, or null if it stays; then the followers go where leader is.
    template <class Next>
    Movement move(Next next, const std::vector<Size>& followers, Size leader,
                  const Threads& threads) {
        Movement movement;
        movement.distance.assign(std::size_t(k_), 0.0);
        std::vector<double> own2(static_cast<std::size_t>(k_));
        std::vector<std::vector<R>> buffers(static_cast<std::size_t>(threads.n_jobs));
        const auto replace_one = [&](Size j, const R* place) {
            replace(j, place, movement.distance[std::size_t(j)], own2[std::size_t(j)]);
        };
        threads.ranges(k_, centres_per_task(), [&](Size begin, Size end, int worker) {
            std::vector<R>& buffer = buffers[std::size_t(worker)];
            buffer.resize(std::size_t(d_));
            for (Size j = begin; j < end; ++j) replace_one(j, next(j, buffer.data()));
        });
        for (const Size j : followers) replace_one(j, master(leader));
        for (Size j = 0; j < k_; ++j) movement.add(j, own2[std::size_t(j)]);
        norms_given_ = false;
        norm_terms_ = 1;
        return movement;
    }
    Movement move(const R* centres, const Threads& threads) {
        return move([&](Size j, R*) { return centres + j * d_; }, {}, 0, threads);
    }

    // Where feature f stands in the panels of CSR rows: f itself, or what `slots` says.
    void set_slots(std::vector<std::uint32_t> slots) {
        slots_ = std::move(slots);
        std::fill(stale_.begin(), stale_.end(), char(1));
    }
    const std::uint32_t* slots_or_null() const { return slots_.empty() ? nullptr : slots_.data(); }

    // The layout for dense or CSR rows; centres that moved are packed anew.
    Panels<R> panels(bool dense, const Threads& threads) const {
        const std::lock_guard lock(layout_mutex_);
        const Size count = dense ? dense_panels<R>(k_) : csr_panels<R>(k_);
        panels_.resize(std::size_t(padded<R>(k_) * d_), R(0));
        const Panels<R> view{panels_.data(), start_.data(), k_, d_, count};
        if (panels_dense_ != dense) {
            std::fill(panels_.begin(), panels_.end(), R(0));
            std::fill(stale_.begin(), stale_.end(), char(1));
            panels_dense_ = dense;
        }
        if (std::find(stale_.begin(), stale_.end(), char(1)) != stale_.end()) {
            threads.ranges(d_, features_per_task(), [&](Size begin, Size end, int) {
                for (Size p = 0; p < count; ++p) pack(view.panel(p), dense, begin, end);
            });
            std::fill(stale_.begin(), stale_.end(), char(0));
        }
        return view;
    }

private:
    // Small centres are not worth waking a thread each.
    Size centres_per_task() const { return std::max<Size>(1, 16384 / std::max<Size>(1, d_)); }
    Size features_per_task() const { return std::max<Size>(64, 16384 / std::max<Size>(1, k_)); }

    // Brings features [begin, end) of a panel up to date, unit by unit.
    void pack(typename Panels<R>::Panel panel, bool dense, Size begin, Size end) const {
        constexpr Size unit = unit_width<R>;
        R* values = panels_.data() + panel.first * d_;
        for (Size j = panel.first; j < std::min(k_, panel.first + panel.width()); j += unit) {
            const Size count = std::min(unit, k_ - j);
            const auto stale = stale_.begin() + j;
            if (std::find(stale, stale + count, char(1)) == stale + count) continue;
            R* lanes = values + (j - panel.first);
            if (frame_.shift.empty() && frame_.exponent == 0)
                pack_unit(j, count, lanes, panel.width(), dense, begin, end,
                          [](Size, R c) { return -c; });
            else
                pack_unit(j, count, lanes, panel.width(), dense, begin, end,
                          [&](Size f, R c) { return packed(f, c); });
        }
    }

    template <class Value>
    void pack_unit(Size j, Size count, R* lanes, Size width, bool dense, Size begin, Size end,
                   Value value) const {
        const std::uint32_t* slot = dense ? nullptr : slots_or_null();
        const R* centre = master(j);
        for (Size f = begin; f < end; ++f) {
            R* to = lanes + (slot ? Size(slot[f]) : f) * width;
            for (Size l = 0; l < count; ++l) to[l] = value(f, centre[l * d_ + f]);
        }
    }

    // Scaling the centre by the square of the scale is scaling row and centre: the product is the
    // same number.
    R packed(Size f, R c) const {
        if (!frame_.shift.empty()) c -= frame_.shift[std::size_t(f)];
        return R(-std::ldexp(double(c), 2 * frame_.exponent));
    }

    // Puts centre j where `place` is, unless that is null or where it stands already.
    void replace(Size j, const R* place, double& distance, double& own2) {
        if (!place || std::memcmp(master(j), place, std::size_t(d_) * sizeof(R)) == 0) {
            // Norms that were set from outside go, whether or not their centre moves.
            if (norms_given_) derive_norm(j);
            return;
        }
        const R* shift = frame_.shift_or_null();
        own2 = kernels<R>().step2(place, master(j), nullptr, d_, frame_.scale());
        const double step2 =
            shift ? kernels<R>().step2(place, master(j), shift, d_, frame_.scale()) : own2;
        // A difference, a square and up to d additions round each term by less than d + 4 units.
        // Squares may underflow, too, and a centre that moved must not seem to stand still.
        distance = std::sqrt(step2 + double(d_) * 0x1p-1074) * (1 + double(d_ + 8) * 0x1p-53) *
                   (1 + 0x1p-48);
        std::copy(place, place + d_, master_.data() + j * d_);
        stale_[std::size_t(j)] = 1;
        derive_norm(j);
    }

    void derive_norm(Size j) {
        const double norm2 =
            kernels<R>().square_sum(master(j), frame_.shift_or_null(), d_, frame_.scale()).value();
        norm2_[std::size_t(j)] = norm2;
        start_[std::size_t(j)] = R(0.5 * norm2);
    }

    Size k_, d_;
    Frame<R> frame_;
    std::vector<R> master_;
    std::vector<R> start_;
    std::vector<double> norm2_;
    Size norm_terms_ = 1;
    bool norms_given_ = false;
    mutable std::mutex layout_mutex_;
    std::vector<std::uint32_t> slots_;
    mutable std::vector<R> panels_;
    mutable std::vector<char> stale_;  // centres that the panels do not have yet
    mutable bool panels_dense_ = true;
};

}  // namespace exactmeans
