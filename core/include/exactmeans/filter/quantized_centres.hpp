// Centres as 8-bit codes for the 8-bit filter of CSR rows, and as 16-bit codes for its refinement.
//
// A pass over CSR rows waits for values of centres that are scattered over the caches. 8-bit codes
// take a quarter or an eighth of the memory of float32 or float64 values and still decide nearly
// every row. Each feature has a scale (filter/feature_scales.hpp), and a code counts multiples of
// it. So each entry of a row adds at most half a scale, times the entry, to the error of a score,
// plus rounding; docs/proofs/sparse_filter.md derives the error.
//
// 8-bit codes are stored in panels (kernels/quantized.hpp), two centres to a word
// (filter/code_pair.hpp). 16-bit codes are stored centre by centre, with frequent features side by
// side: refinements are few, and most of the codes that they read stay in the caches. The place of
// a centre is its position in the panels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout_settings.hpp"
#include "exactmeans/filter/code_pair.hpp"
#include "exactmeans/filter/feature_scales.hpp"
#include "exactmeans/kernels/panels.hpp"
#include "exactmeans/kernels/quantized.hpp"

namespace exactmeans {

template <class R>
class QuantizedCentres {
public:
    // No centres.
    QuantizedCentres() = default;
    // Allocates the codes of all centres; update() sets them.
    QuantizedCentres(const Centres<R>& centroids, std::shared_ptr<const LayoutSettings> settings,
                     bool)
        : settings_(std::move(settings)) {
        resize(centroids.k(), centroids.d());
        std::vector<Size> order(static_cast<std::size_t>(k_));
        std::iota(order.begin(), order.end(), Size(0));
        arrange(order);
    }

    // Do the codes of these centres fit in the memory, and is a column for every feature the better
    // layout?
    static bool fits(const Centres<R>& centroids, const LayoutSettings& settings) {
        if (settings.lists_rare_features()) return false;
        Size nonzeros = 0;
        for (Size j = 0; j < centroids.k() && centroids.sparse(); ++j)
            nonzeros += centroids.sparse_master(j).size();
        if (!centroids.sparse()) nonzeros = centroids.k() * centroids.d();
        // The memory is that of 8-bit and 16-bit codes; only 8-bit codes must fit the caches.
        const double bytes = double(bytes_per_feature(centroids.k())) * double(centroids.d()),
                     values = double(padded<R>(centroids.k())) * double(centroids.d());
        return bytes <= std::min(settings.scratch_limit, cost::filter_bytes) &&
               settings.all_have_columns(values, nonzeros, 1);
    }
    static Size bytes_per_feature(Size k) { return QuantizedPanels::padded(k) + 2 * k; }
    // The most centres, up to k, whose codes take at most this many bytes per feature; -1 if
    // `bytes` is negative.
    static Size most_within(double bytes, Size k) {
        if (bytes < 0) return -1;
        while (k > 0 && double(bytes_per_feature(k)) > bytes) --k;
        return k;
    }

    Size k() const { return k_; }
    // The version of the centres that the codes are made from; -1 if an update did not end.
    Size version() const { return version_; }
    QuantizedPanels panels() const { return {codes8_.data(), score_offset_.data(), k_, d_}; }
    // Rows per call of the filter, of `rows` in all; `pruned`: bounds prune most of them.
    Size rows_per_call(Size rows, bool pruned = false) const {
        if (view_.count() > 1) return rows;
        return pruned ? cost::pruned_rows_per_call : cost::rows_per_call;
    }

    // The centre at a place, or none; the group of a place; the place of a centre.
    static constexpr Size none = -1;
    Size centre(Size place) const { return centre_[std::size_t(place)]; }
    Size group(Size place) const { return group_[std::size_t(place)]; }
    Size place(Size centre) const { return place_[std::size_t(centre)]; }

