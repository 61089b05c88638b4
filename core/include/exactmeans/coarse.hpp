// Centres in 8 bits, for a first look at CSR rows.
//
// A pass over CSR rows waits for the centres' values, which lie all over the caches. Here they take
// a quarter or an eighth of the room, and still decide nearly every row: each feature has a step of
// its own, of which its values are whole numbers, so that a row's score is off by half a step for
// each entry, times what that is, and a little more for rounding. What remains open is decided by
// another 8 bits of the few centres that may be the nearest, and at last by the centres as they
// are. docs/numerics.md ("A first look") derives the bounds.
//
// Two centres share a word of 16 bits (coarse_word.hpp), and both are counted in parts, 2^8 to a
// step.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "exactmeans/centroids.hpp"
#include "exactmeans/coarse_word.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/lines.hpp"

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

    Size k() const { return k_; }
    // Rows that should be looked at in one call, of so many. A panel comes into the cache once per
    // call, so calls are long; for the only panel there is, rows may as well stay in the cache.
    Size batch(Size rows) const { return view_.count() == 1 ? Size(128) : rows; }

    // Is there room for them, and not a better layout?
    static bool fits(const Centroids<R>& centroids) {
        if (centroids.layout().lists_rare_features()) return false;
        Size nonzeros = 0;
        for (Size j = 0; j < centroids.k() && centroids.sparse(); ++j)
            nonzeros += centroids.sparse_master(j).size();
        if (!centroids.sparse()) nonzeros = centroids.k() * centroids.d();
        // Its first bytes should fit the caches; all of them take room.
        const double held = double(bytes(centroids.k())) * double(centroids.d());
        return held <= std::min(centroids.layout().room(), 0x1p29) &&
               centroids.layout().all_have_slots(centroids.d(), nonzeros, 1);
    }
    // Bytes per feature of so many centres.
    static Size bytes(Size k) { return 2 * CoarsePanels::padded(k); }

    static const Coarse& of(const Centroids<R>& centroids, const Threads& threads) {
        return centroids.template laid_out<Coarse>(false, threads);
    }
    bool dense() const { return false; }
    const CoarsePanels& panels() const { return view_; }

    // Brings the layout of all centres up to date.
    void update(const Centroids<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        version_ = centroids.version();
        find_steps(centroids, threads);
        pack(centroids, threads);
    }
    // The same where only some centres have moved, from `then`; all others are up to date.
    void update(const Centroids<R>& centroids, const std::vector<Size>& moved,
                const std::vector<SparseVector<R>>& then, const Threads& threads) {
        if (version_ < 0 || !centroids.sparse() || 4 * Size(moved.size()) > k_ ||
            !make_room(centroids, moved, threads))
            return update(centroids, threads);
        version_ = centroids.version();
        take_starts(centroids);
        std::vector<char> stale(static_cast<std::size_t>(CoarsePanels::padded(k_)));
        for (const Size j : moved) stale[std::size_t(j)] = 1;
        // Centres of a unit share lines of the cache: one thread has all of them.
        threads.run(CoarsePanels::padded(k_) / CoarsePanels::unit, [&](Size unit, int) {
            const Size first = unit * CoarsePanels::unit;
            for (Size low = first; low < std::min(k_, first + half); ++low)
                patch(centroids, then, low, stale[std::size_t(low)],
                      stale[std::size_t(low + half)]);
        });
    }
    // Holds these centres from now on, in this order. Steps are those of another layout, so that
    // rows which are ready for that one are for this one.
    void hold(const Centroids<R>& centroids, std::vector<Size> centres, const Coarse& all,
              const Threads& threads) {
        hold(centroids, std::move(centres));
        step_ = all.step_;
        zero_ = all.zero_;
        pack(centroids, threads);
    }

    // By feature: the step that its values are counted in.
    const std::vector<float>& steps() const { return step_; }
    // What stands for a value of 0, in steps.
    double zero() const { return double(zero_); }
    double largest_start() const { return largest_start_; }
    double largest_step() const { return largest_step_; }
    // How much more than it seems a score with the centre at a place may start with.
    double start_slack(Size place) const { return double(start_[std::size_t(place)]) * 0x1p-18; }

    // The score of a row and the centre at a place, by all bits; `sized` is its entries times
    // steps.
    template <class Row>
    double closer(const Row& row, const double* sized, Size place) const {
        return where_[std::size_t(place)].whole ? closer<true>(row, sized, place)
                                                : closer<false>(row, sized, place);
    }
    // What that will read of a feature.
    void fetch(Size place, Size f) const {
        const At& at = where_[std::size_t(place)];
        __builtin_prefetch(fine_.data() + at.offset + f * at.width);
    }

