// Kernels of distance bounds, many rows at a time. The compiler vectorises the plain loops over
// small local arrays for each instruction set. V also keeps the instantiations of the instruction
// sets apart.
#pragma once

#include "exactmeans/kernels/bounds.hpp"
#include "lanes.hpp"

namespace exactmeans {

template <class V>
inline float root(float x) {
    return __builtin_sqrtf(x);
}
template <class V>
inline double root(double x) {
    return __builtin_sqrt(x);
}

// The square of the radius beyond which centres can be pruned: near^2 plus the slack
// (numerics/slack.hpp).
template <class V>
inline float pruning_radius2(float near, float norm, float gamma, float underflow) {
    const float both = norm + near;
    return near * near + 7 * gamma * (both * both) + 2 * underflow;
}

template <class V>
Size survivors(const BoundRows& rows, Size begin, Size end, Size* out) {
    constexpr Size block = 64;
    float near[block], far[block], next[block];
    std::uint8_t survives[block];
    const Margins& margins = rows.margins;
    Size found = 0;
    for (Size first = begin; first < end; first += block) {
        const Size count = end - first < block ? end - first : block;
        for (Size t = 0; t < count; ++t) {
            const Size i = first + t, own = rows.labels[i] < 0 ? 0 : rows.labels[i];
            near[t] = rows.own[own];
            far[t] = rows.others[own];
            next[t] = rows.nearest[own];
        }
        for (Size t = 0; t < count; ++t) {
            const Size i = first + t;
            float u = (rows.upper[i] + near[t]) * up32;
            u = u < 0 ? 0 : u;  // keeps NaN, with which nothing is pruned
            const float kept = rows.lower[i] - far[t], by_centres = next[t] - u,
                        l = kept > by_centres ? kept : by_centres;
            const float norm = margins.norm[i], underflow = margins.absolute + margins.lost * norm;
            const bool apart = (l > 0) & (l * l * down32 >
                                          pruning_radius2<V>(u, norm, margins.gamma[i], underflow));
            survives[t] = !apart;
        }
        for (Size t = 0; t < count; ++t) {
            out[found] = first + t;
            found += survives[t];
        }
    }
    return found;
}

template <class V>
void reach(const Margins& margins, const Size* ids, const float* near, Size n, float* out) {
    constexpr Size block = 64;
    float norm[block], gamma[block];
    for (Size first = 0; first < n; first += block) {
        const Size count = n - first < block ? n - first : block;
        for (Size t = 0; t < count; ++t) {
            norm[t] = margins.norm[ids[first + t]];
            gamma[t] = margins.gamma[ids[first + t]];
        }
        for (Size t = 0; t < count; ++t) {
            const float underflow = margins.absolute + margins.lost * norm[t];
            const float far2 = pruning_radius2<V>(near[first + t], norm[t], gamma[t], underflow);
            // The radius is infinite where nothing may be pruned. The cap excludes padding entries,
            // which are `unreachable`.
            const float far = root<V>(far2) * up32;
            out[first + t] = far < 0.5f * unreachable ? far : 0.5f * unreachable;
        }
    }
}

template <class V>
Size within(const GroupLowerBounds& lowers, Size n, float reach, std::int32_t* out, float& least) {
    const V bound = V::splat(reach), near = V::splat(lowers.near);
    V low = V::splat(std::numeric_limits<float>::infinity());
    Size found = 0;
    for (Size g = 0; g < n; g += V::lanes) {
        const V kept = V::sub(V::load(lowers.lower + g), V::load(lowers.drift + g));
        const V far = V::max(kept, V::sub(V::load(lowers.centre_distance + g), near));
        low = V::min(low, far);
        const unsigned apart = V::bits(V::less(bound, far));
        unsigned in_reach = ~apart & ((1u << V::lanes) - 1);
        for (; in_reach; in_reach &= in_reach - 1)
            out[found++] = std::int32_t(g) + __builtin_ctz(in_reach);
    }
    least = V::lowest(low);
    return found;
}

template <class V>
void lowest_in_tile(const float* products, const float* score_offset, const float* scale, Size k,
                    float* low, float* second, float* label) {
    constexpr int vectors = 4;
    constexpr Size step = Size(vectors) * V::lanes;
    static_assert(bound_tile % step == 0);
    for (Size begin = 0; begin < bound_tile; begin += step) {
        LaneBest<V> best[vectors];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) best[v] = LaneBest<V>::none();
        for (Size j = 0; j < k; ++j) {
            const V from = V::splat(score_offset[j]), minus = V::splat(-scale[j]),
                    number = V::splat(float(j));
            const float* own = products + j * bound_tile + begin;
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v)
                best[v].template take<true>(V::fma(minus, V::load(own + v * V::lanes), from),
                                            number);
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            best[v].score.store(low + begin + v * V::lanes);
            best[v].second.store(second + begin + v * V::lanes);
            best[v].centre.store(label + begin + v * V::lanes);
        }
    }
}

// Bounds of distances from scores, in units: not below (upper) or not above (lower) the true
// distance.
template <class V, bool Upper>
void score_bounds(const ScoredRows<typename V::Real>& rows, const Size* ids,
                  const typename V::Real* score, Size n, float* out) {
    using R = typename V::Real;
    constexpr Size block = 64;
    constexpr R infinity = std::numeric_limits<R>::infinity();
    const Margins& margins = rows.margins;
    R norm2[block], norm[block], gamma[block], unit2[block];
    for (Size first = 0; first < n; first += block) {
        const Size count = n - first < block ? n - first : block;
        for (Size t = 0; t < count; ++t) {
            const Size i = ids[first + t];
            norm2[t] = rows.norm2[i];
            unit2[t] = rows.units2 ? rows.units2[i] : rows.unit2;
            norm[t] = R(margins.norm[i]);
            gamma[t] = R(margins.gamma[i]);
        }
        for (Size t = 0; t < count; ++t) {
            const R s = score[first + t];
            R d2 = (norm2[t] + 2 * s) * unit2[t];
            d2 = d2 < 0 ? R(0) : d2;
            const R both = norm[t] + root<V>(d2);
            const R slack =
                4 * gamma[t] * (both * both) + (R(margins.absolute) + R(margins.lost) * norm[t]);
            if constexpr (Upper) {
                out[first + t] = float(root<V>(d2 + slack)) * up32;
            } else {
                R low2 = d2 - slack;
                low2 = low2 > 0 ? low2 : R(0);
                float low = float(root<V>(low2)) * down32;
                low = low < farthest_bound ? low : farthest_bound;
                // An infinite score means padding, unless the row itself may overflow.
                out[first + t] = s < infinity ? low : norm2[t] < infinity ? unreachable : 0.0f;
            }
        }
    }
}

// N: the vector type of `within`. Bounds of a row are padded to units, so N must not be wider than
// a unit.
template <class V, class N>
constexpr BoundKernels bound_table() {
    return {.survivors = &survivors<V>,
            .reach = &reach<V>,
            .within = &within<N>,
            .lowest_in_tile = &lowest_in_tile<V>};
}

}  // namespace exactmeans
