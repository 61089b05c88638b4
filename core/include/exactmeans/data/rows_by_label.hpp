// The rows of each cluster, one cluster after the other, in ascending order.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// Rows in the order of their labels.
inline std::vector<Size> by_label(const std::int32_t* labels, Size n, Size k) {
    std::vector<Size> next(static_cast<std::size_t>(k + 1)), order(static_cast<std::size_t>(n));
    for (Size i = 0; i < n; ++i) ++next[std::size_t(labels[i]) + 1];
    for (Size j = 0; j < k; ++j) next[std::size_t(j + 1)] += next[std::size_t(j)];
    for (Size i = 0; i < n; ++i) order[std::size_t(next[std::size_t(labels[i])]++)] = i;
    return order;
}

// For centres that are not sums, which have to see their rows together. Rows that weigh nothing are
// left out.
class Members {
public:
    template <class Rows>
    Members(const Rows& x, const std::int32_t* labels, Size k) : start_(std::size_t(k + 1)) {
        const auto counts = [&](Size i) { return x.factor(i) > 0; };
        for (Size i = 0; i < x.n; ++i)
            if (counts(i)) ++start_[std::size_t(labels[i]) + 1];
        for (std::size_t j = 1; j < start_.size(); ++j) start_[j] += start_[j - 1];
        rows_.resize(std::size_t(start_.back()));
        std::vector<Size> next(start_.begin(), start_.end() - 1);
        for (Size i = 0; i < x.n; ++i)
            if (counts(i)) rows_[std::size_t(next[std::size_t(labels[i])]++)] = i;
    }

    Size k() const { return Size(start_.size()) - 1; }
    Size count(Size j) const { return start_[std::size_t(j + 1)] - start_[std::size_t(j)]; }
    const Size* of(Size j) const { return rows_.data() + start_[std::size_t(j)]; }

private:
    std::vector<Size> start_, rows_;
};

}  // namespace exactmeans
