// Loops over the features of one vector: norms, movements, means, sums. They are plain C++ that the
// compiler turns into vectors of the instruction set it compiles for; the order of all additions is
// written down (eight stripes), so every instruction set gives the same bits. V only keeps the
// versions apart.
#pragma once

#include <cstdint>
#include <cstring>

#include "exactmeans/kernels.hpp"

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
inline double seen(const typename V::Real* x, const typename V::Real* shift, Size f) {
    using R = typename V::Real;
    return Shifted ? double(R(x[f] - shift[f])) : double(x[f]);
}

// sum of value(f)^2, compensated.
template <class V, class Value>
inline SquareSum striped_squares(Size d, Value value) {
    double sum[stripes] = {}, error[stripes] = {};
    const auto add = [&](Size f, int l) {
        const double v = value(f), square = v * v;
        const double square_error = __builtin_fma(v, v, -square);
        double total, lost;
        two_sum<V>(sum[l], square, total, lost);
        sum[l] = total;
        error[l] += lost + square_error;
    };
    Size f = 0;
    for (; f + stripes <= d; f += stripes)
        for (int l = 0; l < stripes; ++l) add(f + l, l);
    for (int l = 0; f + l < d; ++l) add(f + l, l);
    double high = 0, low = 0;
    for (int l = 0; l < stripes; ++l) {
        double total, lost;
        two_sum<V>(high, sum[l], total, lost);
        high = total;
        low += lost;
    }
    return {high, low + stripes_total<V>(error)};
}

template <class V>
SquareSum square_sum(const typename V::Real* x, const typename V::Real* shift, Size d,
                     double scale) {
    if (shift)
        return striped_squares<V>(d, [&](Size f) { return seen<V, true>(x, shift, f) * scale; });
    return striped_squares<V>(d, [&](Size f) { return seen<V, false>(x, shift, f) * scale; });
}

template <class V, class C>
double distance2(const typename V::Real* x, const C* c, Size d, double scale) {
    return striped_squares<V>(d,
                              [&](Size f) { return double(x[f]) * scale - double(c[f]) * scale; })
        .value();
}

// The stored part of |x - c|^2 - |c|^2 of a CSR row: sum of (x - c)^2 - c^2, compensated; c has the
// centre's values for the row's features.
template <class V>
SquareSum stored_distance2(const typename V::Real* x, const double* c, Size n, double scale) {
    double sum[stripes] = {}, error[stripes] = {};
    const auto add = [&](Size t, int l) {
        const double centre = c[t] * scale, step = double(x[t]) * scale - centre;
        const double plus = step * step, minus = centre * centre;
        double total, lost, total2, lost2;
        two_sum<V>(sum[l], plus, total, lost);
        two_sum<V>(total, -minus, total2, lost2);
        sum[l] = total2;
        error[l] += (lost + lost2) +
                    (__builtin_fma(step, step, -plus) - __builtin_fma(centre, centre, -minus));
    };
    Size t = 0;
    for (; t + stripes <= n; t += stripes)
        for (int l = 0; l < stripes; ++l) add(t + l, l);
    for (int l = 0; t + l < n; ++l) add(t + l, l);
    double high = 0, low = 0;
    for (int l = 0; l < stripes; ++l) {
        double total, lost;
        two_sum<V>(high, sum[l], total, lost);
        high = total;
        low += lost;
    }
    return {high, low + stripes_total<V>(error)};
}

// sum of x c scale, compensated.
template <class V>
SquareSum product(const typename V::Real* x, const double* c, Size n, double scale) {
    double sum[stripes] = {}, error[stripes] = {};
    const auto add = [&](Size t, int l) {
        const double value = double(x[t]) * scale, term = value * c[t];
        double total, lost;
        two_sum<V>(sum[l], term, total, lost);
        sum[l] = total;
        error[l] += lost + __builtin_fma(value, c[t], -term);
    };
    Size t = 0;
    for (; t + stripes <= n; t += stripes)
        for (int l = 0; l < stripes; ++l) add(t + l, l);
    for (int l = 0; t + l < n; ++l) add(t + l, l);
    double high = 0, low = 0;
    for (int l = 0; l < stripes; ++l) {
        double total, lost;
        two_sum<V>(high, sum[l], total, lost);
        high = total;
        low += lost;
    }
    return {high, low + stripes_total<V>(error)};
}

template <class V>
bool fits_words(const typename V::Real* x, const double* magic, Size columns, int words,
                double weight, double scale, Size d) {
    constexpr Size block = 256;
    double rest[block];
    for (Size begin = 0; begin < d; begin += block) {
        const Size n = d - begin < block ? d - begin : block;
        for (Size f = 0; f < n; ++f) rest[f] = weight * double(x[begin + f]) * scale;
        for (int w = 0; w < words; ++w) {
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
    double part[stripes] = {};
    const auto add = [&](Size f, int l) {
        const double step = (seen<V, Shifted>(a, shift, f) - seen<V, Shifted>(b, shift, f)) * scale;
        part[l] += step * step;
    };
    Size f = 0;
    for (; f + stripes <= d; f += stripes)
        for (int l = 0; l < stripes; ++l) add(f + l, l);
    for (int l = 0; f + l < d; ++l) add(f + l, l);
    return stripes_total<V>(part);
}

template <class V>
double step2(const typename V::Real* a, const typename V::Real* b, const typename V::Real* shift,
             Size d, double scale) {
    return shift ? step2_of<V, true>(a, b, shift, d, scale)
                 : step2_of<V, false>(a, b, shift, d, scale);
}

template <class V>
double explained(const typename V::Real* centre, const double* high, const double* low,
                 const double* origin, Size d, double weight, double scale, double sum_scale) {
    double part[stripes] = {};
    const auto add = [&](Size f, int l) {
        const double o = origin[f] * scale, c = double(centre[f]) * scale - o;
        // Far from 0, the sum and weight * o nearly cancel.
        const double about =
            __builtin_fma(-weight, o, high[f] * sum_scale) + (low ? low[f] * sum_scale : 0.0);
        part[l] += c * (2 * about - weight * c);
    };
    Size f = 0;
    for (; f + stripes <= d; f += stripes)
        for (int l = 0; l < stripes; ++l) add(f + l, l);
    for (int l = 0; f + l < d; ++l) add(f + l, l);
    return stripes_total<V>(part);
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

// high + low over weight + weight_error, then times `back` (a power of two). Correctly rounded but
// for exact means within 2^-100 of a rounding boundary: a quotient, then one correction by its
// remainder.
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
            // A float64 mean in the very middle between two float32 values is rounded by what was
            // left of it.
            for (Size f = 0; f < n; ++f) {
                std::int64_t bits;
                std::memcpy(&bits, &quotient[f], sizeof bits);
                if ((bits & 0x0fffffff) == 0 && rest[f] != 0)
                    bits += (rest[f] > 0) == (quotient[f] > 0) ? 1 : -1;
                std::memcpy(&quotient[f], &bits, sizeof bits);
            }
        }
        for (Size f = 0; f < n; ++f) out[begin + f] = R(quotient[f] * back);
    }
}

}  // namespace exactmeans
