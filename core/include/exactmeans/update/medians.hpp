// Centres for L1 distances (k-medians): the weighted lower median of each feature, i.e. the least
// value with at least half of the cluster's weight at or below it. It minimises the sum of
// distances. Entries that a CSR row does not store count as zeros. A median is a value of the data,
// so nothing is rounded.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/rows_by_label.hpp"
#include "exactmeans/numerics/compensated.hpp"

namespace exactmeans {

template <class R>
struct WeightedValue {
    R value;
    double weight;
};

// The lower median of the values and of zeros of weight `zeros`; `total` is the sum of all weights.
// Adding 0 turns -0 into +0.
template <class R>
R lower_median(std::vector<WeightedValue<R>>& values, double zeros, double total) {
    if (zeros > 0) values.push_back({R(0), zeros});
    std::stable_sort(values.begin(), values.end(),
                     [](const auto& a, const auto& b) { return a.value < b.value; });
    Compensated cumulative;
    for (const WeightedValue<R>& entry : values) {
        cumulative.add(entry.weight);
        if (2 * cumulative.value() >= total) return entry.value + R(0);
    }
    return values.back().value + R(0);
}

// The same without weights, by selection instead of sorting.
template <class R>
R lower_median(std::vector<R>& values) {
    const auto middle = values.begin() + (Size(values.size()) - 1) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle + R(0);
}

template <class Rows>
double total_weight(const Rows& x, const Size* rows, Size count) {
    Compensated total;
    for (Size t = 0; t < count; ++t) total.add(x.weight(rows[t]));
    return total.value();
}

// Features [begin, end) of dense rows, 16 at a time (a cache line of float32), so that every cache
// line is read once.
template <class R>
void median_of(const DenseRows<R>& x, const Size* rows, Size count, Size begin, Size end, R* out) {
    constexpr Size features_at_once = 16;
    std::vector<R> plain[features_at_once];
    std::vector<WeightedValue<R>> weighted;
    const double total = x.weights ? total_weight(x, rows, count) : 0.0;
    for (Size first = begin; first < end; first += features_at_once) {
        const Size width = std::min(features_at_once, end - first);
        for (Size f = 0; f < width; ++f) plain[f].resize(std::size_t(count));
        for (Size t = 0; t < count; ++t)
            for (Size f = 0; f < width; ++f) plain[f][std::size_t(t)] = x.at(rows[t], first + f);
        for (Size f = 0; f < width; ++f) {
            if (!x.weights) {
                out[first + f] = lower_median(plain[f]);
                continue;
            }
            weighted.clear();
            for (Size t = 0; t < count; ++t)
                weighted.push_back({plain[f][std::size_t(t)], x.weights[rows[t]]});
            out[first + f] = lower_median(weighted, 0.0, total);
        }
    }
}

// All features of CSR rows: sorts the entries of the cluster by feature. A feature that rows of
// less than half of the weight store has median 0.
template <class R, class I>
void median_of(const CsrRows<R, I>& x, const Size* rows, Size count, Size, Size, R* out) {
    struct Entry {
        I feature;
        R value;
        double weight;
    };
    std::vector<Entry> entries;
    for (Size t = 0; t < count; ++t) {
        const auto row = x.row(rows[t]);
        for (Size e = 0; e < row.nonzeros; ++e)
            entries.push_back({row.index[e], row.value[e], x.weight(rows[t])});
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.feature < b.feature; });
    const double total = total_weight(x, rows, count);
    std::fill(out, out + x.d, R(0));
    std::vector<WeightedValue<R>> values;
    for (std::size_t begin = 0; begin < entries.size();) {
        std::size_t end = begin;
        Compensated stored;
        values.clear();
        for (; end < entries.size() && entries[end].feature == entries[begin].feature; ++end) {
            stored.add(entries[end].weight);
            values.push_back({entries[end].value, entries[end].weight});
        }
        // If all rows store the feature there are no zeros, but the weights are rounded sums.
        const bool all = Size(values.size()) == count;
        const double zeros = all ? 0.0 : std::max(0.0, total - stored.value());
        if (2 * zeros <= total) out[entries[begin].feature] = lower_median(values, zeros, total);
        begin = end;
    }
}

// Moves centre j to the median of its cluster; centres of clusters without weight do not move.
template <class Rows>
void medians(const Rows& x, const std::int32_t* labels, Size k, typename Rows::Real* centres,
             const Threads& threads) {
    const Members members(x, labels, k);
    // Dense clusters are cut by features, so that a few clusters occupy all threads.
    const Size width = is_dense<Rows> ? cost::median_features_per_task : x.d,
               slices = (x.d + width - 1) / width;
    threads.run(k * slices, [&](Size task, int) {
        const Size j = task / slices, begin = task % slices * width;
        if (members.count(j))
            median_of(x, members.of(j), members.count(j), begin, std::min(x.d, begin + width),
                      centres + j * x.d);
    });
}

}  // namespace exactmeans
