// Centres in 8 bits, for a first look at CSR rows.
//
// A pass over CSR rows waits for the centres' values, which lie all over the caches. Here they take
// a quarter or an eighth of the room, and still decide nearly every row: each feature has a step of
// its own, of which its values are whole numbers, so that a row's score is off by half a step for
// each entry, times what that is, and a little more for rounding. What remains open is decided by
// 16 bits of the few centres that may be the nearest, and at last by the centres as they are.
// docs/numerics.md ("A first look") derives the bounds.
//
// Two centres share a word of 16 bits (filter/code_pair.hpp), and both are counted in parts, 2^8 to
// a step. All parts of a value stand centre by centre, frequent features side by side: closer looks
// are few, and find most of what they need in the caches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout_settings.hpp"
#include "exactmeans/filter/code_pair.hpp"
#include "exactmeans/kernels/panels.hpp"
#include "exactmeans/kernels/quantized.hpp"

namespace exactmeans {

template <class R>
class QuantizedCentres {
public:
    // Of all centres.
    QuantizedCentres(const Centres<R>& centroids, std::shared_ptr<const LayoutSettings> settings,
                     bool)
        : settings_(std::move(settings)) {
        size_for(centroids.k(), centroids.d());
        arrange(in_order(k_));
    }
    // Of none yet.
    QuantizedCentres() = default;

    Size k() const { return k_; }
    // Rows that should be looked at in one call, of so many, all or a few of them. A panel comes
    // into the cache once per call, so calls are long; for the only panel there is, rows may as
    // well stay in the cache, if they are looked at.
    Size batch(Size rows, bool few = false) const {
        return view_.count() > 1 ? rows : Size(few ? 1024 : 128);
    }

    // Is there room for them, and not a better layout?
    static bool fits(const Centres<R>& centroids, const LayoutSettings& settings) {
        if (settings.lists_rare_features()) return false;
        Size nonzeros = 0;
        for (Size j = 0; j < centroids.k() && centroids.sparse(); ++j)
            nonzeros += centroids.sparse_master(j).size();
        if (!centroids.sparse()) nonzeros = centroids.k() * centroids.d();
        // Its first bytes should fit the caches; all of them take room.
        const double held = double(bytes(centroids.k())) * double(centroids.d());
        const double values = double(padded<R>(centroids.k())) * double(centroids.d());
        return held <= std::min(settings.room, 0x1p29) &&
               settings.all_have_columns(values, nonzeros, 1);
    }
    // Bytes per feature of so many centres.
    static Size bytes(Size k) { return QuantizedPanels::padded(k) + 2 * k; }

    Size version() const { return version_; }
    QuantizedPanels panels() const { return {values_.data(), score_offset_.data(), k_, d_}; }

    // Deals the centres out to groups in this order; they must be brought up to date then.
    void arrange(const std::vector<Size>& order) {
        version_ = -1;
        centre_.assign(score_offset_.size(), none);
        place_.assign(std::size_t(1 + *std::max_element(order.begin(), order.end())), none);
        row_.assign(place_.size(), none);
        std::fill(score_offset_.begin(), score_offset_.end(),
                  std::numeric_limits<float>::infinity());
        Size at = 0;
        for (Size g = 0; g < view_.groups(); ++g) {
            const Size end = k_ * view_.group(g + 1) / view_.places();
            for (Size place = view_.group(g); at < end; ++at, ++place) {
                centre_[std::size_t(place)] = order[std::size_t(at)];
                place_[std::size_t(order[std::size_t(at)])] = place;
                row_[std::size_t(order[std::size_t(at)])] = at;
            }
        }
    }
    // The centre at a place, if there is one, and its group.
    static constexpr Size none = -1;
    Size centre(Size place) const { return centre_[std::size_t(place)]; }
    Size group(Size place) const { return group_[std::size_t(place)]; }
    Size place(Size centre) const { return place_[std::size_t(centre)]; }

    // Brings the layout of all centres up to date.
    void update(const Centres<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        version_ = -1;
        find_steps(centroids, threads);
        pack(centroids, threads);
        version_ = centroids.version();
    }
    // The same where only some centres have moved, from `then`; all others are up to date.
    void update(const Centres<R>& centroids, const std::vector<Size>& moved,
                const std::vector<SparseVector<R>>& then, const Threads& threads) {
        const bool some = version_ >= 0 && centroids.sparse() && 4 * Size(moved.size()) <= k_;
        version_ = -1;
        if (!some || !make_room(centroids, moved)) return update(centroids, threads);
        take_starts(centroids);
        std::vector<char> stale(centre_.size());
        for (const Size j : moved) stale[std::size_t(place(j))] = 1;
        // Places of a unit share lines of the cache: one thread has all of them.
        threads.run(view_.places() / QuantizedPanels::unit, [&](Size unit, int) {
            const Size first = unit * QuantizedPanels::unit;
            for (Size low = first; low < first + half; ++low)
                patch(centroids, then, low, stale[std::size_t(low)],
                      stale[std::size_t(low + half)]);
        });
        version_ = centroids.version();
    }

