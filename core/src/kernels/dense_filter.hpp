// Quantised dense vectors, and candidates from integer products, with vectors V of float32. The
// filter needs bounds, not bits: roundings may differ between instruction sets, and the proof page
// (docs/proofs/dense_integer_filter.md) bounds them.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "exactmeans/kernels/integer_products.hpp"
#include "lanes.hpp"

namespace exactmeans {

// Sums of squares have at most 2^14 terms; this covers their roundings and that of the root.
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
    // Adding and subtracting it rounds to a whole number.
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
    // The scaled values are off by three roundings of at most 127.
    out = {inverse, (std::sqrt(residual2) + 0x1p-14f * std::sqrt(float(d))) * sum_up,
           std::sqrt(V::total(norm2)) * sum_up, 0, std::int32_t(V::total(sum))};
    if (residual2 < std::numeric_limits<float>::infinity() && inverse > 0) return;
    for (Size f = 0; f < d; ++f) codes[f] = 0;
    out = {1, 0, 0, std::numeric_limits<float>::infinity(), 0};
}

// Limits allow for the rounding of two canonical scores, and for that of their own arithmetic.
inline float limit_above(float upper, float rounding) {
    const float limit = upper + 2 * rounding;
    return limit + std::fabs(limit) * 0x1p-21f;
}

template <class V>
struct CentreBounds {
    V offset, scale, length;

    static CentreBounds load(const CodedCentres& centres, Size place) {
        return {V::load(centres.offset + place), V::load(centres.scale + place),
                V::load(centres.length + place)};
    }
    // Lower bounds of scores.
    V lows(V product, V inverse, V residual) const {
        const V sized = V::fma(product, scale, V::mul(length, residual));
        return V::fma(offset, inverse, V::sub(V::splat(0), sized));
    }
    V highs(V low, V margin, V inverse, V residual, V width) const {
        const V twice = V::fma(margin, scale, V::mul(length, residual));
        return V::add(low,
                      V::mul(V::fma(width, inverse, V::add(twice, twice)), V::splat(bound_up)));
    }
};

// One row against some units: see CandidateLists.
template <class V, int Vectors>
class RowCandidates {
public:
    RowCandidates(const CandidateLists& rows, Size i)
        : rows_(rows),
          i_(i),
          inverse_(V::splat(rows.rows[i].inverse)),
          residual_(V::splat(rows.rows[i].residual)) {}

    void take(const std::int32_t* products, const CodedCentres& centres, Size first) {
        V low[Vectors];
        const V limit = V::splat(rows_.limit[i_]);
        unsigned above = all;
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v) {
            const auto own = CentreBounds<V>::load(centres, first + v * V::lanes);
            low[v] = own.lows(V::load(products + v * V::lanes), inverse_, residual_);
            above &= V::bits(V::less(limit, low[v]));
        }
        if (above != all) [[unlikely]]
            list(low, centres, first);
        else if (rows_.rest)
            lower_rest(low);
    }

private:
    static constexpr unsigned all = (1u << V::lanes) - 1;

    [[gnu::noinline]] void list(const V* low, const CodedCentres& centres, Size first) {
        lower_limit(low, centres, first);
        const V inf = V::splat(std::numeric_limits<float>::infinity());
        V least = inf;
        for (int v = 0; v < Vectors; ++v) {
            const auto above = V::less(V::splat(rows_.limit[i_]), low[v]);
            if (rows_.rest) least = V::min(V::select(above, low[v], inf), least);
            unsigned left = ~V::bits(above) & all;
            if (!left) continue;
            float lanes[V::lanes];
            low[v].store(lanes);
            for (; left; left &= left - 1) {
                const int lane = __builtin_ctz(left);
                push({std::int32_t(first + v * V::lanes + lane), lanes[lane]});
            }
        }
        if (rows_.rest) lower_rest(V::lowest(least));
    }

    void lower_limit(const V* low, const CodedCentres& centres, Size first) {
        const V margin = V::splat(float(rows_.margin[i_]));
        V least = V::splat(std::numeric_limits<float>::infinity());
        for (int v = 0; v < Vectors; ++v) {
            const Size place = first + v * V::lanes;
            const auto own = CentreBounds<V>::load(centres, place);
            least = V::min(
                own.highs(low[v], margin, inverse_, residual_, V::load(centres.width + place)),
                least);
        }
        const float limit = limit_above(V::lowest(least), rows_.rows[i_].rounding);
        if (limit < rows_.limit[i_]) rows_.limit[i_] = limit;
    }

    void push(const Candidate& candidate) {
        std::int32_t& count = rows_.count[i_];
        Candidate* const list = rows_.list + i_ * CandidateLists::most;
        if (count == CandidateLists::most) drop_above();
        if (count < CandidateLists::most) {
            list[count++] = candidate;
        } else {
            count = CandidateLists::most + 1;
            rows_.limit[i_] = -std::numeric_limits<float>::infinity();
        }
    }
    // Drops candidates above the limit, which has fallen since they were listed.
    void drop_above() {
        std::int32_t& count = rows_.count[i_];
        Candidate* const list = rows_.list + i_ * CandidateLists::most;
        int kept = 0;
        for (int c = 0; c < count; ++c) {
            if (list[c].low <= rows_.limit[i_])
                list[kept++] = list[c];
            else if (rows_.rest)
                lower_rest(list[c].low);
        }
        count = kept;
    }

    void lower_rest(const V* low) {
        V least = low[0];
        for (int v = 1; v < Vectors; ++v) least = V::min(low[v], least);
        lower_rest(V::lowest(least));
    }
    void lower_rest(float low) {
        if (low < rows_.rest[i_]) rows_.rest[i_] = low;
    }

    const CandidateLists& rows_;
    Size i_;
    V inverse_, residual_;
};

template <class V>
void find_candidates(const std::int32_t* products, Size n, const CodedCentres& centres, Size unit,
                     Size units, const CandidateLists& rows) {
    constexpr int per_unit = int(CodedCentres::unit) / V::lanes;
    const auto run = [&]<int Units>() {
        for (Size i = 0; i < n; ++i)
            RowCandidates<V, Units * per_unit>(rows, i).take(
                products + i * Units * CodedCentres::unit, centres, unit * CodedCentres::unit);
    };
    static_assert(CodedCentres::most_units == 4);
    switch (units) {
        case 1:
            return run.template operator()<1>();
        case 2:
            return run.template operator()<2>();
        case 3:
            return run.template operator()<3>();
        default:
            return run.template operator()<4>();
    }
}

template <class V>
void limit_by(const std::int32_t* products, const std::int32_t* centre, Size n,
              const CodedCentres& centres, const CandidateLists& rows) {
    for (Size i = 0; i < n; ++i) {
        const CodedVector& row = rows.rows[i];
        const Size j = Size(centre[i]);
        const float margin = float(rows.margin[i]),
                    wide = (centres.length[j] * row.residual + centres.scale[j] * margin +
                            centres.width[j] * row.inverse) *
                           bound_up,
                    middle =
                        centres.offset[j] * row.inverse - centres.scale[j] * float(products[i]),
                    // The bounds below are of the lower end of `offset`; `width` reaches its upper.
            limit = limit_above(middle + wide, row.rounding);
        if (limit < rows.limit[i]) rows.limit[i] = limit;
    }
}

template <class V>
constexpr FilterKernels filter_table() {
    return {
        .quantize = &quantize<V>, .find_candidates = &find_candidates<V>, .limit_by = &limit_by<V>};
}

}  // namespace exactmeans
