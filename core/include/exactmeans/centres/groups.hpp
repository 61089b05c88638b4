// Groups of neighbouring centres, one panel per group, so that a row can be compared with a few
// groups instead of all centres.
//
// The centres are divided once, by balanced bisection along their direction of largest variance,
// and stay in their groups, because bounds belong to groups. Within a group, centres are in
// ascending order, so that the tie rule of the kernels (the first place wins) gives the lowest
// centre. A copy, which is a centre that equals one of lower index, can never be a label but would
// weaken every bound, so its score offset is infinite.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout_cache.hpp"

namespace exactmeans {

// For dense rows a group is a panel of the usual width.
template <class R>
Size group_count(Size k, bool dense) {
    if (dense) return dense_panels<R>(k);
    return std::max<Size>(1, padded<R>(k) / std::max<Size>(cost::csr_group_centres, unit_width<R>));
}

// Marks the copies: centres that equal one of lower index.
template <class R>
std::vector<char> copies_of(const Centres<R>& centroids) {
    std::vector<char> copy(static_cast<std::size_t>(centroids.k()), 0);
    std::vector<Size> order(copy.size());
    std::iota(order.begin(), order.end(), Size(0));
    // For every metric, equal centres have equal norms.
    const auto norm2 = [&](Size j) { return centroids.norm2(j); };
    std::sort(order.begin(), order.end(), [&](Size a, Size b) {
        return norm2(a) < norm2(b) || (norm2(a) == norm2(b) && a < b);
    });
    for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
        for (end = begin + 1; end < order.size() && norm2(order[end]) == norm2(order[begin]);)
            ++end;
        for (std::size_t a = begin + 1; a < end; ++a) {
            char& found = copy[std::size_t(order[a])];
            for (std::size_t b = begin; b < a && !found; ++b)
                found = !copy[std::size_t(order[b])] && centroids.same(order[a], order[b]);
        }
    }
    return copy;
}

// The division of the centres into groups, and their places in the layout.
template <class R>
class Partition {
public:
    Partition(const Centres<R>& centroids, bool dense)
        : k_(centroids.k()),
          d_(centroids.d()),
          count_(group_count<R>(k_, dense)),
          centre_(std::size_t(padded<R>(k_)), 0),
          group_(std::size_t(k_)) {
        std::iota(centre_.begin(), centre_.begin() + k_, 0);
        sketch(centroids);
        bisect(0, count_);
        sketch_ = {};
        for (Size p = 0; p < count_; ++p)
            for (Size place = first(p); place < last(p); ++place)
                group_[std::size_t(centre_[std::size_t(place)])] = std::int32_t(p);
    }

    Size count() const { return count_; }
    // The centre at each place of the layout.
    const std::vector<std::int32_t>& centres() const { return centre_; }
    // The group of centre j.
    std::int32_t group(Size j) const { return group_[std::size_t(j)]; }
    // Group p has the places [first(p), last(p)).
    Size first(Size p) const { return places().panel(p).first; }
    Size last(Size p) const {
        const auto panel = places().panel(p);
        return std::min(k_, panel.first + panel.width());
    }

private:
    Panels<R> places() const { return {nullptr, nullptr, k_, d_, count_}; }

    // A few coordinates per centre that approximate distances: the features themselves, or sums of
    // features with pseudo-random signs (count sketch).
    void sketch(const Centres<R>& centroids) {
        width_ = std::min<Size>(d_, cost::sketch_coordinates);
        sketch_.assign(std::size_t(k_ * width_), 0.0);
        const Frame<R>& frame = centroids.frame();
        for (Size j = 0; j < k_; ++j)
            centroids.for_values(j, [&](Size f, R c) {
                const std::uint32_t hash = std::uint32_t(f) * 0x9e3779b1u;
                const Size at = d_ == width_ ? f : Size(hash >> 8) % width_;
                if (!frame.shift.empty()) c -= frame.shift[std::size_t(f)];
                const double value = double(c) * frame.scale();
                sketch_[std::size_t(j * width_ + at)] += hash >> 31 ? -value : value;
            });
    }