    // Holds these centres from now on, in this order. Steps are those of another layout, so that
    // rows which are ready for that one are for this one.
    void hold(const Centres<R>& centroids, const std::vector<Size>& centres,
              const QuantizedCentres& all, const Threads& threads) {
        size_for(Size(centres.size()), centroids.d());
        if (centres.empty()) return;
        arrange(centres);
        step_ = all.step_;
        zero_ = all.zero_;
        settings_ = all.settings_;
        pack(centroids, threads);
    }

    // By feature: the step that its values are counted in.
    const std::vector<float>& steps() const { return step_; }
    // What stands for a value of 0, in steps.
    double zero() const { return double(zero_); }
    double largest_score_offset() const { return largest_score_offset_; }
    double largest_step() const { return largest_step_; }
    // How much more than it seems a score with the centre at a place may start with.
    double score_offset_slack(Size place) const {
        return double(score_offset_[std::size_t(place)]) * 0x1p-18;
    }

    // Where closer looks find a feature.
    Size packed_column(Size f) const {
        const std::vector<std::uint32_t>& columns = settings_->packed_columns;
        return columns.empty() ? f : Size(columns[std::size_t(f)]);
    }
    // The score of a row and the centre at a place, by all bits; `sized` is its entries times
    // steps, and `slots` has their slots.
    double closer(const double* sized, const std::uint32_t* packed_columns, Size m,
                  Size place) const {
        const std::int16_t* const own = parts_of(centre(place));
        const int zero = zero_parts();
        double sum[4] = {};  // that need not wait for each other
        const auto add = [&](Size t, int to) {
            sum[to] += sized[t] * double(int(own[packed_columns[t]]) - zero);
        };
        Size t = 0;
        for (; t + 4 <= m; t += 4)
            for (int to = 0; to < 4; ++to) add(t + to, to);
        for (; t < m; ++t) add(t, 0);
        return ((sum[0] + sum[1]) + (sum[2] + sum[3])) * 0x1p-8 +
               double(score_offset_[std::size_t(place)]);
    }
    // What that will read of a slot.
    void prefetch(Size place, Size packed_column) const {
        __builtin_prefetch(parts_of(centre(place)) + packed_column);
    }

private:
    static constexpr int half = int(QuantizedPanels::unit / 2);
    static constexpr int most = 127;
    // Values may grow a little before steps must.
    static constexpr float spare = 1 + 0x1p-4f;
    int zero_parts() const { return zero_ * 0x100; }

    // Where the values of a place stand: feature f's word at offset + f width.
    struct At {
        Size offset, width;
        bool whole;  // or the low byte only
        At(const QuantizedCentres& own, Size place) {
            const Size d = own.d_, unit = QuantizedPanels::unit;
            Size p = 0;
            while (own.view_.panel(p).first + own.view_.panel(p).width() <= place) ++p;
            const QuantizedPanels::Panel panel = own.view_.panel(p);
            const Size lane = (place - panel.first) % unit;
            width = panel.width();
            whole = lane >= half;
            offset = panel.first * d + (place - panel.first) / unit * unit + 2 * (lane % half);
        }
    };

    // All parts of a centre's values, by slot.
    std::int16_t* parts_of(Size j) { return parts_.data() + row_[std::size_t(j)] * d_; }
    const std::int16_t* parts_of(Size j) const { return parts_.data() + row_[std::size_t(j)] * d_; }
    void clear_parts(Size j) { std::fill_n(parts_of(j), d_, std::int16_t(zero_parts())); }

    void size_for(Size k, Size d) {
        k_ = k;
        d_ = d;
        view_ = {nullptr, nullptr, k, d};
        const std::size_t places = std::size_t(view_.places());
        score_offset_.resize(places);
        values_.resize(places * std::size_t(d));
        parts_.resize(std::size_t(k * d));
        where_.clear();
        for (Size place = 0; place < Size(places); ++place) where_.emplace_back(*this, place);
        group_.resize(places);
        for (Size g = 0; k > 0 && g < view_.groups(); ++g)
            std::fill(group_.begin() + view_.group(g), group_.begin() + view_.group(g + 1), g);
    }
    static std::vector<Size> in_order(Size k) {
        std::vector<Size> order(static_cast<std::size_t>(k));
        std::iota(order.begin(), order.end(), Size(0));
        return order;
    }

