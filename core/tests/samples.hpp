// Random data that is equal on all platforms, and owners of the memory that rows refer to.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"

namespace samples {

using exactmeans::CsrRows;
using exactmeans::DenseRows;
using exactmeans::Size;
using exactmeans::SparseVector;

using Labels = std::vector<std::int32_t>;
__extension__ using Int128 = __int128;

// splitmix64, because the distributions of the standard library differ between implementations.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    Size below(Size n) { return Size(bits() % std::uint64_t(n)); }
    Size between(Size low, Size high) { return low + below(high - low + 1); }
    double unit() { return double(bits() >> 11) * 0x1p-53; }
    double uniform(double low, double high) { return low + (high - low) * unit(); }
    double normal() {
        return std::sqrt(-2 * std::log(unit() + 0x1p-54)) * std::cos(6.283185307179586 * unit());
    }
    bool coin() { return bits() >> 63; }

private:
    std::uint64_t state_;
};

template <class R>
struct Matrix {
    Size n, d;
    std::vector<R> values;

    Matrix(Size rows, Size columns)
        : n(rows), d(columns), values(static_cast<std::size_t>(rows * columns)) {}
    template <class Fn>
    Matrix(Size rows, Size columns, Fn value) : Matrix(rows, columns) {
        for (R& v : values) v = R(value());
    }

    R& operator()(Size i, Size f) { return values[static_cast<std::size_t>(i * d + f)]; }
    R operator()(Size i, Size f) const { return values[static_cast<std::size_t>(i * d + f)]; }
    const R* row(Size i) const { return values.data() + i * d; }
    DenseRows<R> rows(const double* weights = nullptr) const {
        return {values.data(), n, d, d, 1, weights};
    }
};

template <class R, class I>
struct Csr {
    Size n, d;
    std::vector<R> data;
    std::vector<I> indices;
    std::vector<std::int64_t> offsets{0};

    explicit Csr(const Matrix<R>& dense) : n(dense.n), d(dense.d) {
        for (Size i = 0; i < n; ++i) {
            for (Size f = 0; f < d; ++f) {
                if (dense(i, f) == 0) continue;
                data.push_back(dense(i, f));
                indices.push_back(I(f));
            }
            offsets.push_back(std::int64_t(data.size()));
        }
    }
    CsrRows<R, I> rows(const double* weights = nullptr) const {
        return {data.data(), indices.data(), {nullptr, offsets.data()}, n, d, weights};
    }
};

// The nonzeros of every row of a matrix.
template <class R>
std::vector<SparseVector<R>> sparse_of(const Matrix<R>& dense) {
    std::vector<SparseVector<R>> out(static_cast<std::size_t>(dense.n));
    for (Size j = 0; j < dense.n; ++j)
        for (Size f = 0; f < dense.d; ++f)
            if (dense(j, f) != 0) out[std::size_t(j)].push(f, dense(j, f));
    return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
inline bool same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
inline bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// value * 2^places, which must be an integer.
inline Int128 fixed_point(double value, int places) {
    int exponent;
    const double mantissa = std::frexp(value, &exponent);
    const auto integer = static_cast<std::int64_t>(std::ldexp(mantissa, 53));
    const int shift = exponent - 53 + places;
    return shift >= 0 ? Int128(integer) * (Int128(1) << shift) : Int128(integer >> -shift);
}
inline Int128 magnitude(Int128 value) { return value < 0 ? -value : value; }

}  // namespace samples
