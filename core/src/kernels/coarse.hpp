// CSR rows against centres of 8 bits (exactmeans/coarse.hpp), by vectors V::Shorts of 16-bit lanes,
// which are as wide as two of V.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "csr.hpp"

namespace exactmeans {

// Sums of one row with `Units` units that stand side by side in slots `width` bytes apart, and what
// becomes of them: visit(score, lanes from this place on), ascending.
template <class V, int Units, class Visit>
inline void for_coarse_units(const CoarseRow& row, const std::int8_t* values, Size width,
                             const float* start, Visit visit) {
    using W = typename V::Shorts;
    constexpr int unit = int(CoarsePanels::unit), bytes = 2 * W::lanes, loads = unit / bytes;
    W low[Units * loads], whole[Units * loads];
#pragma GCC unroll 32
    for (int v = 0; v < Units * loads; ++v) low[v] = whole[v] = W::splat(0);
    for (Size t = 0; t < row.nonzeros; ++t) {
        const std::int8_t *centre = values + Size(row.index[t]) * width,
                          *next = values + Size(row.index[t + coarse_ahead]) * width;
#pragma GCC unroll 32
        for (int u = 0; u < Units; ++u) __builtin_prefetch(next + u * unit);
        const W x = W::splat(row.value[t]);
#pragma GCC unroll 32
        for (int v = 0; v < Units * loads; ++v) {
            const W words = W::load(centre + v * bytes);
            low[v] = W::add(low[v], W::product(x, W::raised(words)));
            whole[v] = W::add(whole[v], W::product(x, words));
        }
    }
    const V scale = V::splat(row.unit);
    const auto see = [&](const W& sum, int place) {
        V first, second;
        W::widen(sum, first.v, second.v);
        visit(V::fma(first, scale, V::load(start + place)), place);
        visit(V::fma(second, scale, V::load(start + place + V::lanes)), place + V::lanes);
    };
#pragma GCC unroll 32
    for (int u = 0; u < Units; ++u) {
#pragma GCC unroll 32
        for (int v = 0; v < loads; ++v) see(low[u * loads + v], u * unit + v * W::lanes);
#pragma GCC unroll 32
        for (int v = 0; v < loads; ++v)
            see(whole[u * loads + v], u * unit + unit / 2 + v * W::lanes);
    }
}

// The same with a whole panel, as many units at a time as there are registers for.
template <class V, int Units, class Visit>
inline void for_coarse_panel(const CoarseRow& row, const CoarsePanels& centres, Size first,
                             Visit visit) {
    constexpr int unit = int(CoarsePanels::unit),
                  some = Units < V::Shorts::units ? Units : V::Shorts::units;
    static_assert(Units % some == 0);
#pragma GCC unroll 32
    for (int u = 0; u < Units; u += some)
        for_coarse_units<V, some>(row, centres.values + first * centres.d + u * unit, Units * unit,
                                  centres.start + first + u * unit,
                                  [&](V score, int place) { visit(score, place + u * unit); });
}

// Calls run.operator()<Units>().
template <class Run>
void with_units(const CoarsePanels::Panel& panel, Run run) {
    [&]<int... Less>(std::integer_sequence<int, Less...>) {
        ((panel.units == Less + 1 ? run.template operator()<Less + 1>() : void()), ...);
    }(std::make_integer_sequence<int, int(CoarsePanels::most_units)>());
}

// Asks for memory in n parts.
template <class V>
class Fetch {
public:
    Fetch(const Upcoming& next, Size n) : next_(next) {
        for (int r = 0; r < ranges; ++r) part_[r] = (next.ranges[r].bytes / n + line) / line * line;
    }
    void part() {
        for (int r = 0; r < ranges; ++r) {
            const Upcoming::Range& range = next_.ranges[r];
            const Size past = at_[r] + part_[r] < range.bytes ? at_[r] + part_[r] : range.bytes;
            for (; at_[r] < past; at_[r] += line)
                __builtin_prefetch(static_cast<const char*>(range.begin) + at_[r], 0, 2);
        }
    }

private:
    static constexpr int ranges = 2;
    static constexpr Size line = 64;
    Upcoming next_;
    Size at_[ranges] = {}, part_[ranges];
};

template <class V>
void coarse_csr(const CoarseRow* rows, Size n, const CoarsePanels& centres,
                const Nearest<float>& out, float* lows, const Upcoming& next) {
    if (n == 0) return;
    Fetch<V> fetch(next, n);
    for (Size p = 0; p < centres.count(); ++p, lows += n) {
        const CoarsePanels::Panel panel = centres.panel(p);
        with_units(panel, [&]<int Units>() {
            const Size first = panel.first;
            const auto best_of = [&](Size i) {
                fetch.part();
                LaneBest<V> best = LaneBest<V>::none();
                V number = V::add(V::splat(float(first)), V::iota());
                for_coarse_panel<V, Units>(rows[i], centres, first, [&](V score, int) {
                    best.template take<true>(score, number);
                    number = V::add(number, V::splat(float(V::lanes)));
                });
                return best;
            };
            take_panel<V, true>(n, first, out, best_of, lows);
        });
    }
}

template <class V>
Size coarse_below(const CoarseRow& row, const CoarsePanels& centres, Size p, float limit,
                  std::int32_t* list, float& others) {
    const CoarsePanels::Panel panel = centres.panel(p);
    const V most = V::splat(limit), inf = V::splat(std::numeric_limits<float>::infinity());
    V least = inf;
    Size count = 0;
    with_units(panel, [&]<int Units>() {
        for_coarse_panel<V, Units>(row, centres, panel.first, [&](V score, int place) {
            const auto above = V::less(most, score);
            least = V::min(least, V::select(above, score, inf));
            constexpr unsigned all = (1u << V::lanes) - 1;
            for (unsigned left = ~V::bits(above) & all; left; left &= left - 1)
                list[count++] = std::int32_t(panel.first + place + __builtin_ctz(left));
        });
    });
    const float low = V::lowest(least);
    if (low < others) others = low;
    return count;
}

// Sums that need not wait for each other, and a total in an order that all instruction sets have in
// common.
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

// Calls visit(first entry, number of the stripes that they go to, entries) for vectors of a row's
// entries; what is behind the row counts as 0.
template <class V, class Visit>
inline void for_stripes(const SlotRow<float>& row, Visit visit) {
    constexpr int vectors = stripe_width / V::lanes;
    static_assert(stripe_width <= coarse_ahead);
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
void coarse_rows(const SlotRow<float>* rows, Size n, const float* step, float* sized,
                 CoarseRow* out) {
    const V zero = V::splat(0);
    for (Size i = 0; i < n; ++i) {
        CoarseRow& own = out[i];
        const Size m = own.nonzeros;
        Stripes<V> size, sum;
        for_stripes<V>(rows[i], [&](Size t, int v, V x) {
            const V one = V::mul(x, V::gather(step, rows[i].index + t));
            size.add(v, magnitude(one));
            sum.add(v, one);
            one.store(sized + t);
        });
        own.size = size.total();
        own.sum = sum.total();
        const bool small = own.size < CoarseRow::largest && m <= CoarseRow::longest;
        const float scale =
            small ? float(32766 - m) / (own.size > 0x1p-90f ? own.size : 0x1p-90f) : 0.0f;
        own.unit = small ? 128 / scale : 0;
        const V by = V::splat(scale);
        for (Size t = 0; t < m; t += V::lanes)
            V::mul(small ? V::load(sized + t) : zero, by).store_rounded(own.value + t);
    }
}

template <class V>
void coarse_reach(const SlotRow<float>* rows, Size n, const float* table, CoarseReach* out) {
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

template <class V>
void loose_products(const SlotRow<float>* rows, Size n, const float* centre, float* out) {
    for (Size i = 0; i < n; ++i) {
        Stripes<V> sum;
        for_stripes<V>(rows[i], [&](Size t, int v, V x) {
            sum.add(v, V::mul(x, V::gather(centre, rows[i].index + t)));
        });
        out[i] = sum.total();
    }
}

// The kernels above, for vectors of float32.
template <class V>
struct CoarseKernels {
    using R = typename V::Real;
    decltype(Kernels<R>::coarse_rows) rows = nullptr;
    decltype(Kernels<R>::coarse_csr) csr = nullptr;
    decltype(Kernels<R>::coarse_reach) reach = nullptr;
    decltype(Kernels<R>::coarse_below) below = nullptr;
    decltype(Kernels<R>::loose_products) products = nullptr;
    constexpr CoarseKernels() {
        if constexpr (sizeof(R) == sizeof(float)) {
            rows = &coarse_rows<V>;
            csr = &coarse_csr<V>;
            reach = &coarse_reach<V>;
            below = &coarse_below<V>;
            products = &loose_products<V>;
        }
    }
};

}  // namespace exactmeans
