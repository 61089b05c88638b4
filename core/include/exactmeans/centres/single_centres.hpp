// Centres as single packed vectors, with the interface of Groups (centres/groups.hpp): groups of
// one centre each.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/centres/groups.hpp"

namespace exactmeans {

// The division of the centres into groups of one.
class Singletons {
public:
    explicit Singletons(Size k) : k_(k) {}
    Size count() const { return k_; }
    std::int32_t group(Size j) const { return std::int32_t(j); }

private:
    Size k_;
};

template <class R>
class SingleCentres {
public:
    // Elkan's algorithm uses inter-centre distances in every pass.
    static constexpr bool distances_always_pay = true;

    using Partition = Singletons;

    SingleCentres(const Centres<R>& centroids, const std::shared_ptr<const LayoutSettings>&, bool)
        : k_(centroids.k()),
          d_(centroids.d()),
          partition_(std::make_shared<Partition>(k_)),
          packed_(std::size_t(k_), -1),
          values_(std::size_t(k_ * d_)),
          score_offset_(std::size_t(k_)) {}

    Size count() const { return k_; }
    // A view without panels, because values() are stored centre by centre.
    Panels<R> panels() const { return {nullptr, nullptr, k_, d_, 0}; }
    const std::shared_ptr<const Partition>& partition() const { return partition_; }
    std::int32_t centre(Size place) const { return std::int32_t(place); }
    std::int32_t group(Size j) const { return std::int32_t(j); }
    Size size(Size) const { return 1; }
    // Minus the values of centre j by feature, as kernels read them.
    const R* values(Size j) const { return values_.data() + j * d_; }
    bool copy(Size j) const { return copy_[std::size_t(j)]; }

    template <class Scan>
    void compare(Scan& scan, Size j, const std::int32_t* picks, Size count) const {
        scan.with_centre(values_.data() + j * d_, score_offset_[std::size_t(j)], d_, picks, count);
        std::fill(scan.label.begin(), scan.label.end(), std::int32_t(j));
    }

    Size version() const { return version_; }
    void update(const Centres<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        version_ = -1;
        copy_ = copies_of(centroids);
        threads.ranges(k_, 1, [&](Size j, Size, int) {
            score_offset_[std::size_t(j)] =
                copy(j) ? std::numeric_limits<R>::infinity() : centroids.score_offset()[j];
            if (packed_[std::size_t(j)] == centroids.moved_in(j)) return;
            packed_[std::size_t(j)] = -1;
            R* own = values_.data() + j * d_;
            std::fill(own, own + d_, R(0));
            centroids.for_values(j, [&](Size f, R c) { own[f] = centroids.frame().packed(f, c); });
            packed_[std::size_t(j)] = centroids.moved_in(j);
        });
        version_ = centroids.version();
    }

private:
    Size k_, d_;
    std::shared_ptr<const Partition> partition_;
    Size version_ = -1;
    std::vector<char> copy_;
    std::vector<Size> packed_;  // per centre: moved_in(j) when it was packed
    std::vector<R> values_, score_offset_;
};

}  // namespace exactmeans
