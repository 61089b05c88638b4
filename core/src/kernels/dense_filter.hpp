// Quantised dense vectors, and candidates from integer products, with vectors V of float32. Bounds
// need not have the same bits in every instruction set, so the order of additions is free;
// docs/proofs/dense_integer_filter.md bounds the rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "exactmeans/kernels/integer_products.hpp"
#include "lanes.hpp"

namespace exactmeans {

// Covers the roundings of a sum of up to 2^14 squares, and of its root.
inline constexpr float sum_up = 1 + 0x1p-9f;
// Covers the roundings of one bound.
inline constexpr float bound_up = 1 + 0x1p-20f;

template <class V>
float largest_magnitude(const float* values, Size d) {
    V most = V::splat(0);
    for (Size f = 0; f < d; f += V::lanes) most = V::max(magnitude(V::load(values + f)), most);
    return -V::lowest(V::sub(V::splat(0), most));
}

template <class V>
void quantize(const float* values, Size d, float least, std::int8_t* codes, CodedVector& out) {
    const float largest = largest_magnitude<V>(values, d), step = largest * (1 / 127.0f),
                scale = step > least ? step : least, inverse = 1 / scale;
    // Adding and subtracting 0x1.8p23 rounds to a whole number.
    const V by = V::splat(inverse), whole = V::splat(0x1.8p23f);
    V left2 = V::splat(0), norm2 = left2, sum = left2;
    for (Size f = 0; f < d; f += V::lanes) {
        const V value = V::mul(V::load(values + f), by), code = V::sub(V::add(value, whole), whole),
                left = V::sub(value, code);
        left2 = V::fma(left, left, left2);
        norm2 = V::fma(code, code, norm2);
        sum = V::add(sum, code);
        code.store_rounded(codes + f);
    }
    const float residual2 = V::total(left2);
    // Each scaled value, at most 127 in magnitude, has three rounding errors, together below 2^-14.
    out = {inverse, (std::sqrt(residual2) + 0x1p-14f * std::sqrt(float(d))) * sum_up,
           std::sqrt(V::total(norm2)) * sum_up, 0, std::int32_t(V::total(sum))};
    if (residual2 < std::numeric_limits<float>::infinity() && inverse > 0) return;
    for (Size f = 0; f < d; ++f) codes[f] = 0;
    out = {1, 0, 0, std::numeric_limits<float>::infinity(), 0};
}

// Calls fn with `units` as a compile-time constant.
template <class Fn>
void with_units(Size units, Fn fn) {
    static_assert(CodedCentres::most_units == 4);
    switch (units) {
        case 1:
            return fn(std::integral_constant<int, 1>{});
        case 2:
            return fn(std::integral_constant<int, 2>{});
        case 3:
            return fn(std::integral_constant<int, 3>{});
        default:
            return fn(std::integral_constant<int, 4>{});
    }
}

template <class V>
struct CentreBounds {
    V offset, minus_scale, length;

    static CentreBounds load(const CodedCentres& centres, Size place) {
        return {V::load(centres.offset + place), V::load(centres.minus_scale + place),
                V::load(centres.length + place)};
    }
    // Lower bounds of scores.
    V lows(V product, V inverse, V minus_residual) const {
        return V::fma(product, minus_scale,
                      V::fma(length, minus_residual, V::mul(offset, inverse)));
    }
    // Upper bounds, from lower ones.
    V highs(V low, V margin, V inverse, V minus_residual, V width) const {
        const V half = V::fma(margin, minus_scale, V::mul(length, minus_residual));
        return V::add(
            low, V::mul(V::sub(V::mul(width, inverse), V::add(half, half)), V::splat(bound_up)));
    }
};

// One row against `Vectors` vectors of centres, from place `first` on; see CandidateLists.
template <class V, int Vectors>
class RowCandidates {
public:
    RowCandidates(const CandidateLists& rows, Size i, const CodedCentres& centres, Size first)
        : rows_(rows),
          i_(i),
          centres_(centres),
          first_(first),
          inverse_(V::splat(rows.rows[i].inverse)),
          minus_residual_(V::splat(-rows.rows[i].residual)) {}

