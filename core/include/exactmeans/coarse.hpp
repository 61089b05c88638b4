// Centres in 16 bits, for a first look at CSR rows.
//
// A pass over CSR rows waits for the centres' values, which lie all over the caches. Here they take
// a half or a quarter of the room, and still decide nearly every row: each value is a whole number
// of steps of its centre, so that a row's score is off by half a step for each unit of |x|_1, and a
// little more for rounding. What remains open is decided by the centres as they are, of which only
// those that may be the nearest are looked at. docs/numerics.md ("A first look") derives the
// bounds.
//
// Two centres share a word of 32 bits. The low half, moved up, is the value of one of them; the
// whole word is that of the other, whose half is chosen with the low one in mind. So neither has to
// be cut out, and both are counted in parts, 2^16 to a step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/kernels.hpp"

namespace exactmeans {

template <class R>
class Coarse {
public:
    // Of all centres.
    Coarse(const Centroids<R>& centroids, bool) {
        std::vector<Size> all(static_cast<std::size_t>(centroids.k()));
        std::iota(all.begin(), all.end(), Size(0));
        hold(centroids, std::move(all));
    }
    // Of none yet.
    Coarse() = default;

    // Holds these centres from now on, in this order.
    void hold(const Centroids<R>& centroids, std::vector<Size> centres) {
        centre_ = std::move(centres);
        k_ = Size(centre_.size());
        d_ = centroids.d();
        version_ = -1;
        packed_.assign(std::size_t(k_), -1);
        start_.assign(std::size_t(padded<float>(k_)), std::numeric_limits<float>::infinity());
        part_.assign(start_.size(), 0.0f);
        values_.resize(start_.size() * std::size_t(d_));
        view_ = {
            {nullptr, start_.data(), k_, d_, csr_panels<float>(k_)}, values_.data(), part_.data()};
    }
    Size k() const { return k_; }
    // Rows that should be looked at in one call, of so many. A panel comes into the cache once per
    // call, so calls are long; for the only panel there is, rows may as well stay in the cache.
    Size batch(Size rows) const { return view_.lanes.count == 1 ? Size(128) : rows; }
    // The parts of steps in which its centres are counted, in their order.
    const std::vector<float>& parts() const { return part_; }

    // Is there room for them, and not a better layout?
    static bool fits(const Centroids<R>& centroids) {
        if (centroids.layout().lists_rare_features()) return false;
        Size nonzeros = 0;
        for (Size j = 0; j < centroids.k() && centroids.sparse(); ++j)
            nonzeros += centroids.sparse_master(j).size();
        if (!centroids.sparse()) nonzeros = centroids.k() * centroids.d();
        return centroids.layout().all_have_slots(centroids.d(), nonzeros, sizeof(std::int16_t));
    }
    static const Coarse& of(const Centroids<R>& centroids, const Threads& threads) {
        return centroids.template laid_out<Coarse>(false, threads);
    }
    bool dense() const { return false; }
    const CoarsePanels& panels() const { return view_; }

    void update(const Centroids<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        version_ = centroids.version();
        for (std::size_t t = 0; t < centre_.size(); ++t)
            start_[t] = float(double(centroids.start()[centre_[t]]) * (1 - 0x1p-20));
        std::vector<Words> stale;
        bool all = true;
        for (Size p = 0; p < view_.lanes.count; ++p) {
            const Panel panel = view_.lanes.panel(p);
            for (Size unit = 0; unit < panel.units; unit += 2) {
                const Words words{panel, unit};
                if (out_of_date(centroids, words))
                    stale.push_back(words);
                else
                    all = false;
            }
        }
        if (all)
            threads.ranges(Size(values_.size()), Size(1) << 18, [&](Size begin, Size end, int) {
                std::fill(values_.begin() + begin, values_.begin() + end, std::int16_t(0));
            });
        // Neighbours share lines of the cache: one range for each thread.
        const Size count = Size(stale.size());
        threads.ranges(count, count / threads.n_jobs + 1, [&](Size begin, Size end, int) {
            for (Size w = begin; w < end; ++w) pack(centroids, stale[std::size_t(w)], !all);
        });
    }

    // The highest score of a row and the centre at a place, of which the lowest is `low`.
    double highest(double low, Size place, float error) const {
        const std::size_t at = std::size_t(place);
        return low + 2.0 * double(error) * double(part_[at]) + double(start_[at]) * 0x1p-18 +
               0x1p-100;
    }