    // Where a range of features begins in each centre's list, if it has one.
    std::vector<Size> begins(const Centres<R>& centroids, Size feature) const {
        std::vector<Size> at(place_.size(), feature);
        for (std::size_t j = 0; j < at.size() && centroids.sparse(); ++j) {
            if (place_[j] == none) continue;
            const auto& list = centroids.sparse_master(Size(j)).feature;
            at[j] =
                std::lower_bound(list.begin(), list.end(), std::uint32_t(feature)) - list.begin();
        }
        return at;
    }
    // Calls visit(feature, packed value) for centre j, from `at` on up to a feature, where it
    // leaves `at`.
    template <class Visit>
    void walk(const Centres<R>& centroids, Size j, Size& at, Size end, Visit visit) const {
        const Frame<R>& frame = centroids.frame();
        if (!centroids.sparse()) {
            const R* const own = centroids.master(j);
            for (; at < end; ++at) visit(at, float(frame.packed(at, own[at])));
            return;
        }
        const SparseVector<R>& own = centroids.sparse_master(j);
        const Size size = own.size();
        Size t = at;
        if (frame.packs_as_is())
            for (; t < size && Size(own.feature[std::size_t(t)]) < end; ++t)
                visit(Size(own.feature[std::size_t(t)]), -float(own.value[std::size_t(t)]));
        else
            for (; t < size && Size(own.feature[std::size_t(t)]) < end; ++t)
                visit(Size(own.feature[std::size_t(t)]),
                      float(frame.packed(Size(own.feature[std::size_t(t)]),
                                         own.value[std::size_t(t)])));
        at = t;
    }
    // Ranges of features for threads, cut anew by `fn`.
    template <class Fn>
    void for_features(const Threads& threads, Fn fn) const {
        threads.ranges(d_, std::max<Size>(256, d_ / (4 * threads.n_jobs) + 1),
                       [&](Size begin, Size end, int) { fn(begin, end); });
    }

    void find_steps(const Centres<R>& centroids, const Threads& threads) {
        step_.resize(std::size_t(d_));
        std::atomic<bool> raises = false;  // is any packed value above 0?
        for_features(threads, [&](Size begin, Size end) {
            std::vector<Size> at = begins(centroids, begin);
            std::fill(step_.begin() + begin, step_.begin() + end, 0.0f);
            float highest = 0;
            for (Size j = 0; j < k_; ++j)
                walk(centroids, j, at[std::size_t(j)], end, [&](Size f, float p) {
                    float& largest = step_[std::size_t(f)];
                    largest = std::max(largest, std::abs(p));
                    highest = std::max(highest, p);
                });
            if (highest > 0) raises = true;
        });
        // Centres that are nowhere negative have both signs of whole numbers to themselves.
        zero_ = raises ? 0 : most;
        const float per = spare / float(most + zero_);
        for (float& step : step_) step = std::max(0x1p-100f, step * per);
        largest_step_ = double(*std::max_element(step_.begin(), step_.end()));
    }

    // Makes steps larger where new values need it; false if that does not do.
    bool make_room(const Centres<R>& centroids, const std::vector<Size>& moved) {
        const float range = float(most + zero_) * (1 - 0x1p-20f);
        larger_.assign(std::size_t(d_), 0);
        bool raises = false;
        for (const Size j : moved) {
            Size at = 0;
            walk(centroids, j, at, d_, [&](Size f, float p) {
                float& step = step_[std::size_t(f)];
                raises = raises || p > 0;
                if (std::abs(p) <= range * step) return;
                larger_[std::size_t(f)] = 1;
                step = std::abs(p) * (spare / range);
                largest_step_ = std::max(largest_step_, double(step));
            });
        }
        const Size grown = Size(std::count(larger_.begin(), larger_.end(), char(1)));
        any_larger_ = grown > 0;
        return !(raises && zero_) && 8 * grown <= d_;
    }

    // Brings two centres that share words up to date, of which the given ones moved.
    void patch(const Centres<R>& centroids, const std::vector<SparseVector<R>>& then, Size low,
               bool low_moved, bool high_moved) {
        const auto lists = [&](Size place, auto store) {
            for (const std::uint32_t f : then[std::size_t(centre(place))].feature) store(Size(f));
        };
        const At& own = where_[std::size_t(low)];
        std::int8_t* const values = values_.data() + own.offset;
        const int zero = zero_parts();
        if (low_moved) {
            lists(low, [&](Size f) { CodePair::put_low(values + f * own.width, zero, zero); });
            clear_parts(centre(low));
        }
        if (high_moved) {
            lists(low + half, [&](Size f) { CodePair::put_high(values + f * own.width, zero); });
            clear_parts(centre(low + half));
        }
        put(centroids, low, low_moved);
        put(centroids, low + half, low_moved || high_moved);
    }
    // All values of the centre at a place, or those in steps that have become larger.
    void put(const Centres<R>& centroids, Size place, bool all) {
        if (centre(place) == none || !(all || any_larger_)) return;
        Size at = 0;
        const auto per = [&](Size f) { return 0x100 / step_[std::size_t(f)]; };
        if (all)
            put(centroids, centre(place), at, d_, per, [](Size) { return true; });
        else
            put(centroids, centre(place), at, d_, per,
                [&](Size f) { return larger_[std::size_t(f)] != 0; });
    }