private:
    static constexpr int half = int(CoarsePanels::unit / 2);
    static constexpr int most = 127;
    int zero_parts() const { return zero_ * 0x100; }

    // Where the values of a place stand: feature f's word at offset + f width.
    struct At {
        Size offset, width;
        bool whole;  // or the low byte only
        At(const Coarse& own, Size place) {
            const Size d = own.d_, unit = CoarsePanels::unit;
            Size p = 0;
            while (own.view_.panel(p).first + own.view_.panel(p).width() <= place) ++p;
            const CoarsePanels::Panel panel = own.view_.panel(p);
            const Size lane = (place - panel.first) % unit;
            width = panel.width();
            whole = lane >= half;
            offset = panel.first * d + (place - panel.first) / unit * unit + 2 * (lane % half);
        }
    };

    template <bool Whole, class Row>
    double closer(const Row& row, const double* sized, Size place) const {
        const At& at = where_[std::size_t(place)];
        const std::int8_t *const values = values_.data() + at.offset, *const fine =
                                                                          fine_.data() + at.offset;
        const int zero = zero_parts();
        double sum[4] = {};  // that need not wait for each other
        const auto add = [&](Size t, int to) {
            const Size word = Size(row.index[t]) * at.width;
            sum[to] +=
                sized[t] * double(CoarseWord::value(values + word, fine + word, Whole) - zero);
        };
        Size t = 0;
        for (; t + 4 <= row.nonzeros; t += 4)
            for (int to = 0; to < 4; ++to) add(t + to, to);
        for (; t < row.nonzeros; ++t) add(t, 0);
        return ((sum[0] + sum[1]) + (sum[2] + sum[3])) * 0x1p-8 +
               double(start_[std::size_t(place)]);
    }

    void hold(const Centroids<R>& centroids, std::vector<Size> centres) {
        centre_ = std::move(centres);
        k_ = Size(centre_.size());
        d_ = centroids.d();
        const std::size_t lanes = std::size_t(CoarsePanels::padded(k_));
        start_.assign(lanes, std::numeric_limits<float>::infinity());
        values_.resize(lanes * std::size_t(d_));
        fine_.resize(values_.size());
        view_ = {values_.data(), start_.data(), k_, d_};
        where_.clear();
        for (Size place = 0; place < k_; ++place) where_.emplace_back(*this, place);
    }

    // Where a range of features begins in each centre's list, if it has one.
    std::vector<Size> begins(const Centroids<R>& centroids, Size feature) const {
        std::vector<Size> at(static_cast<std::size_t>(k_), feature);
        for (std::size_t t = 0; t < at.size() && centroids.sparse(); ++t) {
            const auto& list = centroids.sparse_master(centre_[t]).feature;
            at[t] =
                std::lower_bound(list.begin(), list.end(), std::uint32_t(feature)) - list.begin();
        }
        return at;
    }
    // Calls visit(feature, packed value) for the centre at a place, from `at` on up to a feature,
    // where it leaves `at`.
    template <class Visit>
    void walk(const Centroids<R>& centroids, Size place, Size& at, Size end, Visit visit) const {
        const Frame<R>& frame = centroids.frame();
        const Size j = centre_[std::size_t(place)];
        if (!centroids.sparse()) {
            const R* const own = centroids.master(j);
            for (; at < end; ++at) visit(at, float(Layout<R>::packed(frame, at, own[at])));
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
                      float(Layout<R>::packed(frame, Size(own.feature[std::size_t(t)]),
                                              own.value[std::size_t(t)])));
        at = t;
    }
    // Ranges of features for threads, cut anew by `fn`.
    template <class Fn>
    void for_features(const Threads& threads, Fn fn) const {
        threads.ranges(d_, std::max<Size>(256, d_ / (4 * threads.n_jobs) + 1),
                       [&](Size begin, Size end, int) { fn(begin, end); });
    }

    void find_steps(const Centroids<R>& centroids, const Threads& threads) {
        step_.resize(std::size_t(d_));
        std::atomic<bool> raises = false;  // is any packed value above 0?
        for_features(threads, [&](Size begin, Size end) {
            std::vector<Size> at = begins(centroids, begin);
            std::fill(step_.begin() + begin, step_.begin() + end, 0.0f);
            float highest = 0;
            for (Size place = 0; place < k_; ++place)
                walk(centroids, place, at[std::size_t(place)], end, [&](Size f, float p) {
                    float& largest = step_[std::size_t(f)];
                    largest = std::max(largest, std::abs(p));
                    highest = std::max(highest, p);
                });
            if (highest > 0) raises = true;
        });
        // Centres that are nowhere negative have both signs of whole numbers to themselves.
        zero_ = raises ? 0 : most;
        // Values may grow a little before steps must: that costs more than a sixteenth of the
        // error.
        const float per = (1 + 0x1p-4f) / float(most + zero_);
        for (float& step : step_) step = std::max(0x1p-100f, step * per);
        largest_step_ = double(*std::max_element(step_.begin(), step_.end()));
    }

    // Makes steps larger where new values need it; false if that does not do. Each becomes twice as
    // large at least, so that what values lose by it never adds up to much.
    bool make_room(const Centroids<R>& centroids, const std::vector<Size>& moved,
                   const Threads& threads) {
        const float range = float(most + zero_) * (1 - 0x1p-20f);
        std::vector<std::uint32_t> features;
        std::vector<float> before;
        bool raises = false;
        for (const Size j : moved) {
            Size at = 0;
            walk(centroids, j, at, d_, [&](Size f, float p) {
                float& step = step_[std::size_t(f)];
                raises = raises || p > 0;
                if (std::abs(p) <= range * step) return;
                features.push_back(std::uint32_t(f));
                before.push_back(step);
                step = std::max(2 * step, std::abs(p) / range * (1 + 0x1p-5f));
                largest_step_ = std::max(largest_step_, double(step));
            });
        }
        if ((raises && zero_) || 8 * Size(features.size()) > d_) return false;
        // A feature may be listed again and again.
        std::vector<std::size_t> order(features.size());
        std::iota(order.begin(), order.end(), std::size_t(0));
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return features[a] < features[b]; });
        threads.ranges(Size(order.size()), 64, [&](Size begin, Size end, int) {
            for (Size o = begin; o < end; ++o) {
                const std::size_t own = order[std::size_t(o)];
                if (o > 0 && features[order[std::size_t(o - 1)]] == features[own]) continue;
                count_anew(Size(features[own]), before[own] / step_[features[own]]);
            }
        });
        return true;
    }
    // The values of a feature in larger steps, of which the old one is this share.
    void count_anew(Size f, float share) {
        const int zero = zero_parts();
        for (Size p = 0; p < view_.count(); ++p) {
            const CoarsePanels::Panel panel = view_.panel(p);
            const Size from = panel.first * d_ + f * panel.width();
            for (Size at = from; at < from + panel.width(); at += 2) {
                std::int8_t *const word = values_.data() + at, *const fine = fine_.data() + at;
                const auto now = [&](bool whole) {
                    const int then = CoarseWord::value(word, fine, whole) - zero;
                    return int(std::lrint(float(then) * share)) + zero;
                };
                const int low = now(false), high = now(true);
                CoarseWord::put_low(word, fine, low, zero);
                CoarseWord::put_high(word, fine, high);
            }
        }
    }

    // Brings two centres that share words up to date, of which the given ones moved.
    void patch(const Centroids<R>& centroids, const std::vector<SparseVector<R>>& then, Size low,
               bool low_moved, bool high_moved) {
        const auto lists = [&](Size place, auto store) {
            for (const std::uint32_t f : then[std::size_t(place)].feature) store(Size(f));
        };
        const At& own = where_[std::size_t(low)];
        std::int8_t *const values = values_.data() + own.offset, *const fine =
                                                                     fine_.data() + own.offset;
        const int zero = zero_parts();
        if (low_moved) {
            lists(low, [&](Size f) {
                CoarseWord::put_low(values + f * own.width, fine + f * own.width, zero, zero);
            });
            put(centroids, low);
        }
        if (high_moved)
            lists(low + half, [&](Size f) {
                CoarseWord::put_high(values + f * own.width, fine + f * own.width, zero);
            });
        if ((low_moved || high_moved) && low + half < k_) put(centroids, low + half);
    }
    // All values of a place.
    void put(const Centroids<R>& centroids, Size place) {
        Size at = 0;
        put(centroids, place, at, d_, [&](Size f) { return 0x100 / step_[std::size_t(f)]; });
    }

    void take_starts(const Centroids<R>& centroids) {
        largest_start_ = 0;
        for (std::size_t t = 0; t < centre_.size(); ++t) {
            const double start = double(centroids.start()[centre_[t]]);
            start_[t] = float(start * (1 - 0x1p-20));
            largest_start_ = std::max(largest_start_, start);
        }
    }

    void pack(const Centroids<R>& centroids, const Threads& threads) {
        take_starts(centroids);
        if (k_ == 0) return;
        const Size lanes = CoarsePanels::padded(k_), some = std::max<Size>(16, 0x20000 / lanes);
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
                    for (Size place = 0; place < k_; ++place)
                        if (where_[std::size_t(place)].whole == whole)
                            put(centroids, place, at[std::size_t(place)], past,
                                [&](Size f) { return per[std::size_t(f - first)]; });
            }
        });
    }
    // The values of a place from `at` on up to a feature. per(f) is how many parts of a step are
    // in 1.
    template <class Per>
    void put(const Centroids<R>& centroids, Size place, Size& at, Size past, Per per) {
        const At& own = where_[std::size_t(place)];
        std::int8_t *const values = values_.data() + own.offset, *const fine =
                                                                     fine_.data() + own.offset;
        const int zero = zero_parts();
        const auto each = [&](auto store) {
            walk(centroids, place, at, past, [&](Size f, float p) {
                store(values + f * own.width, fine + f * own.width,
                      int(std::lrint(p * per(f))) + zero);
            });
        };
        if (own.whole)
            each([](auto* word, auto* left, int v) { CoarseWord::put_high(word, left, v); });
        else
            each([&](auto* word, auto* left, int v) { CoarseWord::put_low(word, left, v, zero); });
    }

    void clear(Size first, Size past) {
        std::int8_t word[2], fine[2];
        CoarseWord::put_low(word, fine, zero_parts(), zero_parts());
        for (Size p = 0; p < view_.count(); ++p) {
            const CoarsePanels::Panel panel = view_.panel(p);
            const Size from = panel.first * d_ + first * panel.width(),
                       to = panel.first * d_ + past * panel.width();
            fill(values_, from, to, word);
            fill(fine_, from, to, fine);
        }
    }
    static void fill(Lines<std::int8_t>& values, Size from, Size to, const std::int8_t* word) {
        std::int16_t both;
        std::memcpy(&both, word, 2);
        void* const at = values.data() + from;
        std::fill_n(static_cast<std::int16_t*>(at), (to - from) / 2, both);
    }

    Size k_ = 0, d_ = 0;
    Size version_ = -1;
    std::vector<Size> centre_;  // at each place
    std::vector<At> where_;
    std::vector<float> start_, step_;
    int zero_ = 0;
    double largest_start_ = 0, largest_step_ = 0;
    Lines<std::int8_t> values_, fine_;
    CoarsePanels view_{};
};

}  // namespace exactmeans
