// Loops over the stored features of sparse vectors. Each term goes to the stripe of its feature and
// all other terms are 0, so sums equal those of vectors.hpp bit for bit.
#pragma once

#include "vectors.hpp"

namespace exactmeans {

template <class V>
struct SparseFeatures {
    const std::uint32_t* feature;
    Size n;
    template <class Add>
    void operator()(Add add) const {
        for (Size t = 0; t < n; ++t) add(t, int(feature[t] % stripes));
    }
    template <class Add>
    void rolled(Add add) const {
        (*this)(add);
    }
};

template <class V>
SquareSum sparse_square_sum(const std::uint32_t* feature, const typename V::Real* x, Size n,
                            double scale) {
    return striped_squares<V>(SparseFeatures<V>{feature, n},
                              [&](Size t) { return double(x[t]) * scale; });
}

template <class V>
double sparse_step2(const std::uint32_t* feature, const typename V::Real* a,
                    const typename V::Real* b, Size n, double scale) {
    return striped<V>(SparseFeatures<V>{feature, n}, [&](Size t) {
        const double step = (double(a[t]) - double(b[t])) * scale;
        return step * step;
    });
}

template <class V>
double sparse_explained(const std::uint32_t* feature, const typename V::Real* centre,
                        const double* high, const double* low, Size n, double weight, double scale,
                        double sum_scale) {
    return striped<V>(SparseFeatures<V>{feature, n}, [&](Size t) {
        const double sum = high[t] * sum_scale + (low ? low[t] * sum_scale : 0.0);
        return explained_term<V>(double(centre[t]) * scale, sum, weight);
    });
}

// Computes blocks of terms with vectors, then adds them one by one. The terms of the two plain sums
// are interleaved, so that one vector addition adds both.
template <class V>
SparseUpdate sparse_update(const std::uint32_t* feature, const typename V::Real* from,
                           const typename V::Real* to, const double* high, const double* low,
                           Size n, double weight, double scale, double sum_scale) {
    constexpr Size block = 256;
    double plain[2 * block], square[block], rounded[block];
    double plain_sum[2 * stripes] = {}, sum[stripes] = {}, error[stripes] = {};
    for (Size begin = 0; begin < n; begin += block) {
        const Size count = n - begin < block ? n - begin : block;
        for (Size t = 0; t < count; ++t) {
            const double old = double(from[begin + t]), place = double(to[begin + t]);
            const double total =
                high[begin + t] * sum_scale + (low ? low[begin + t] * sum_scale : 0.0);
            const double step = (place - old) * scale;
            plain[2 * t] = explained_term<V>(old * scale, total, weight);
            plain[2 * t + 1] = step * step;
        }
        for (Size t = 0; t < count; ++t) {
            const double x = double(to[begin + t]) * scale;
            square[t] = x * x;
            rounded[t] = __builtin_fma(x, x, -square[t]);
        }
        for (Size t = 0; t < count; ++t) {
            const int l = int(feature[begin + t] % stripes);
            plain_sum[2 * l] += plain[2 * t];
            plain_sum[2 * l + 1] += plain[2 * t + 1];
            add_compensated<V>(square[t], rounded[t], sum[l], error[l]);
        }
    }
    double explained[stripes], step2[stripes];
    for (int l = 0; l < stripes; ++l) {
        explained[l] = plain_sum[2 * l];
        step2[l] = plain_sum[2 * l + 1];
    }
    return {stripes_total<V>(explained), stripes_total<V>(step2), striped_total<V>(sum, error)};
}

}  // namespace exactmeans