    // Computes the lower bounds; returns the lanes where they do not exceed the limit.
    std::uint64_t bound(const std::int32_t* products, float* lows) const {
        return not_above_limit([&](int v) {
            const auto own = CentreBounds<V>::load(centres_, first_ + v * V::lanes);
            const V low = own.lows(V::load(products + v * V::lanes), inverse_, minus_residual_);
            low.store(lows + v * V::lanes);
            return low;
        });
    }

    // Lists the lanes in `below`. Unless the limit comes from a label, lowers the limit first, so
    // that few lanes remain.
    void list(std::uint64_t below, const float* lows) {
        if (!rows_.labelled) {
            lower_limit(lows);
            below = not_above_limit([&](int v) { return V::load(lows + v * V::lanes); });
        }
        for (; below; below &= below - 1) {
            const int lane = __builtin_ctzll(below);
            push({std::int32_t(first_ + lane), lows[lane]});
        }
    }

private:
    // The lanes of the vectors low_of(v) that do not exceed the limit.
    template <class LowOf>
    std::uint64_t not_above_limit(LowOf low_of) const {
        const V limit = V::splat(rows_.limit[i_]);
        constexpr unsigned all = (1u << V::lanes) - 1;
        std::uint64_t lanes = 0;
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v)
            lanes |= std::uint64_t(~V::bits(V::less(limit, low_of(v))) & all) << (v * V::lanes);
        return lanes;
    }

    void lower_limit(const float* lows) {
        const V margin = V::splat(float(rows_.margin[i_]));
        V least = V::splat(std::numeric_limits<float>::infinity());
        for (int v = 0; v < Vectors; ++v) {
            const Size place = first_ + v * V::lanes;
            const auto own = CentreBounds<V>::load(centres_, place);
            least = V::min(own.highs(V::load(lows + v * V::lanes), margin, inverse_,
                                     minus_residual_, V::load(centres_.width + place)),
                           least);
        }
        const float limit = limit_above(V::lowest(least), rows_.rows[i_].rounding);
        if (limit < rows_.limit[i_]) rows_.limit[i_] = limit;
    }

    void push(const Candidate& candidate) {
        std::int32_t& count = rows_.count[i_];
        Candidate* const list = rows_.list + i_ * CandidateLists::most;
        if (count == CandidateLists::most) drop_above(count, list);
        if (count < CandidateLists::most) {
            list[count++] = candidate;
        } else {
            count = CandidateLists::most + 1;
            rows_.limit[i_] = -std::numeric_limits<float>::infinity();
        }
    }
    // Drops candidates above the limit, which has fallen since they were listed.
    void drop_above(std::int32_t& count, Candidate* list) {
        int kept = 0;
        for (int c = 0; c < count; ++c)
            if (list[c].low <= rows_.limit[i_]) list[kept++] = list[c];
        count = kept;
    }

    const CandidateLists& rows_;
    Size i_;
    const CodedCentres& centres_;
    Size first_;
    V inverse_, minus_residual_;
};

// Collects the rows with candidates branch-free, because the branch would be mispredicted: most
// rows have one candidate, in one of all groups of units.
template <class V, int Units>
void find_in_units(const std::int32_t* products, Size n, const CodedCentres& centres, Size first,
                   const CandidateLists& rows) {
    constexpr int width = Units * int(CodedCentres::unit);
    constexpr Size tile = CandidateLists::tile;
    using Row = RowCandidates<V, width / V::lanes>;
    alignas(64) float lows[tile * width];
    std::uint64_t below[tile];
    std::int32_t found[tile];
    for (Size begin = 0; begin < n; begin += tile) {
        const Size some = n - begin < tile ? n - begin : tile;
        Size count = 0;
        for (Size t = 0; t < some; ++t) {
            below[t] = Row(rows, begin + t, centres, first)
                           .bound(products + (begin + t) * width, lows + t * width);
            found[count] = std::int32_t(t);
            count += below[t] != 0;
        }
        for (Size f = 0; f < count; ++f) {
            const Size t = found[f];
            Row(rows, begin + t, centres, first).list(below[t], lows + t * width);
        }
    }
}