    const std::vector<float>& scales() const { return scales_.all(); }
    Quantization quantization() const { return {&scales_, largest_score_offset_}; }
    // Score offsets are stored a little too low: by at most this much at a place.
    double score_offset_error(Size place) const { return panels().score_offset_error(place); }

    // Assigns places to centres in this order, group by group. update() must follow.
    void arrange(const std::vector<Size>& order) {
        version_ = -1;
        centre_.assign(score_offset_.size(), none);
        place_.assign(std::size_t(1 + *std::max_element(order.begin(), order.end())), none);
        row16_.assign(place_.size(), none);
        std::fill(score_offset_.begin(), score_offset_.end(),
                  std::numeric_limits<float>::infinity());
        Size at = 0;
        for (Size g = 0; g < view_.groups(); ++g) {
            const Size end = k_ * view_.group(g + 1) / view_.places();
            for (Size place = view_.group(g); at < end; ++at, ++place) {
                centre_[std::size_t(place)] = order[std::size_t(at)];
                place_[std::size_t(order[std::size_t(at)])] = place;
                row16_[std::size_t(order[std::size_t(at)])] = at;
            }
        }
    }

    // Quantises all centres, unless they have not changed.
    void update(const Centres<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        version_ = -1;
        scales_.choose(centroids, threads);
        pack(centroids, threads);
        version_ = centroids.version();
    }
    // Quantises the centres that moved, from `previous`; the codes of all others are up to date.
    void update(const Centres<R>& centroids, const std::vector<Size>& moved,
                const std::vector<SparseVector<R>>& previous, const Threads& threads) {
        const bool few =
            version_ >= 0 && centroids.sparse() && cost::moved_for_patch * Size(moved.size()) <= k_;
        version_ = -1;
        if (!few || !scales_.grow(centroids, moved)) return update(centroids, threads);
        copy_score_offsets(centroids);
        std::vector<char> stale(centre_.size());
        for (const Size j : moved) stale[std::size_t(place(j))] = 1;
        // Places of a unit share cache lines, so one thread writes all of them.
        threads.run(view_.places() / QuantizedPanels::unit, [&](Size unit, int) {
            const Size first = unit * QuantizedPanels::unit;
            for (Size low = first; low < first + half; ++low)
                patch(centroids, previous, low, stale[std::size_t(low)],
                      stale[std::size_t(low + half)]);
        });
        version_ = centroids.version();
    }
    // Quantises these centres only, in this order, by the scales of `all`. Rows that are quantised
    // for `all` need not be quantised again.
    void quantize_some(const Centres<R>& centroids, const std::vector<Size>& centres,
                       const QuantizedCentres& all, const Threads& threads) {
        resize(Size(centres.size()), centroids.d());
        if (centres.empty()) return;
        arrange(centres);
        scales_ = all.scales_;
        settings_ = all.settings_;
        pack(centroids, threads);
    }
    // Quantises centres [first, first + count) by these scales, in 8 bits only: refined_score must
    // not be called. With several panels, place p has centre first + p.
    void quantize_window(const Centres<R>& centroids, Size first, Size count,
                         const FeatureScales& scales, const Threads& threads) {
        has_codes16_ = false;
        if (k_ != count || d_ != centroids.d()) resize(count, centroids.d());
        std::vector<Size> order(static_cast<std::size_t>(count));
        std::iota(order.begin(), order.end(), first);
        arrange(order);
        scales_ = scales;
        pack(centroids, threads);
    }

