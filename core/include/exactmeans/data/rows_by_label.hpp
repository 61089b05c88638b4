// Row numbers sorted by cluster, ascending within each cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// All rows.
inline std::vector<Size> by_label(const std::int32_t* labels, Size n, Size k) {
    std::vector<Size> next(static_cast<std::size_t>(k + 1)), order(static_cast<std::size_t>(n));
    for (Size i = 0; i < n; ++i) ++next[std::size_t(labels[i]) + 1];
    for (Size j = 0; j < k; ++j) next[std::size_t(j + 1)] += next[std::size_t(j)];
    for (Size i = 0; i < n; ++i) order[std::size_t(next[std::size_t(labels[i])]++)] = i;
    return order;
}

// The rows of positive weight of each cluster, for centres that are not means of sums (medians,
// geodesic means): their update needs all rows of a cluster at once.
class Members {
public:
    template <class Rows>
    Members(const Rows& x, const std::int32_t* labels, Size k) : offsets_(std::size_t(k + 1)) {
        const auto counts = [&](Size i) { return x.factor(i) > 0; };
        for (Size i = 0; i < x.n; ++i)
            if (counts(i)) ++offsets_[std::size_t(labels[i]) + 1];
        for (std::size_t j = 1; j < offsets_.size(); ++j) offsets_[j] += offsets_[j - 1];
        rows_.resize(std::size_t(offsets_.back()));
        std::vector<Size> next(offsets_.begin(), offsets_.end() - 1);
        for (Size i = 0; i < x.n; ++i)
            if (counts(i)) rows_[std::size_t(next[std::size_t(labels[i])]++)] = i;
    }

    Size k() const { return Size(offsets_.size()) - 1; }
    Size count(Size j) const { return offsets_[std::size_t(j + 1)] - offsets_[std::size_t(j)]; }
    const Size* of(Size j) const { return rows_.data() + offsets_[std::size_t(j)]; }

private:
    std::vector<Size> offsets_, rows_;
};

}  // namespace exactmeans
