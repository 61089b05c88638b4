// Sums over the entries of a CSR row in float32, in an order that all instruction sets share.
#pragma once

#include "exactmeans/kernels/quantized.hpp"

namespace exactmeans {

inline constexpr int stripe_width = 16;  // partial sums of a row

// The partial sums of a row, in vectors.
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

}  // namespace exactmeans