    // The position of a feature in the 16-bit codes of a centre.
    Size packed_column(Size f) const {
        const std::vector<std::uint32_t>& columns = settings_->packed_columns;
        return columns.empty() ? f : Size(columns[std::size_t(f)]);
    }
    // The score of a row and the centre at a place by 16-bit codes. Of the m entries of the row,
    // `scaled` has the values times the scales of their features, `packed_columns` the packed
    // columns.
    double refined_score(const double* scaled, const std::uint32_t* packed_columns, Size m,
                         Size place) const {
        const std::int16_t* const own = codes16(centre(place));
        const int zero = zero_code16();
        double sum[4] = {};  // independent chains
        const auto add = [&](Size t, int to) {
            sum[to] += scaled[t] * double(int(own[packed_columns[t]]) - zero);
        };
        Size t = 0;
        for (; t + 4 <= m; t += 4)
            for (int to = 0; to < 4; ++to) add(t + to, to);
        for (; t < m; ++t) add(t, 0);
        return ((sum[0] + sum[1]) + (sum[2] + sum[3])) * 0x1p-8 +
               double(score_offset_[std::size_t(place)]);
    }
    void prefetch(Size place, Size packed_column) const {
        __builtin_prefetch(codes16(centre(place)) + packed_column);
    }

private:
    static constexpr int half = int(QuantizedPanels::unit / 2);
    int zero_code16() const { return scales_.zero_point() * 0x100; }

