// Centres as single packed vectors: groups of one centre each (see centres/groups.hpp).
#pragma once

#include <limits>
#include <vector>

#include "exactmeans/centres/groups.hpp"

namespace exactmeans {

template <class R>
class SingleCentres {
public:
    // Elkan's algorithm avoids as many distance computations as possible.
    static constexpr bool always_gaps = true;

    SingleCentres(const Centres<R>& centroids, bool dense)
        : k_(centroids.k()),
          d_(centroids.d()),
          dense_(dense),
          packed_(std::size_t(k_), -1),
          values_(std::size_t(k_ * d_)),
          score_offset_(std::size_t(k_)) {}

    static std::shared_ptr<const SingleCentres> of(const Centres<R>& centroids, bool dense,
                                                   const Threads& threads) {
        return centroids.template laid_out<SingleCentres>(dense, threads);
    }

    Size count() const { return k_; }
    // No panels: values are stored by feature.
    Panels<R> panels() const { return {nullptr, nullptr, k_, d_, 0}; }
    bool dense() const { return dense_; }
    std::int32_t centre(Size place) const { return std::int32_t(place); }
    std::int32_t group(Size j) const { return std::int32_t(j); }
    Size size(Size) const { return 1; }
    bool copy(Size j) const { return copy_[std::size_t(j)]; }

    template <class Scan>
    void compare(Scan& scan, Size j, const std::int32_t* picks, Size count) const {
        scan.with_centre(values_.data() + j * d_, score_offset_[std::size_t(j)], d_, picks, count);
        std::fill(scan.label.begin(), scan.label.end(), std::int32_t(j));
    }

    void update(const Centres<R>& centroids, const Threads& threads) {
        if (version_ == centroids.version()) return;
        copy_ = copies_of(centroids);
        threads.ranges(k_, 1, [&](Size j, Size, int) {
            score_offset_[std::size_t(j)] =
                copy(j) ? std::numeric_limits<R>::infinity() : centroids.score_offset()[j];
            if (packed_[std::size_t(j)] == centroids.moves(j)) return;
            R* own = values_.data() + j * d_;
            std::fill(own, own + d_, R(0));
            centroids.for_values(
                j, [&](Size f, R c) { own[f] = Layout<R>::packed(centroids.frame(), f, c); });
            packed_[std::size_t(j)] = centroids.moves(j);
        });
        version_ = centroids.version();
    }

private:
    Size k_, d_;
    bool dense_;
    Size version_ = -1;
    std::vector<char> copy_;
    std::vector<Size> packed_;  // per centre: moves(j) when it was packed
    std::vector<R> values_, score_offset_;
};

}  // namespace exactmeans
