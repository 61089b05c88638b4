// Kernels of 8-bit scores of CSR rows (filter/quantized_centres.hpp), with vectors V::Shorts of
// 16-bit lanes, which are as wide as two vectors V; and the table of these kernels with those of
// delta bounds.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "csr.hpp"
#include "delta_bounds.hpp"
#include "exactmeans/kernels/quantized.hpp"
#include "stripes.hpp"

namespace exactmeans {

// Integer sums of one row with `Units` neighbouring units, by place; the columns of a feature are
// `width` bytes apart. Not inlined, because GCC would otherwise keep some of the sums in memory.
template <class V, int Units>
[[gnu::noinline]] void quantized_sums(const QuantizedRow& row, const std::int8_t* values,
                                      Size width, std::int16_t* out) {
    using W = typename V::Shorts;
    constexpr int unit = int(QuantizedPanels::unit), bytes = 2 * W::lanes, loads = unit / bytes;
    W low[Units * loads], whole[Units * loads];
#pragma GCC unroll 32
    for (int v = 0; v < Units * loads; ++v) low[v] = whole[v] = W::splat(0);
    const std::uint32_t* const index = row.index;
    const std::int16_t* const value = row.value;
    const Size m = row.nonzeros;
    for (Size t = 0; t < m; ++t) {
        const std::int8_t *centre = values + Size(index[t]) * width,
                          *next = values + Size(index[t + prefetch_entries]) * width;
#pragma GCC unroll 32
        for (int u = 0; u < Units; ++u) __builtin_prefetch(next + u * unit);
        const W x = W::splat(value[t]);
#pragma GCC unroll 32
        for (int v = 0; v < Units * loads; ++v) {
            const W words = W::load(centre + v * bytes);
            low[v] = W::add(low[v], W::product(x, W::low_bytes_shifted_up(words)));
            whole[v] = W::add(whole[v], W::product(x, words));
        }
    }
#pragma GCC unroll 32
    for (int v = 0; v < Units * loads; ++v) {
        std::int16_t* const to = out + v / loads * unit + v % loads * W::lanes;
        low[v].store(to);
        whole[v].store(to + unit / 2);
    }
}

// Converts the sums into scores: calls visit(score, first place of the vector) in ascending order.
template <class V, int Units, class Visit>
inline void for_quantized_units(const QuantizedRow& row, const std::int8_t* values, Size width,
                                const float* score_offset, Visit visit) {
    alignas(64) std::int16_t sums[Units * QuantizedPanels::unit];
    quantized_sums<V, Units>(row, values, width, sums);
    const V scale = V::splat(row.unit);
#pragma GCC unroll 32
    for (int place = 0; place < Units * int(QuantizedPanels::unit); place += V::lanes)
        visit(V::fma(V::load(sums + place), scale, V::load(score_offset + place)), place);
}

// The same for a whole panel, as many units at a time as the registers hold.
template <class V, int Units, class Visit>
inline void for_quantized_panel(const QuantizedRow& row, const QuantizedPanels& centres, Size first,
                                Visit visit) {
    constexpr int unit = int(QuantizedPanels::unit),
                  some = Units < V::Shorts::units ? Units : V::Shorts::units;
    static_assert(Units % some == 0);
#pragma GCC unroll 32
    for (int u = 0; u < Units; u += some)
        for_quantized_units<V, some>(row, centres.values + first * centres.d + u * unit,
                                     Units * unit, centres.score_offset + first + u * unit,
                                     [&](V score, int place) { visit(score, place + u * unit); });
}

// Calls run.operator()<Units>() with Units = panel.units.
template <class Run>
void with_units(const QuantizedPanels::Panel& panel, Run run) {
    [&]<int... Less>(std::integer_sequence<int, Less...>) {
        ((panel.units == Less + 1 ? run.template operator()<Less + 1>() : void()), ...);
    }(std::make_integer_sequence<int, int(QuantizedPanels::most_units)>());
}

// Prefetches a range of memory in n slices.
template <class V>
class SlicedPrefetch {
public:
    SlicedPrefetch(const PrefetchHint& next, Size n) : next_(next) {
        for (int r = 0; r < ranges; ++r)
            slice_[r] = (next.ranges[r].bytes / n + line) / line * line;
    }
    void next_slice() {
        for (int r = 0; r < ranges; ++r) {
            const PrefetchHint::Range& range = next_.ranges[r];
            const Size past = at_[r] + slice_[r] < range.bytes ? at_[r] + slice_[r] : range.bytes;
            for (; at_[r] < past; at_[r] += line)
                __builtin_prefetch(static_cast<const char*>(range.begin) + at_[r], 0, 2);
        }
    }

private:
    static constexpr int ranges = 2;
    static constexpr Size line = 64;
    PrefetchHint next_;
    Size at_[ranges] = {}, slice_[ranges];
};

// A single panel, whose quarters are the groups.
template <class V, int Units>
void nearest_in_quarters(const QuantizedRow* rows, Size n, const QuantizedPanels& centres,
                         const Nearest<float>& out, SlicedPrefetch<V>& prefetch) {
    constexpr int groups = int(QuantizedPanels::most_groups),
                  width = Units * int(QuantizedPanels::unit) / groups;
    static_assert(width % V::lanes == 0);
    constexpr Size block = 16;
    LaneBest<V> best[groups][block];
    for (Size begin = 0; begin < n; begin += block) {
        const Size count = n - begin < block ? n - begin : block;
        for (Size r = 0; r < count; ++r) {
            prefetch.next_slice();
#pragma GCC unroll 32
            for (int g = 0; g < groups; ++g) best[g][r] = LaneBest<V>::none();
            V number = V::iota();
            for_quantized_panel<V, Units>(rows[begin + r], centres, 0, [&](V score, int place) {
                best[place / width][r].template take<true>(score, number);
                number = V::add(number, V::splat(float(V::lanes)));
            });
        }
        for (int g = 0; g < groups; ++g)
            reduce_rows<V, true>(best[g], begin, count,
                                 {out.label + g * n, out.score + g * n, out.second + g * n});
    }
}

template <class V>
void nearest_quantized(const QuantizedRow* rows, Size n, const QuantizedPanels& centres,
                       const Nearest<float>& out, float* lows, const PrefetchHint& next) {
    if (n == 0) return;
    SlicedPrefetch<V> prefetch(next, n);
    if (centres.count() == 1)
        return with_units(centres.panel(0), [&]<int Units>() {
            nearest_in_quarters<V, Units>(rows, n, centres, out, prefetch);
        });
    for (Size p = 0; p < centres.count(); ++p, lows += n) {
        const QuantizedPanels::Panel panel = centres.panel(p);
        with_units(panel, [&]<int Units>() {
            const auto best_of = [&](Size i) {
                prefetch.next_slice();
                LaneBest<V> best = LaneBest<V>::none();
                V number = V::add(V::splat(float(panel.first)), V::iota());
                for_quantized_panel<V, Units>(rows[i], centres, panel.first, [&](V score, int) {
                    best.template take<true>(score, number);
                    number = V::add(number, V::splat(float(V::lanes)));
                });
                return best;
            };
            take_panel<V, true>(n, panel.first, out, best_of, lows);
        });
    }
}

template <class V>
Size places_below(const QuantizedRow& row, const QuantizedPanels& centres, Size p, float limit,
                  std::int32_t* list, float* others) {
    constexpr int most_groups = int(QuantizedPanels::most_groups);
    const QuantizedPanels::Panel panel = centres.panel(p);
    const int groups = int(centres.groups()), width = int(panel.width()) / groups;
    const V most = V::splat(limit), inf = V::splat(std::numeric_limits<float>::infinity());
    V least[most_groups] = {inf, inf, inf, inf};
    Size count = 0;
    with_units(panel, [&]<int Units>() {
        for_quantized_panel<V, Units>(row, centres, panel.first, [&](V score, int place) {
            const auto above = V::less(most, score);
            V& own = least[place / width];
            own = V::min(own, V::select(above, score, inf));
            constexpr unsigned all = (1u << V::lanes) - 1;
            for (unsigned left = ~V::bits(above) & all; left; left &= left - 1)
                list[count++] = std::int32_t(panel.first + place + __builtin_ctz(left));
        });
    });
    for (int g = 0; g < groups; ++g) {
        const float low = V::lowest(least[g]);
        if (low < others[g]) others[g] = low;
    }
    return count;
}

template <class V>
void quantize_rows(const PackedCsrRow<float>* rows, Size n, const float* scale, float* scaled,
                   QuantizedRow* out) {
    const V zero = V::splat(0);
    for (Size i = 0; i < n; ++i) {
        QuantizedRow& own = out[i];
        const Size m = own.nonzeros;
        Stripes<V> size, sum;
        for_stripes<V>(rows[i], [&](Size t, int v, V x) {
            const V one = V::mul(x, V::gather(scale, rows[i].index + t));
            size.add(v, magnitude(one));
            sum.add(v, one);
            one.store(scaled + t);
        });
        own.size = size.total();
        own.sum = sum.total();
        const bool small = own.size < QuantizedRow::largest && m <= QuantizedRow::longest;
        const float per =
            small ? float(32766 - m) / (own.size > 0x1p-90f ? own.size : 0x1p-90f) : 0.0f;
        own.unit = small ? 128 / per : 0;
        const V by = V::splat(per);
        for (Size t = 0; t < m; t += V::lanes)
            V::mul(small ? V::load(scaled + t) : zero, by).store_rounded(own.value + t);
    }
}

// The kernel table for vectors V of float32.
template <class V>
constexpr QuantizedKernels quantized_table() {
    return {.quantize_rows = &quantize_rows<V>,
            .nearest = &nearest_quantized<V>,
            .places_below = &places_below<V>,
            .sum_deltas = &sum_deltas<V>,
            .update_bounds = &update_bounds<typename V::UpTo8Lanes>,
            .reordered_products = &reordered_products<V>};
}

}  // namespace exactmeans
