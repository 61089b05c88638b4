// Loops over the features of one vector: norms, movements, means, sums. The compiler vectorises the
// plain C++ for each instruction set. The order of all additions is fixed (eight stripes), so every
// instruction set gives the same bits. V only keeps the instantiations apart.
#pragma once

#include <cstdint>
#include <cstring>

#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

inline constexpr int stripes = 8;

template <class V>
inline double stripes_total(const double* part) {
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

// a + b == sum + error, exactly (Knuth).
template <class V>
inline void two_sum(double a, double b, double& sum, double& error) {
    sum = a + b;
    const double b_part = sum - a;
    error = (a - (sum - b_part)) + (b - b_part);
}

template <class V, bool Shifted>
inline double shifted_value(const typename V::Real* x, const typename V::Real* shift, Size f) {
    using R = typename V::Real;
    return Shifted ? double(R(x[f] - shift[f])) : double(x[f]);
}

// Visits all features; the term of feature t goes to stripe t % 8.
template <class V>
struct AllFeatures {
    Size n;
    template <class Add>
    void operator()(Add add) const {
        Size t = 0;
        for (; t + stripes <= n; t += stripes)
            for (int l = 0; l < stripes; ++l) add(t + l, l);
        for (int l = 0; t + l < n; ++l) add(t + l, l);
    }
    // The same for longer terms, which GCC vectorises only if the loop over stripes is not
    // unrolled.
    template <class Add>
    void rolled(Add add) const {
        Size t = 0;
        for (; t + stripes <= n; t += stripes) {
#pragma GCC unroll 1
            for (int l = 0; l < stripes; ++l) add(t + l, l);
        }
        for (int l = 0; t + l < n; ++l) add(t + l, l);
    }
};
// The sum of term(t).
template <class V, class Each, class Term>
inline double striped(Each each, Term term) {
    double part[stripes] = {};
    each([&](Size t, int l) { part[l] += term(t); });
    return stripes_total<V>(part);
}

// The total of compensated stripes.
template <class V>
inline SquareSum striped_total(const double* sum, const double* error) {
    double high = 0, low = 0;
    for (int l = 0; l < stripes; ++l) {
        double total, lost;
        two_sum<V>(high, sum[l], total, lost);
        high = total;
        low += lost;
    }
    return {high, low + stripes_total<V>(error)};
}

// The compensated sum: add(t, sum, error) adds a term to the sum and its rounding error to the
// error.
template <class V, class Each, class Add>
inline SquareSum striped_compensated(Each each, Add add) {
    double sum[stripes] = {}, error[stripes] = {};
    each.rolled([&](Size t, int l) { add(t, sum[l], error[l]); });
    return striped_total<V>(sum, error);
}
// Adds a term with a known rounding error.
template <class V>
inline void add_compensated(double term, double rounded, double& sum, double& error) {
    double total, lost;
    two_sum<V>(sum, term, total, lost);
    sum = total;
    error += lost + rounded;
}
// The sum of a(t) b(t).
template <class V, class Each, class A, class B>
inline SquareSum striped_products(Each each, A a, B b) {
    return striped_compensated<V>(each, [&](Size t, double& sum, double& error) {
        const double left = a(t), right = b(t), term = left * right;
        add_compensated<V>(term, __builtin_fma(left, right, -term), sum, error);
    });
}
template <class V, class Each, class Value>
inline SquareSum striped_squares(Each each, Value value) {
    return striped_products<V>(each, value, value);
}

template <class V>
bool sizes(const typename V::Real* x, Size d, double factor, double& largest, double* bounds) {
    double top[stripes] = {}, off[stripes] = {};
    // Prefetches the row that probably comes next; the hardware prefetcher starts too late.
    for (Size f = 0; f < d; f += Size(64 / sizeof(*x))) __builtin_prefetch(x + d + f);
    AllFeatures<V>{d}.rolled([&](Size f, int l) {
        const double size = __builtin_fabs(double(x[f])), scaled = size * factor;
        off[l] += size - size;  // 0 for finite x, NaN otherwise
        top[l] = size > top[l] ? size : top[l];
        bounds[f] = scaled > bounds[f] ? scaled : bounds[f];
    });
    for (int l = 0; l < stripes; ++l) largest = top[l] > largest ? top[l] : largest;
    return stripes_total<V>(off) == 0;
}

template <class V>
SquareSum square_sum(const typename V::Real* x, const typename V::Real* shift, Size d,
                     double scale) {
    const AllFeatures<V> all{d};
    if (shift)
        return striped_squares<V>(
            all, [&](Size f) { return shifted_value<V, true>(x, shift, f) * scale; });
    return striped_squares<V>(all,
                              [&](Size f) { return shifted_value<V, false>(x, shift, f) * scale; });
}

template <class V, class C>
double distance2(const typename V::Real* x, const C* c, Size d, double scale) {
    return striped_squares<V>(AllFeatures<V>{d},
                              [&](Size f) { return double(x[f]) * scale - double(c[f]) * scale; })
        .value();
}

// The part of |x - c|^2 - |c|^2 from the stored entries of a CSR row: sum of (x - c)^2 - c^2. c has
// the values of the centre at these features.
template <class V>
SquareSum stored_distance2(const typename V::Real* x, const double* c, Size n, double scale) {
    return striped_compensated<V>(AllFeatures<V>{n}, [&](Size t, double& sum, double& error) {
        const double centre = c[t] * scale, step = double(x[t]) * scale - centre;
        const double plus = step * step, minus = centre * centre;
        double total, lost, total2, lost2;
        two_sum<V>(sum, plus, total, lost);
        two_sum<V>(total, -minus, total2, lost2);
        sum = total2;
        error += (lost + lost2) +
                 (__builtin_fma(step, step, -plus) - __builtin_fma(centre, centre, -minus));
    });
}

// The sum of x c scale.
template <class V>
SquareSum product(const typename V::Real* x, const double* c, Size n, double scale) {
    return striped_products<V>(
        AllFeatures<V>{n}, [&](Size t) { return double(x[t]) * scale; },
        [&](Size t) { return c[t]; });
}

template <class V>
bool fits_bins(const typename V::Real* x, const double* magic, Size columns, int bins,
               double weight, double scale, Size d) {
    constexpr Size block = 256;
    double rest[block];
    for (Size begin = 0; begin < d; begin += block) {
        const Size n = d - begin < block ? d - begin : block;
        for (Size f = 0; f < n; ++f) rest[f] = weight * double(x[begin + f]) * scale;
        for (int w = 0; w < bins; ++w) {
            const double* m = magic + w * columns;
            if (columns == 1)
                for (Size f = 0; f < n; ++f) rest[f] -= (rest[f] + m[0]) - m[0];
            else
                for (Size f = 0; f < n; ++f) rest[f] -= (rest[f] + m[begin + f]) - m[begin + f];
        }
        std::uint64_t any = 0;
        for (Size f = 0; f < n; ++f) any |= std::uint64_t(rest[f] != 0);
        if (any) return false;
    }
    return true;
}

template <class V, bool Shifted>
inline double step2_of(const typename V::Real* a, const typename V::Real* b,
                       const typename V::Real* shift, Size d, double scale) {
    return striped<V>(AllFeatures<V>{d}, [&](Size f) {
        const double step =
            (shifted_value<V, Shifted>(a, shift, f) - shifted_value<V, Shifted>(b, shift, f)) *
            scale;
        return step * step;
    });
}

template <class V>
double step2(const typename V::Real* a, const typename V::Real* b, const typename V::Real* shift,
             Size d, double scale) {
    return shift ? step2_of<V, true>(a, b, shift, d, scale)
                 : step2_of<V, false>(a, b, shift, d, scale);
}

// The scatter that a feature explains: s is the sum of its values and c the centre, both relative
// to the origin.
template <class V>
inline double explained_term(double c, double s, double weight) {
    return c * (2 * s - weight * c);
}

template <class V>
double explained(const typename V::Real* centre, const double* high, const double* low,
                 const double* origin, Size d, double weight, double scale, double sum_scale) {
    return striped<V>(AllFeatures<V>{d}, [&](Size f) {
        const double o = origin[f] * scale, c = double(centre[f]) * scale - o;
        // Far from 0, the sum and weight * o nearly cancel, so the product is fused.
        const double about =
            __builtin_fma(-weight, o, high[f] * sum_scale) + (low ? low[f] * sum_scale : 0.0);
        return explained_term<V>(c, about, weight);
    });
}

template <class V>
void add_row(double* sum, const typename V::Real* x, double factor, Size d) {
    for (Size f = 0; f < d; ++f) sum[f] += factor * double(x[f]);
}

template <class V>
void add_row2(double* high, double* low, const typename V::Real* x, const double* magic,
              Size magic_step, double weight, double scale, Size d) {
    const auto add = [&](Size f, double m) {
        const double value = weight * double(x[f]) * scale, part = (value + m) - m;
        high[f] += part;
        low[f] += value - part;
    };
    if (magic_step)
        for (Size f = 0; f < d; ++f) add(f, magic[f]);
    else
        for (Size f = 0; f < d; ++f) add(f, magic[0]);
}

template <class V>
void to_float32(const typename V::Real* x, Size n, float* out) {
    for (Size t = 0; t < n; ++t) out[t] = float(x[t]);
}

template <class V>
void centred(const typename V::Real* x, const typename V::Real* origin, Size d, float* out) {
    for (Size f = 0; f < d; ++f) out[f] = float(x[f] - origin[f]);
}

// (high + low) / (weight + weight_error), then times `back` (a power of two): a quotient and one
// correction by its remainder. Correctly rounded, except for exact means within 2^-100 of a
// rounding boundary.
template <class V>
void mean(const double* high, const double* low, double weight, double weight_error, double back,
          Size d, typename V::Real* out) {
    using R = typename V::Real;
    constexpr Size block = 256;
    double quotient[block], rest[block];
    for (Size begin = 0; begin < d; begin += block) {
        const Size n = d - begin < block ? d - begin : block;
        const double *h = high + begin, *l = low ? low + begin : nullptr;
        if (!l && weight_error == 0) {
            for (Size f = 0; f < n; ++f) {
                quotient[f] = h[f] / weight;
                rest[f] =
                    sizeof(R) < sizeof(double) ? __builtin_fma(-quotient[f], weight, h[f]) : 0.0;
            }
        } else {
            for (Size f = 0; f < n; ++f) {
                double sum, error;
                two_sum<V>(h[f], l ? l[f] : 0.0, sum, error);
                const double first = sum / weight;
                const double left =
                    __builtin_fma(-first, weight, sum) + (error - first * weight_error);
                const double second = left / weight;
                double total, lost;
                two_sum<V>(first, second, total, lost);
                quotient[f] = total;
                rest[f] = lost;
            }
        }
        if constexpr (sizeof(R) < sizeof(double)) {
            // A float64 mean exactly halfway between two float32 values is rounded by the sign of
            // its remainder.
            for (Size f = 0; f < n; ++f) {
                std::int64_t bits;
                std::memcpy(&bits, &quotient[f], sizeof bits);
                // Branch-free, so that GCC vectorises the loop.
                const bool middle = ((bits & 0x0fffffff) == 0) & (rest[f] != 0);
                const std::int64_t step = (rest[f] > 0) == (quotient[f] > 0) ? 1 : -1;
                bits += middle ? step : 0;
                std::memcpy(&quotient[f], &bits, sizeof bits);
            }
        }
        for (Size f = 0; f < n; ++f) out[begin + f] = R(quotient[f] * back);
    }
}

}  // namespace exactmeans
