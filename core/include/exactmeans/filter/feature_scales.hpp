// The scale of each feature in quantised centres, and the zero point that all features share: value
// = scale (code - zero point), with codes in [-127, 127].
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"

namespace exactmeans {

// The position of the first feature of centre j that is not below `feature`: in its list of
// features, or the feature itself if the centres are dense.
template <class R>
Size first_feature(const Centres<R>& centroids, Size j, Size feature) {
    if (!centroids.sparse()) return feature;
    const auto& list = centroids.sparse_master(j).feature;
    return std::lower_bound(list.begin(), list.end(), std::uint32_t(feature)) - list.begin();
}
// Calls visit(feature, packed value) for the features of centre j from position `at` up to feature
// `end`, and advances `at` past them.
template <class R, class Visit>
void for_packed_values(const Centres<R>& centroids, Size j, Size& at, Size end, Visit visit) {
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
            visit(
                Size(own.feature[std::size_t(t)]),
                float(frame.packed(Size(own.feature[std::size_t(t)]), own.value[std::size_t(t)])));
    at = t;
}
// Calls fn(begin, end) in parallel for ranges of features.
template <class Fn>
void for_feature_ranges(const Threads& threads, Size d, Fn fn) {
    threads.ranges(
        d,
        std::max<Size>(cost::features_per_task, d / (cost::tasks_per_thread * threads.n_jobs) + 1),
        [&](Size begin, Size end, int) { fn(begin, end); });
}

class FeatureScales {
public:
    static constexpr int largest_code = 127;

    const std::vector<float>& all() const { return scale_; }
    float operator[](Size f) const { return scale_[std::size_t(f)]; }
    int zero_point() const { return zero_point_; }
    double largest() const { return largest_; }
    // Did the last call of grow() enlarge the scale of feature f, or of any feature?
    bool grew(Size f) const { return grown_[std::size_t(f)] != 0; }
    bool any_grew() const { return any_grew_; }

    // Chooses scales for these centres.
    template <class R>
    void choose(const Centres<R>& centroids, const Threads& threads) {
        const Size d = centroids.d(), k = centroids.k();
        scale_.resize(std::size_t(d));
        std::atomic<bool> any_positive = false;
        for_feature_ranges(threads, d, [&](Size begin, Size end) {
            std::fill(scale_.begin() + begin, scale_.begin() + end, 0.0f);
            float highest = 0;
            for (Size j = 0; j < k; ++j) {
                Size at = first_feature(centroids, j, begin);
                for_packed_values(centroids, j, at, end, [&](Size f, float p) {
                    float& largest = scale_[std::size_t(f)];
                    largest = std::max(largest, std::abs(p));
                    highest = std::max(highest, p);
                });
            }
            if (highest > 0) any_positive = true;
        });
        // If no packed value is positive, this zero point gives them codes of both signs.
        zero_point_ = any_positive ? 0 : largest_code;
        const float per = headroom / float(largest_code + zero_point_);
        for (float& scale : scale_) scale = std::max(0x1p-100f, scale * per);
        largest_ = double(*std::max_element(scale_.begin(), scale_.end()));
        any_grew_ = false;
    }

    // Enlarges the scales that are too small for the moved centres. Returns false if all scales
    // should be chosen anew: too many have grown, or the zero point must change.
    template <class R>
    bool grow(const Centres<R>& centroids, const std::vector<Size>& moved) {
        const float range = float(largest_code + zero_point_) * (1 - 0x1p-20f);
        grown_.assign(scale_.size(), 0);
        bool any_positive = false;
        for (const Size j : moved) {
            Size at = 0;
            for_packed_values(centroids, j, at, centroids.d(), [&](Size f, float p) {
                float& scale = scale_[std::size_t(f)];
                any_positive = any_positive || p > 0;
                if (std::abs(p) <= range * scale) return;
                grown_[std::size_t(f)] = 1;
                scale = std::abs(p) * (headroom / range);
                largest_ = std::max(largest_, double(scale));
            });
        }
        const Size grown = Size(std::count(grown_.begin(), grown_.end(), char(1)));
        any_grew_ = grown > 0;
        return !(any_positive && zero_point_) &&
               cost::grown_for_patch * grown <= Size(grown_.size());
    }

private:
    static constexpr float headroom = cost::scale_headroom;

    std::vector<float> scale_;
    std::vector<char> grown_;
    bool any_grew_ = false;
    int zero_point_ = 0;
    double largest_ = 0;
};

// The parameters of quantised centres that the error of a quantised row depends on.
struct Quantization {
    const FeatureScales* scales;
    double largest_score_offset;
};

}  // namespace exactmeans