    // The lowest scores of a row and all centres.
    void lowest(const CoarseRow& row, double* out) const {
        for (Size p = 0; p < view_.lanes.count; ++p) {
            const auto panel = view_.lanes.panel(p);
            const Size width = std::min(panel.width(), k_ - panel.first);
            double* own = out + panel.first;
            std::fill_n(own, width, 0.0);
            for (Size t = 0; t < row.nonzeros; ++t) {
                const double x = row.value[t];
                const std::int16_t* values =
                    values_.data() + panel.first * d_ + Size(row.index[t]) * panel.width();
                for (Size l = 0; l < width; ++l) own[l] += x * double(parts_at(panel, values, l));
            }
        }
        for (Size j = 0; j < k_; ++j)
            out[j] = (out[j] - double(row.error)) * double(part_[std::size_t(j)]) +
                     double(start_[std::size_t(j)]);
    }

private:
    using Panel = Panels<float>::Panel;
    static constexpr Size unit_lanes = unit_width<float>;
    static constexpr double most = std::numeric_limits<std::int16_t>::max();

    // Words of two units of a panel, from this one on; or halves only, of a unit that is left over.
    struct Words {
        Panel panel;
        Size unit;
        bool paired() const { return unit + 1 < panel.units; }
        Size halves() const { return paired() ? 2 : 1; }
        Size first() const { return panel.first + unit * unit_lanes; }  // place
    };

    static std::int32_t raised(std::int16_t half) { return std::int32_t(half) * 0x10000; }
    static std::int32_t word(const std::int16_t* halves) {
        return raised(halves[1]) + std::uint16_t(halves[0]);
    }
    // The value of a lane in the slot of a panel.
    static std::int32_t parts_at(const Panel& panel, const std::int16_t* slot, Size lane) {
        const Size unit = lane / unit_lanes, l = lane % unit_lanes;
        const Words words{panel, unit / 2 * 2};
        const std::int16_t* at = slot + words.unit * unit_lanes + l * words.halves();
        return unit == words.unit ? raised(*at) : word(at);
    }

    bool out_of_date(const Centroids<R>& centroids, const Words& words) const {
        const Size past = std::min(k_, words.first() + words.halves() * unit_lanes);
        for (Size t = words.first(); t < past; ++t)
            if (packed_[std::size_t(t)] != centroids.moves(centre_[std::size_t(t)])) return true;
        return false;
    }

    void pack(const Centroids<R>& centroids, const Words& words, bool clear) {
        const Size halves = words.halves(), width = words.panel.width();
        std::int16_t* const slots =
            values_.data() + words.panel.first * d_ + words.unit * unit_lanes;
        for (Size f = 0; clear && f < d_; ++f)
            std::fill_n(slots + f * width, halves * unit_lanes, std::int16_t(0));
        const auto half_at = [&](Size f, Size l) { return slots + f * width + l * halves; };
        for (Size l = 0; l < unit_lanes; ++l)
            in_steps(centroids, words.first() + l, [&](Size f, double steps) {
                std::int16_t* const half = half_at(f, l);
                *half = std::int16_t(std::lrint(steps));
                if (words.paired()) half[1] = *half < 0 ? -1 : 0;  // as near to 0 as can be
            });
        for (Size l = 0; words.paired() && l < unit_lanes; ++l)
            in_steps(centroids, words.first() + unit_lanes + l, [&](Size f, double steps) {
                std::int16_t* const half = half_at(f, l);
                const std::int64_t parts = std::lrint(steps * 0x1p16);
                half[1] = std::int16_t((parts - std::uint16_t(half[0]) + 0x8000) >> 16);
            });
    }

    // Calls visit(feature, steps) for each value of the centre at a place, if there is one; from
    // now on the layout has it as it is.
    template <class Visit>
    void in_steps(const Centroids<R>& centroids, Size place, Visit visit) {
        if (place >= k_) return;
        const Size j = centre_[std::size_t(place)];
        packed_[std::size_t(place)] = centroids.moves(j);
        const auto each = [&](auto see) {
            centroids.for_values(j, [&](Size f, R c) {
                see(f, double(Layout<R>::packed(centroids.frame(), f, c)));
            });
        };
        double largest = 0;
        each([&](Size, double p) { largest = std::max(largest, std::abs(p)); });
        const float step = std::max(0x1p-100f, float(largest / most));
        part_[std::size_t(place)] = step * 0x1p-16f;
        const double per = 1.0 / double(step);
        each([&](Size f, double p) { visit(f, std::clamp(p * per, -most, most)); });
    }

    Size k_ = 0, d_ = 0;
    Size version_ = -1;
    std::vector<Size> centre_;  // at each place
    std::vector<Size> packed_;  // moves of the centre that the layout has
    std::vector<float> start_, part_;
    std::vector<std::int16_t> values_;
    CoarsePanels view_{};
};

}  // namespace exactmeans
