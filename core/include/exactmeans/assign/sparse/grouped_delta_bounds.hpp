// Delta bounds per group of centres (assign/sparse/delta_bounds.hpp).
//
// Most centres that moved changed a little, and a few changed much, mostly those of small clusters.
// In one table, these few would loosen the bounds of all rows, though few rows are near them. So
// centres are grouped by their number of features, which grows with the size of the cluster, and a
// row has one lower bound per group. Memory: 16 bytes per feature, eight per centre.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "exactmeans/centres/history.hpp"
#include "exactmeans/kernels/quantized.hpp"

namespace exactmeans {

// Centres ordered by the number of their features, descending.
template <class R>
std::vector<Size> longest_first(const Centres<R>& centroids) {
    std::vector<Size> length(static_cast<std::size_t>(centroids.k())), order(length.size());
    for (Size j = 0; j < centroids.k(); ++j)
        centroids.for_values(j, [&](Size, R value) { length[std::size_t(j)] += value != 0; });
    std::iota(order.begin(), order.end(), Size(0));
    std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) {
        return length[std::size_t(a)] > length[std::size_t(b)];
    });
    return order;
}

template <class R>
class GroupedDeltaBounds {
public:
    explicit GroupedDeltaBounds(Size k) : centres_(std::size_t(k)) {}

    // Tabulates the change of the moved centres; group_of(j) is the group of centre j.
    template <class GroupOf>
    void build(CentreHistory<R>& history, const Centres<R>& centroids, GroupOf group_of,
               const Threads& threads) {
        double fall[groups] = {}, extra[groups] = {};
        std::fill(centres_.begin(), centres_.end(), GroupDeltas::Centre{0, -1});
        const std::vector<Size>& moved = history.moved();
        for (const Size j : moved) {
            const double offset_rise = history.score_offset_rise(centroids, j);
            const std::size_t g = std::size_t(group_of(j));
            centres_[std::size_t(j)] = {above(offset_rise), std::int32_t(g)};
            fall[g] = std::max(fall[g], -offset_rise);
            extra[g] = std::max(extra[g], 0x1p-22 * double(centroids.score_offset()[j]));
        }
        table_.resize(std::size_t(centroids.d()));
        const double tiny = history.template tabulate<int(groups)>(
            centroids, [&](std::size_t m) { return group_of(moved[m]); }, threads,
            [&](Size f, const std::uint16_t* most) {
                std::copy_n(most, 2 * groups, table_[std::size_t(f)].half);
            });
        deltas_ = {table_.data(), centres_.data(), {}, {}, std::max(float(tiny), 0x1p-120f)};
        for (std::size_t g = 0; g < groups; ++g) {
            deltas_.fall[g] = above(fall[g]);
            deltas_.extra[g] = above(extra[g]);
        }
    }

    const GroupDeltas& deltas() const { return deltas_; }
    // Updates the bounds of rows with these labels; lists the rows whose bounds cross.
    // `any_negative`: whether a row may have negative entries.
    void update(const PackedCsrRow<float>* rows, Size n, bool any_negative,
                const std::int32_t* labels, RowBounds* bounds,
                std::vector<std::int32_t>& crossed) const {
        crossed.resize(std::size_t(n));
        crossed.resize(std::size_t(quantized_kernels().update_bounds(
            rows, n, any_negative, deltas_, labels, bounds, crossed.data())));
    }

private:
    static constexpr std::size_t groups = std::size_t(QuantizedPanels::most_groups);
    // A normal float32 above x.
    static float above(double x) { return float(x + std::abs(x) * 0x1p-23 + 0x1p-120); }

    std::vector<GroupDeltaTable> table_;
    std::vector<GroupDeltas::Centre> centres_;
    GroupDeltas deltas_{};
};

}  // namespace exactmeans