    // The position of the words of a place: the word of feature f is at offset + f width.
    struct Words {
        Size offset, width;
        bool whole;  // the codes of the place are whole words; otherwise their low bytes
        Words(const QuantizedCentres& own, Size place) {
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

    std::int16_t* codes16(Size j) { return codes16_.data() + row16_[std::size_t(j)] * d_; }
    const std::int16_t* codes16(Size j) const {
        return codes16_.data() + row16_[std::size_t(j)] * d_;
    }

    void resize(Size k, Size d) {
        k_ = 0;  // until everything is allocated
        d_ = d;
        view_ = {nullptr, nullptr, k, d};
        const std::size_t places = std::size_t(view_.places());
        score_offset_.resize(places);
        codes8_.resize(places * std::size_t(d));
        if (has_codes16_) codes16_.resize(std::size_t(k * d));
        words_.clear();
        for (Size place = 0; place < Size(places); ++place) words_.emplace_back(*this, place);
        group_.resize(places);
        for (Size g = 0; k > 0 && g < view_.groups(); ++g)
            std::fill(group_.begin() + view_.group(g), group_.begin() + view_.group(g + 1), g);
        k_ = k;
    }

    void copy_score_offsets(const Centres<R>& centroids) {
        largest_score_offset_ = 0;
        for (std::size_t at = 0; at < centre_.size(); ++at) {
            if (centre_[at] == none) continue;
            const double score_offset = double(centroids.score_offset()[centre_[at]]);
            score_offset_[at] = QuantizedPanels::stored_offset(score_offset);
            largest_score_offset_ = std::max(largest_score_offset_, score_offset);
        }
    }

    void pack(const Centres<R>& centroids, const Threads& threads) {
        copy_score_offsets(centroids);
        if (has_codes16_)
            threads.ranges(k_, std::max<Size>(1, cost::zero_codes_per_task / std::max<Size>(1, d_)),
                           [&](Size begin, Size end, int) {
                               std::fill(codes16_.begin() + begin * d_, codes16_.begin() + end * d_,
                                         std::int16_t(zero_code16()));
                           });
        // A block of features, of all places, stays in L2.
        const Size block =
            std::max<Size>(cost::codes_block_features, cost::codes_block_bytes / view_.places());
        for_feature_ranges(threads, d_, [&](Size begin, Size end) {
            std::vector<Size> at(centre_.size());
            for (std::size_t place = 0; place < at.size(); ++place)
                if (centre_[place] != none)
                    at[place] = first_feature(centroids, centre_[place], begin);
            std::vector<float> per(static_cast<std::size_t>(block));
            for (Size first = begin; first < end; first += block) {
                const Size past = std::min(end, first + block);
                for (Size f = first; f < past; ++f)
                    per[std::size_t(f - first)] = 0x100 / scales_[f];
                fill_zero(first, past);
                // Low bytes first: the whole words depend on them.
                for (const bool whole : {false, true})
                    for (std::size_t place = 0; place < at.size(); ++place)
                        if (centre_[place] != none && words_[place].whole == whole)
                            put(
                                centroids, centre_[place], at[place], past,
                                [&](Size f) { return per[std::size_t(f - first)]; },
                                [](Size) { return true; });
            }
        });
    }
    // Stores the codes of centre j for the features f with is_due(f), from position `at` up to
    // feature `past`. A 16-bit code is the value times per(f).
    template <class Per, class Due>
    void put(const Centres<R>& centroids, Size j, Size& at, Size past, Per per, Due is_due) {
        const Words& own = words_[std::size_t(place(j))];
        std::int8_t* const words = codes8_.data() + own.offset;
        std::int16_t* const codes = has_codes16_ ? codes16(j) : nullptr;
        const int zero = zero_code16();
        const auto each = [&](auto store) {
            for_packed_values(centroids, j, at, past, [&](Size f, float p) {
                if (!is_due(f)) return;
                const int code = int(std::lrint(p * per(f))) + zero;
                if (codes) codes[packed_column(f)] = std::int16_t(code);
                store(words + f * own.width, code);
            });
        };
        if (own.whole)
            each([](auto* word, int code) { CodePair::put_high(word, code); });
        else
            each([&](auto* word, int code) { CodePair::put_low(word, code, zero); });
    }
    void fill_zero(Size first, Size past) {
        std::int8_t word[2];
        CodePair::put_low(word, zero_code16(), zero_code16());
        std::int16_t both;
        std::memcpy(&both, word, 2);
        for (Size p = 0; p < view_.count(); ++p) {
            const QuantizedPanels::Panel panel = view_.panel(p);
            void* const at = codes8_.data() + panel.first * d_ + first * panel.width();
            std::fill_n(static_cast<std::int16_t*>(at), (past - first) * panel.width() / 2, both);
        }
    }

    // Updates the codes of the two centres that share words with place `low`: all codes of a centre
    // that moved, else those whose scale grew.
    void patch(const Centres<R>& centroids, const std::vector<SparseVector<R>>& previous, Size low,
               bool low_moved, bool high_moved) {
        const Words& own = words_[std::size_t(low)];
        std::int8_t* const words = codes8_.data() + own.offset;
        const int zero = zero_code16();
        const auto clear = [&](Size place, auto store) {
            for (const std::uint32_t f : previous[std::size_t(centre(place))].feature)
                store(words + Size(f) * own.width);
            std::fill_n(codes16(centre(place)), d_, std::int16_t(zero));
        };
        if (low_moved) clear(low, [&](auto* word) { CodePair::put_low(word, zero, zero); });
        if (high_moved) clear(low + half, [&](auto* word) { CodePair::put_high(word, zero); });
        patch_codes(centroids, low, low_moved);
        patch_codes(centroids, low + half, low_moved || high_moved);
    }
    // Stores all codes of the centre at a place, or those whose scale grew.
    void patch_codes(const Centres<R>& centroids, Size place, bool all) {
        if (centre(place) == none || !(all || scales_.any_grew())) return;
        Size at = 0;
        const auto per = [&](Size f) { return 0x100 / scales_[f]; };
        if (all)
            put(centroids, centre(place), at, d_, per, [](Size) { return true; });
        else
            put(centroids, centre(place), at, d_, per, [&](Size f) { return scales_.grew(f); });
    }

    Size k_ = 0, d_ = 0;
    Size version_ = -1;
    std::vector<Size> centre_, group_;  // per place
    std::vector<Size> place_, row16_;   // per centre: place; row among the 16-bit codes
    std::vector<Words> words_;          // per place
    std::vector<float> score_offset_;   // per place
    FeatureScales scales_;
    double largest_score_offset_ = 0;
    bool has_codes16_ = true;
    AlignedVector<std::int8_t> codes8_;
    std::vector<std::int16_t> codes16_;
    std::shared_ptr<const LayoutSettings> settings_;
    QuantizedPanels view_{};  // the shape of panels()
};

}  // namespace exactmeans