    void take_starts(const Centres<R>& centroids) {
        largest_score_offset_ = 0;
        for (std::size_t at = 0; at < centre_.size(); ++at) {
            if (centre_[at] == none) continue;
            const double score_offset = double(centroids.score_offset()[centre_[at]]);
            score_offset_[at] = float(score_offset * (1 - 0x1p-20));
            largest_score_offset_ = std::max(largest_score_offset_, score_offset);
        }
    }

    void pack(const Centres<R>& centroids, const Threads& threads) {
        take_starts(centroids);
        threads.ranges(k_, std::max<Size>(1, 0x10000 / std::max<Size>(1, d_)),
                       [&](Size begin, Size end, int) {
                           std::fill(parts_.begin() + begin * d_, parts_.begin() + end * d_,
                                     std::int16_t(zero_parts()));
                       });
        const Size some = std::max<Size>(16, 0x20000 / view_.places());
        for_features(threads, [&](Size begin, Size end) {
            std::vector<Size> at = begins(centroids, begin);
            std::vector<float> per(static_cast<std::size_t>(some));
            for (Size first = begin; first < end; first += some) {
                const Size past = std::min(end, first + some);
                for (Size f = first; f < past; ++f)
                    per[std::size_t(f - first)] = 0x100 / step_[std::size_t(f)];
                clear(first, past);
                // Low bytes first: the others are chosen with them in mind.
                for (const bool whole : {false, true})
                    for (Size j = 0; j < Size(place_.size()); ++j)
                        if (place(j) != none && where_[std::size_t(place(j))].whole == whole)
                            put(
                                centroids, j, at[std::size_t(j)], past,
                                [&](Size f) { return per[std::size_t(f - first)]; },
                                [](Size) { return true; });
            }
        });
    }
    // The values of centre j from `at` on up to a feature, where is_due(f). per(f) is how many
    // parts of a step are in 1.
    template <class Per, class Due>
    void put(const Centres<R>& centroids, Size j, Size& at, Size past, Per per, Due is_due) {
        const At& own = where_[std::size_t(place(j))];
        std::int8_t* const values = values_.data() + own.offset;
        std::int16_t* const parts = parts_of(j);
        const int zero = zero_parts();
        const auto each = [&](auto store) {
            walk(centroids, j, at, past, [&](Size f, float p) {
                if (!is_due(f)) return;
                const int value = int(std::lrint(p * per(f))) + zero;
                parts[packed_column(f)] = std::int16_t(value);
                store(values + f * own.width, value);
            });
        };
        if (own.whole)
            each([](auto* word, int v) { CodePair::put_high(word, v); });
        else
            each([&](auto* word, int v) { CodePair::put_low(word, v, zero); });
    }

    void clear(Size first, Size past) {
        std::int8_t word[2];
        CodePair::put_low(word, zero_parts(), zero_parts());
        std::int16_t both;
        std::memcpy(&both, word, 2);
        for (Size p = 0; p < view_.count(); ++p) {
            const QuantizedPanels::Panel panel = view_.panel(p);
            void* const at = values_.data() + panel.first * d_ + first * panel.width();
            std::fill_n(static_cast<std::int16_t*>(at), (past - first) * panel.width() / 2, both);
        }
    }

    Size k_ = 0, d_ = 0;
    Size version_ = -1;
    std::vector<Size> centre_, group_;  // at and of each place
    std::vector<Size> place_, row_;     // of each centre: in panels, and among parts
    std::vector<At> where_;
    std::vector<float> score_offset_, step_;
    std::vector<char> larger_;  // steps of features, since centres were packed or patched before
    bool any_larger_ = false;
    int zero_ = 0;
    double largest_score_offset_ = 0, largest_step_ = 0;
    AlignedVector<std::int8_t> values_;
    std::vector<std::int16_t> parts_;
    std::shared_ptr<const LayoutSettings> settings_;
    QuantizedPanels view_{};  // the shape of panels()
};

}  // namespace exactmeans
