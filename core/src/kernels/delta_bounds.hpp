// Kernels of delta bounds (assign/sparse/delta_bounds.hpp, grouped_delta_bounds.hpp): sums of
// tables of centre changes over CSR rows. docs/proofs/delta_bounds.md bounds the rounding.
#pragma once

#include <cstdint>

#include "exactmeans/kernels/quantized.hpp"
#include "stripes.hpp"

namespace exactmeans {

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

}  // namespace exactmeans
