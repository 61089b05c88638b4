// Panels of centres, as kernels read them, kept up to date with a master.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/frame.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/parallel.hpp"
#include "exactmeans/sparse.hpp"

namespace exactmeans {

template <class R>
class Layout {
public:
    explicit Layout(Size k) : k_(k), stale_(std::size_t(k), 1) {}

    // Centre j has moved.
    void outdate(Size j) { stale_[std::size_t(j)] = 1; }

    void set_slots(std::vector<std::uint32_t> slots) {
        slots_ = std::move(slots);
        std::fill(stale_.begin(), stale_.end(), char(1));
    }
    const std::uint32_t* slots_or_null() const { return slots_.empty() ? nullptr : slots_.data(); }

    Panels<R> panels(const std::vector<R>& master, Size d, const Frame<R>& frame, const R* start,
                     bool dense, const Threads& threads) {
        return refresh(d, start, dense, threads,
                       [&](auto panel, Size j, Size count, Size begin, Size end) {
                           const std::uint32_t* slot = dense ? nullptr : slots_or_null();
                           const R* centre = master.data() + j * d;
                           const bool plain = frame.shift.empty() && frame.exponent == 0;
                           for (Size f = begin; f < end; ++f) {
                               R* to = lanes(panel, j, d, slot ? Size(slot[f]) : f);
                               if (plain)
                                   for (Size l = 0; l < count; ++l) to[l] = -centre[l * d + f];
                               else
                                   for (Size l = 0; l < count; ++l)
                                       to[l] = packed(frame, f, centre[l * d + f]);
                           }
                       });
    }

    Panels<R> panels(const std::vector<SparseVector<R>>& master, Size d, const Frame<R>& frame,
                     const R* start, const Threads& threads) {
        return refresh(d, start, false, threads,
                       [&](auto panel, Size j, Size count, Size begin, Size end) {
                           const std::uint32_t* slot = slots_or_null();
                           for (Size f = begin; f < end; ++f) {
                               R* to = lanes(panel, j, d, slot ? Size(slot[f]) : f);
                               std::fill(to, to + unit_width<R>, R(0));
                           }
                           for (Size l = 0; l < count; ++l) {
                               const SparseVector<R>& own = master[std::size_t(j + l)];
                               const auto from =
                                   std::lower_bound(own.feature.begin(), own.feature.end(), begin);
                               for (std::size_t t = std::size_t(from - own.feature.begin());
                                    t < own.feature.size() && Size(own.feature[t]) < end; ++t) {
                                   const Size f = Size(own.feature[t]);
                                   lanes(panel, j, d, slot ? Size(slot[f]) : f)[l] =
                                       packed(frame, f, own.value[t]);
                               }
                           }
                       });
    }

    // Value c of feature f as panels have it. Scaling the centre by the square of the scale is
    // scaling row and centre: the product is the same number.
    static R packed(const Frame<R>& frame, Size f, R c) {
        if (!frame.shift.empty()) c -= frame.shift[std::size_t(f)];
        return frame.exponent ? R(-std::ldexp(double(c), 2 * frame.exponent)) : -c;
    }

private:
    using Panel = typename Panels<R>::Panel;

    // Calls pack(panel, j, count, begin, end) for features [begin, end) of the centres of each unit
    // that is out of date: `count` of them from j on.
    template <class Pack>
    Panels<R> refresh(Size d, const R* start, bool dense, const Threads& threads, Pack pack) {
        const Size count = dense ? dense_panels<R>(k_) : csr_panels<R>(k_);
        values_.resize(std::size_t(padded<R>(k_) * d), R(0));
        const Panels<R> view{values_.data(), start, k_, d, count};
        if (dense_ != dense) {
            std::fill(values_.begin(), values_.end(), R(0));
            std::fill(stale_.begin(), stale_.end(), char(1));
            dense_ = dense;
        }
        if (std::find(stale_.begin(), stale_.end(), char(1)) == stale_.end()) return view;
        const Size step = std::max<Size>(64, 16384 / std::max<Size>(1, k_));
        threads.ranges(d, step, [&](Size begin, Size end, int) {
            for (Size p = 0; p < count; ++p) {
                const Panel panel = view.panel(p);
                const Size past = std::min(k_, panel.first + panel.width());
                for (Size j = panel.first; j < past; j += unit_width<R>) {
                    const Size some = std::min(unit_width<R>, k_ - j);
                    const auto stale = stale_.begin() + j;
                    if (std::find(stale, stale + some, char(1)) != stale + some)
                        pack(panel, j, some, begin, end);
                }
            }
        });
        std::fill(stale_.begin(), stale_.end(), char(0));
        return view;
    }

    // Where a panel keeps the unit of centre j in a slot.
    R* lanes(const Panel& panel, Size j, Size d, Size slot) {
        return values_.data() + panel.first * d + slot * panel.width() + (j - panel.first);
    }

    Size k_;
    std::vector<std::uint32_t> slots_;
    std::vector<R> values_;
    std::vector<char> stale_;  // centres that the panels do not have yet
    bool dense_ = true;
};

}  // namespace exactmeans
