// Kernels of 8-bit scores of CSR rows (filter/quantized_centres.hpp), with vectors V::Shorts of
// 16-bit lanes, which are as wide as two vectors V.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "csr.hpp"
#include "exactmeans/kernels/quantized.hpp"

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

// Independent partial sums, and a total in an order that all instruction sets share.
inline constexpr int stripe_width = 16;
template <class V>
class Stripes {
public:
    void add(int v, V x) { sum_[v] = V::add(sum_[v], x); }
    float total() {
        for (int half = vectors / 2; half > 0; half /= 2)
            for (int v = 0; v < half; ++v) sum_[v] = V::add(sum_[v], sum_[v + half]);
        return V::total(sum_[0]);
    }

private:
    static constexpr int vectors = stripe_width / V::lanes;
    V sum_[vectors] = {};
};

// Calls visit(first entry, stripe, entries) for vectors of entries of a row; entries past the end
// count as 0.
template <class V, class Visit>
inline void for_stripes(const PackedCsrRow<float>& row, Visit visit) {
    constexpr int vectors = stripe_width / V::lanes;
    static_assert(stripe_width <= readable_past_row);
    const Size m = row.nonzeros;
    Size t = 0;
    for (; t + stripe_width <= m; t += stripe_width)
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v)
            visit(t + v * V::lanes, v, V::load(row.value + t + v * V::lanes));
    for (int v = 0; v < vectors && t < m; ++v, t += V::lanes)
        visit(t, v,
              V::select(V::less(V::iota(), V::splat(float(m - t))), V::load(row.value + t),
                        V::splat(0)));
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

template <class V>
void sum_deltas(const PackedCsrRow<float>* rows, Size n, const float* table, DeltaSums* out) {
    for (Size i = 0; i < n; ++i) {
        Stripes<V> fall, rise;
        for_stripes<V>(rows[i], [&](Size t, int v, V x) {
            const V up = V::max(x, V::splat(0)), down = V::sub(up, x);
            const V a = V::gather(table, rows[i].index + t), b = V::low_half(a);
            fall.add(v, V::add(V::mul(up, a), V::mul(down, b)));
            rise.add(v, V::add(V::mul(up, b), V::mul(down, a)));
        });
        out[i] = {fall.total(), rise.total()};
    }
}

// Sums of the table over the entries of a row for all groups at once: lanes run across groups.
// Negative entries swap a and b; if Signed, their sums are kept separately, behind the others.
template <class V, bool Signed>
inline void add_group_deltas(const PackedCsrRow<float>& row, const GroupDeltaTable* table,
                             float* out) {
    constexpr int width = 2 * int(QuantizedPanels::most_groups), vectors = width / V::lanes,
                  chains = 4, signs = Signed ? 2 : 1;
    static_assert(vectors * V::lanes == width && chains <= readable_past_row);
    const std::uint32_t* const index = row.index;
    const Size m = row.nonzeros;
    V sum[signs * vectors][chains];
#pragma GCC unroll 32
    for (int v = 0; v < signs * vectors; ++v)
#pragma GCC unroll 32
        for (int s = 0; s < chains; ++s) sum[v][s] = V::splat(0);
    const auto add = [&](Size t, const float* x) {
#pragma GCC unroll 32
        for (int s = 0; s < chains; ++s) {
            const V one = V::splat(x[s]), above = Signed ? V::max(one, V::splat(0)) : one;
#pragma GCC unroll 32
            for (int v = 0; v < vectors; ++v) {
                const V delta = V::load_halves(table[index[t + s]].half + v * V::lanes);
                sum[v][s] = V::add(sum[v][s], V::mul(above, delta));
                if constexpr (Signed)
                    sum[vectors + v][s] =
                        V::add(sum[vectors + v][s], V::mul(V::sub(above, one), delta));
            }
        }
    };
    Size t = 0;
    for (; t + chains <= m; t += chains) add(t, row.value + t);
    // Branch-free, because the branch would be mispredicted: entries past the end count as 0.
    float last[chains];
    for (int s = 0; s < chains; ++s) last[s] = t + s < m ? row.value[t + s] : 0.0f;
    add(t, last);
#pragma GCC unroll 32
    for (int v = 0; v < signs * vectors; ++v)
        V::add(V::add(sum[v][0], sum[v][1]), V::add(sum[v][2], sum[v][3]))
            .store(out + v * V::lanes);
}

template <class V, bool Signed>
Size update_row_bounds(const PackedCsrRow<float>* rows, Size n, const GroupDeltas& deltas,
                       const std::int32_t* labels, RowBounds* bounds, std::int32_t* crossed) {
    constexpr int groups = int(QuantizedPanels::most_groups);
    const auto size = [](float x) { return __builtin_fabsf(x); };
    Size count = 0;
    for (Size i = 0; i < n; ++i) {
        float sums[(Signed ? 4 : 2) * groups], fall[groups], rise[groups], low[groups];
        add_group_deltas<V, Signed>(rows[i], deltas.table, sums);
        for (int g = 0; g < groups; ++g) {
            fall[g] = sums[g];
            rise[g] = sums[groups + g];
            if constexpr (Signed) {
                fall[g] += sums[3 * groups + g];
                rise[g] += sums[2 * groups + g];
            }
        }
        // The margin covers the rounding of these sums, and of canonical scores, whose error grows
        // with the values.
        const float m = float(rows[i].nonzeros), part = (m + 16) * 0x1.01p-22f,
                    rest = m * deltas.tiny + 0x1p-120f;
        RowBounds& own = bounds[i];
        for (int g = 0; g < groups; ++g) {
            const float more = (fall[g] + rise[g]) * part + deltas.extra[g],
                        by = fall[g] + more + deltas.fall[g], now = own.low[g] - by;
            rise[g] += more;
            low[g] = now - ((size(now) + 2 * by) * 0x1p-22f + rest);
        }
        for (int g = 0; g < groups; ++g) own.low[g] = low[g];
        const GroupDeltas::Centre& centre = deltas.centres[labels[i]];
        if (centre.group >= 0) {
            const float by = rise[centre.group], now = own.high + by + centre.rise;
            own.high =
                now +
                ((size(now) + size(own.high) + 2 * (by + size(centre.rise))) * 0x1p-22f + rest);
        }
        // Compared one by one, because a NaN bound must not hide another.
        bool certain = true;
        for (int g = 0; g < groups; ++g) certain &= own.high < low[g];
        crossed[count] = std::int32_t(i);
        count += !certain;
    }
    return count;
}

template <class V>
Size update_bounds(const PackedCsrRow<float>* rows, Size n, bool any_negative,
                   const GroupDeltas& deltas, const std::int32_t* labels, RowBounds* bounds,
                   std::int32_t* crossed) {
    return any_negative ? update_row_bounds<V, true>(rows, n, deltas, labels, bounds, crossed)
                        : update_row_bounds<V, false>(rows, n, deltas, labels, bounds, crossed);
}

template <class V>
void reordered_products(const PackedCsrRow<float>* rows, Size n, const float* centre, float* out) {
    for (Size i = 0; i < n; ++i) {
        Stripes<V> sum;
        for_stripes<V>(rows[i], [&](Size t, int v, V x) {
            sum.add(v, V::mul(x, V::gather(centre, rows[i].index + t)));
        });
        out[i] = sum.total();
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
