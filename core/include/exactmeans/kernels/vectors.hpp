// Kernels for sums, norms and means of single vectors, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// A sum of squares or products in twice the precision of a double: high + low.
struct SquareSum {
    double high, low;
    double value() const { return high + low; }
};

// The update of a sparse centre to its mean: the scatter that the old centre explained, the squared
// movement, and the squared norm of the mean.
struct SparseUpdate {
    double explained, step2;
    SquareSum square_sum;
};

// `shift` may be null; `scale` is a power of two. The sparse_ functions take the n stored features
// of vectors that are 0 elsewhere.
template <class R>
struct VectorKernels {
    // Returns whether all values are finite. Raises `largest` to the largest |x|, and bounds[f] to
    // |factor x[f]|.
    bool (*sizes)(const R* x, Size d, double factor, double& largest, double* bounds);
    // sum of ((x - shift) scale)^2
    SquareSum (*square_sum)(const R* x, const R* shift, Size d, double scale);
    // sum of ((x - c) scale)^2, compensated
    double (*distance2)(const R* x, const R* c, Size d, double scale);
    double (*distance2_double)(const R* x, const double* c, Size d, double scale);
    // sum of ((x - c)^2 - c^2) scale^2 over the n stored entries of a CSR row, compensated
    SquareSum (*stored_distance2)(const R* x, const double* c, Size n, double scale);
    // sum of x c scale over n entries, compensated
    SquareSum (*product)(const R* x, const double* c, Size n, double scale);
    // sum of (((a - shift) - (b - shift)) scale)^2
    double (*step2)(const R* a, const R* b, const R* shift, Size d, double scale);
    // sum of (c - o) (2 (s - weight o) - weight (c - o)), all scaled, with s = high + low; low may
    // be null
    double (*explained)(const R* centre, const double* high, const double* low,
                        const double* origin, Size d, double weight, double scale,
                        double sum_scale);
    // the same for sparse vectors, with origin 0
    SquareSum (*sparse_square_sum)(const std::uint32_t* feature, const R* x, Size n, double scale);
    double (*sparse_step2)(const std::uint32_t* feature, const R* a, const R* b, Size n,
                           double scale);
    double (*sparse_explained)(const std::uint32_t* feature, const R* centre, const double* high,
                               const double* low, Size n, double weight, double scale,
                               double sum_scale);
    // sparse_explained of `from`, sparse_step2 and sparse_square_sum of `to`
    SparseUpdate (*sparse_update)(const std::uint32_t* feature, const R* from, const R* to,
                                  const double* high, const double* low, Size n, double weight,
                                  double scale, double sum_scale);
    // Do the values weight x scale split into `bins` bins without a remainder? The constants that
    // round to units (Bins::magic) are magic[w * columns + f], or magic[w] if columns is 1.
    bool (*fits_bins)(const R* x, const double* magic, Size columns, int bins, double weight,
                      double scale, Size d);
    // sum += factor x, with one bin. The same with two: weight x scale is split by magic[f *
    // magic_step] into high and low.
    void (*add_row)(double* sum, const R* x, double factor, Size d);
    void (*add_row2)(double* high, double* low, const R* x, const double* magic, Size magic_step,
                     double weight, double scale, Size d);
    void (*to_float32)(const R* x, Size n, float* out);
    // x - origin, rounded to R and then to float32
    void (*centred)(const R* x, const R* origin, Size d, float* out);
    // (high + low) / (weight + weight_error) * back; low may be null
    void (*mean)(const double* high, const double* low, double weight, double weight_error,
                 double back, Size d, R* out);
};

template <class R>
const VectorKernels<R>& vector_kernels();

}  // namespace exactmeans
