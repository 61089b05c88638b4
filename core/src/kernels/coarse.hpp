// CSR rows against centres in 16 bits (exactmeans/coarse.hpp).
#pragma once

#include <cstdint>

#include "csr.hpp"

namespace exactmeans {

// Adds products of x with one feature of so many units.
template <class V, int Units>
inline void add_coarse(V x, const std::int16_t* centre, V* sum) {
    constexpr int vectors = Side<V, Units>::vectors;
    if constexpr (V::lanes > unit_width<float>) {
#pragma GCC unroll 32
        for (int v = 0; v < Units / 2; ++v)
            sum[v] = V::fma(x, V::halves(centre + v * V::lanes), sum[v]);
        if constexpr (Units % 2)
            sum[Units / 2] = V::fma(x, V::raised(centre + Units / 2 * V::lanes), sum[Units / 2]);
    } else {
        constexpr int each = int(unit_width<float>) / V::lanes;  // vectors of a unit
#pragma GCC unroll 32
        for (int v = 0; v + 2 * each <= vectors; v += 2 * each) {
#pragma GCC unroll 32
            for (int w = v; w < v + each; ++w) {
                V low, whole;
                V::halves(centre + v * V::lanes + (w - v) * 2 * V::lanes, low, whole);
                sum[w] = V::fma(x, low, sum[w]);
                sum[w + each] = V::fma(x, whole, sum[w + each]);
            }
        }
#pragma GCC unroll 32
        for (int v = vectors / (2 * each) * (2 * each); v < vectors; ++v)
            sum[v] = V::fma(x, V::raised(centre + v * V::lanes), sum[v]);
    }
}

// One row against a panel of 16-bit centres: the lowest scores that it may have.
template <class V, int Units>
inline LaneBest<V> coarse_best(const CoarseRow& row, const CoarsePanels& centres, Size first) {
    using Own = Side<V, Units>;
    constexpr int vectors = Own::vectors;
    constexpr Size width = Own::width;
    const std::int16_t* values = centres.values + first * centres.lanes.d;
    V sum[vectors];
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) sum[v] = V::splat(0);
    for (Size t = 0; t < row.nonzeros; ++t) {
        const std::int16_t *centre = values + Size(row.index[t]) * width,
                           *next = values + Size(row.index[t + coarse_ahead]) * width;
#pragma GCC unroll 32
        for (Size l = 0; l < width; l += 32) __builtin_prefetch(next + l);
        add_coarse<V, Units>(V::splat(row.value[t]), centre, sum);
    }
    const V error = V::splat(row.error);
    LaneBest<V> best = LaneBest<V>::none();
    V number = V::add(V::splat(float(first)), V::iota());
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) {
        const Size at = first + v * V::lanes;
        const V low = V::fma(V::sub(sum[v], error), Own::load(centres.part + at, v),
                             Own::load_start(centres.lanes.start + at, v));
        best.template take<true>(low, number);
        number = V::add(number, V::splat(float(V::lanes)));
    }
    return best;
}

template <class V>
void coarse_csr(const CoarseRow* rows, Size n, const CoarsePanels& centres,
                const Nearest<float>& out) {
    for_csr_panels<V>(centres.lanes, [&]<int Units>(Size first) {
        take_panel<V, true>(n, first, out,
                            [&](Size i) { return coarse_best<V, Units>(rows[i], centres, first); });
    });
}
template <class V>
constexpr auto coarse_or_null() -> decltype(Kernels<typename V::Real>::coarse_csr) {
    if constexpr (sizeof(typename V::Real) == sizeof(float))
        return &coarse_csr<V>;
    else
        return nullptr;
}

}  // namespace exactmeans