    // Orders the centres of groups [begin, end) so that each group contains neighbours.
    void bisect(Size begin, Size end) {
        auto* from = centre_.data() + first(begin);
        auto* to = centre_.data() + last(end - 1);
        if (end - begin == 1) {
            std::sort(from, to);
            return;
        }
        const Size middle = begin + (end - begin) / 2;
        const std::vector<double> coordinate = principal_coordinates(from, to);
        std::nth_element(from, centre_.data() + first(middle), to, [&](auto a, auto b) {
            const double x = coordinate[std::size_t(a)], y = coordinate[std::size_t(b)];
            return x < y || (x == y && a < b);
        });
        bisect(begin, middle);
        bisect(middle, end);
    }

    // The coordinates of these centres along their direction of largest variance (power
    // iteration).
    std::vector<double> principal_coordinates(const std::int32_t* from,
                                              const std::int32_t* to) const {
        const std::size_t w = std::size_t(width_);
        std::vector<double> mean(w), axis(w), next(w), coordinate(std::size_t(k_), 0.0);
        for (const auto* j = from; j != to; ++j)
            for (std::size_t f = 0; f < w; ++f)
                mean[f] += sketch_[std::size_t(*j) * w + f] / double(to - from);
        for (std::size_t f = 0; f < w; ++f) axis[f] = 1 + double(f * 37 % 101) / 101;
        for (int step = 0; step < cost::power_iterations; ++step) {
            std::fill(next.begin(), next.end(), 0.0);
            for (const auto* j = from; j != to; ++j) {
                const double* at = sketch_.data() + std::size_t(*j) * w;
                double dot = 0;
                for (std::size_t f = 0; f < w; ++f) dot += (at[f] - mean[f]) * axis[f];
                for (std::size_t f = 0; f < w; ++f) next[f] += dot * (at[f] - mean[f]);
                coordinate[std::size_t(*j)] = dot;
            }
            double largest = 0;
            for (const double x : next) largest = std::max(largest, std::abs(x));
            if (!(largest > 0)) break;
            for (std::size_t f = 0; f < w; ++f) axis[f] = next[f] / largest;
        }
        return coordinate;
    }

    Size k_, d_, count_;
    std::vector<std::int32_t> centre_, group_;
    Size width_ = 0;
    std::vector<double> sketch_;
};

// The layout of the centres by groups.
template <class R>
class Groups {
public:
    static constexpr bool distances_always_pay = false;
    using Partition = exactmeans::Partition<R>;

    Groups(const Centres<R>& centroids, std::shared_ptr<const LayoutSettings> settings, bool dense)
        : partition_(std::make_shared<Partition>(centroids, dense)),
          layout_(centroids, std::move(settings), dense, partition_->centres(),
                  partition_->count()),
          copy_(std::size_t(centroids.k()), 0),
          score_offset_(std::size_t(padded<R>(centroids.k())), std::numeric_limits<R>::infinity()) {
    }

    template <class Scan>
    void compare(Scan& scan, Size g, const std::int32_t* picks, Size count) const {
        scan.in_panel(panels(), g, picks, count);
    }

    Size count() const { return partition_->count(); }
    Panels<R> panels() const {
        Panels<R> view = layout_.panels();
        view.score_offset = score_offset_.data();
        return view;
    }
    // Copies of this layout share the partition, so bounds hold for all of them.
    const std::shared_ptr<const Partition>& partition() const { return partition_; }
    // The centre at a place of the layout, the group of a centre, the size and first place of a
    // group.
    std::int32_t centre(Size place) const { return partition_->centres()[std::size_t(place)]; }
    std::int32_t group(Size j) const { return partition_->group(j); }
    Size size(Size g) const { return partition_->last(g) - partition_->first(g); }
    Size first(Size g) const { return partition_->first(g); }
    // Does centre j equal one of lower index?
    bool copy(Size j) const { return copy_[std::size_t(j)]; }

    Size version() const { return version_; }
    void update(const Centres<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        version_ = -1;
        copy_ = copies_of(centroids);
        for (Size place = 0; place < centroids.k(); ++place)
            score_offset_[std::size_t(place)] = copy(centre(place))
                                                    ? std::numeric_limits<R>::infinity()
                                                    : centroids.score_offset()[centre(place)];
        layout_.update(centroids, threads);
        version_ = centroids.version();
    }

private:
    std::shared_ptr<const Partition> partition_;
    Layout<R> layout_;
    std::vector<char> copy_;
    std::vector<R> score_offset_;  // by place; infinite for copies
    Size version_ = -1;
};

}  // namespace exactmeans
