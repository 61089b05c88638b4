// Moves a sparse centre to the mean of its cluster. Centre and sum are aligned by feature once; the
// mean, the displacement, the norm and the explained scatter come from one pass over the aligned
// values.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/update/cluster_sums.hpp"

namespace exactmeans {

// Reuses its buffers from centre to centre.
template <class R>
class SparseCentreUpdate {
public:
    // The largest number of bins of a sum that is supported.
    static constexpr int most_bins = 2;

    // Moves the centre to the mean of cluster j and returns its displacement, or nothing if it is
    // there already. Sets `explained`, unless it is null, to the scatter that the centre explained
    // before.
    std::optional<Displacement> run(Size j, const Sums& sums, SparseVector<R>& centre, int exponent,
                                    double* explained) {
        align(centre, sums.sparse_sum(j), sums.grid().bins() > 1);
        const Bins& grid = sums.grid();
        const TwoSum weight = sums.total_weight(j);
        vector_kernels<R>().mean(high_, low_, weight.sum, weight.error,
                                 std::ldexp(1.0, -grid.exponent()), size_, to_.data());
        const SparseUpdate update = vector_kernels<R>().sparse_update(
            feature_, from_, to_.data(), high_, low_, size_, weight.sum, std::ldexp(1.0, exponent),
            std::ldexp(1.0, exponent - grid.exponent()));
        if (explained) *explained = update.explained;
        // If step2 is 0, the squares of a short step may have underflowed.
        if (update.step2 == 0 && std::equal(from_, from_ + size_, to_.data())) return {};
        store(centre);
        return Displacement{update.step2, update.square_sum.value()};
    }

private:
    // Sets feature_, from_, high_ and low_ to the union of the features of centre and sum.
    void align(SparseVector<R>& centre, const SparseSum& sum, bool two) {
        const std::size_t most = std::size_t(centre.size() + sum.size());
        if (to_.size() < most) to_.resize(most);
        feature_ = centre.feature.data();
        from_ = centre.value.data();
        high_ = sum.plane(0);
        low_ = two ? sum.plane(1) : nullptr;
        size_ = centre.size();
        if (centre.feature == sum.features()) return;
        if (own_feature_.size() < most) {
            own_feature_.resize(most);
            own_from_.resize(most);
            own_high_.resize(most);
        }
        if (two && own_low_.size() < most) own_low_.resize(most);
        size_ = two ? merge<true>(centre, sum) : merge<false>(centre, sum);
        feature_ = own_feature_.data();
        from_ = own_from_.data();
        high_ = own_high_.data();
        low_ = two ? own_low_.data() : nullptr;
    }

    template <bool Two>
    Size merge(const SparseVector<R>& centre, const SparseSum& sum) {
        std::uint32_t* const feature = own_feature_.data();
        R* const from = own_from_.data();
        double *const high = own_high_.data(), *const low = own_low_.data();
        // Branch-free merging reads one entry even of an empty list.
        const R no_value = 0;
        const double no_sum = 0;
        const R* const value = centre.size() ? centre.value.data() : &no_value;
        const auto plane = [&](int w) { return sum.size() ? sum.plane(w) : &no_sum; };
        const double *const sum_high = plane(0), *const sum_low = plane(Two);
        return for_either_blocks(
            centre.feature, sum.features(),
            [&](Size at, Size s, Size t) {
                copy_block(centre.feature.data() + s, feature + at);
                copy_block(value + s, from + at);
                copy_block(sum_high + t, high + at);
                if constexpr (Two) copy_block(sum_low + t, low + at);
            },
            [&](Size at, std::uint32_t f, Size s, bool in_centre, Size t, bool in_sum) {
                feature[at] = f;
                from[at] = value_if(in_centre, value + s);
                high[at] = value_if(in_sum, sum_high + t);
                if constexpr (Two) low[at] = value_if(in_sum, sum_low + t);
            });
    }

    void store(SparseVector<R>& centre) {
        const bool in_place = feature_ == centre.feature.data();
        drop_zeros();
        // Allocates before anything changes, so that std::bad_alloc leaves the centre as it was.
        centre.value.reserve(std::size_t(size_));
        if (in_place)
            centre.feature.resize(std::size_t(size_));
        else
            centre.feature.assign(feature_, feature_ + size_);
        centre.value.assign(to_.data(), to_.data() + size_);
    }

    // Zeros occur because sums may cancel and means may underflow.
    void drop_zeros() {
        std::uint32_t* const feature = feature_;
        R* const to = to_.data();
        Size kept = 0, t = 0;
        const auto keep = [&](Size end) {
            for (; t < end; ++t) {
                feature[kept] = feature[t];
                to[kept] = to[t];
                kept += to[t] != 0;
            }
        };
        while (t + equal_block <= size_) {
            bool zero = false;
            for (Size l = 0; l < equal_block; ++l) zero |= to[t + l] == 0;
            if (zero) {
                keep(t + equal_block);
                continue;
            }
            if (kept < t) {
                move_block(feature + t, feature + kept);
                move_block(to + t, to + kept);
            }
            kept += equal_block;
            t += equal_block;
        }
        keep(size_);
        size_ = kept;
    }

    // The aligned values; they point into the centre and the sum if both have the same features.
    std::uint32_t* feature_ = nullptr;
    const R* from_ = nullptr;
    const double *high_ = nullptr, *low_ = nullptr;
    Size size_ = 0;
    std::vector<R> to_, own_from_;
    std::vector<std::uint32_t> own_feature_;
    std::vector<double> own_high_, own_low_;
};

}  // namespace exactmeans