template <class V>
void find_candidates(const std::int32_t* products, Size n, const CodedCentres& centres, Size unit,
                     Size units, const CandidateLists& rows) {
    with_units(units, [&](auto known) {
        find_in_units<V, known>(products, n, centres, unit * CodedCentres::unit, rows);
    });
}

template <class V>
void limit_by(const std::int32_t* products, const std::int32_t* centre, Size n,
              const CodedCentres& centres, const CandidateLists& rows) {
    for (Size i = 0; i < n; ++i) {
        const CodedVector& row = rows.rows[i];
        const Size j = Size(centre[i]);
        const float margin = float(rows.margin[i]),
                    wide = (centres.length[j] * row.residual - centres.minus_scale[j] * margin +
                            centres.width[j] * row.inverse) *
                           bound_up,
                    middle = centres.offset[j] * row.inverse +
                             centres.minus_scale[j] * float(products[i]),
                    limit = limit_above(middle + wide, row.rounding);
        if (limit < rows.limit[i]) rows.limit[i] = limit;
    }
}

template <class V, int Units>
void bound_units(const std::int32_t* products, Size n, const CodedCentres& centres, Size first,
                 const ScoreBounds& rows) {
    constexpr int width = Units * int(CodedCentres::unit);
    for (Size i = 0; i < n; ++i) {
        const CodedVector& row = rows.rows[i];
        const V inverse = V::splat(row.inverse), minus_residual = V::splat(-row.residual),
                margin = V::splat(float(rows.margin[i]));
        float* const lows = rows.lows + i * rows.pitch + first;
        float* const highs = rows.highs + i * ScoreBounds::lanes;
#pragma GCC unroll 16
        for (int v = 0; v < width; v += V::lanes) {
            const auto own = CentreBounds<V>::load(centres, first + v);
            const V low = own.lows(V::load(products + i * width + v), inverse, minus_residual),
                    high = own.highs(low, margin, inverse, minus_residual,
                                     V::load(centres.width + first + v));
            low.store(lows + v);
            V::min(high, V::load(highs + v)).store(highs + v);
        }
    }
}

template <class V>
void bound_scores(const std::int32_t* products, Size n, const CodedCentres& centres, Size unit,
                  Size units, const ScoreBounds& rows) {
    with_units(units, [&](auto known) {
        bound_units<V, known>(products, n, centres, unit * CodedCentres::unit, rows);
    });
}

template <class V>
Size places_below(const float* lows, Size n, float limit, std::int32_t* out) {
    const V bound = V::splat(limit);
    Size found = 0;
    for (Size place = 0; place < n; place += V::lanes) {
        unsigned below = ~V::bits(V::less(bound, V::load(lows + place))) & ((1u << V::lanes) - 1);
        for (; below; below &= below - 1) out[found++] = std::int32_t(place) + __builtin_ctz(below);
    }
    return found;
}

template <class V>
float lowest_value(const float* values, Size n) {
    V least = V::splat(std::numeric_limits<float>::infinity());
    for (Size t = 0; t < n; t += V::lanes) least = V::min(V::load(values + t), least);
    return V::lowest(least);
}

template <class V>
constexpr FilterKernels filter_table() {
    return {.quantize = &quantize<V>,
            .find_candidates = &find_candidates<V>,
            .limit_by = &limit_by<V>,
            .bound_scores = &bound_scores<V>,
            .places_below = &places_below<V>,
            .lowest = &lowest_value<V>};
}

}  // namespace exactmeans
