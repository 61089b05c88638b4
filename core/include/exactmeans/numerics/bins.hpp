// Bins of reproducible summation make sums of rows independent of the order (pre-rounded, "binned"
// summation: J. Demmel, H. D. Nguyen, Fast reproducible floating-point summation, ARITH 2013).
// Every value of a column is split into a few parts, one per bin. The part in bin w is a multiple
// of the bin's unit, a power of two so large that the sum of n parts fits the 53 bits of a double:
// no addition ever rounds. Most real data needs one bin, and an exact sum is then a plain sum of
// doubles. Derivation: docs/numerics.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

// The grid of a sum: the units of its bins, for up to n values v with |v| <= bound, per column or
// with one bound for all columns (`Grid` in Python).
class Bins {
public:
    // Doubles have 2098 binary places, and for n up to 2^21 a bin holds at least 32 of them, so
    // more bins are never needed. For n = 2^31, these bins suffice unless the values of a column
    // differ by a factor above 2^1400.
    static constexpr int most = 66;

    // bounds: the largest |value| of each column, or one entry for all columns.
    Bins(std::vector<double> bounds, Size n) : bounds_(std::move(bounds)) {
        int bits = 3;  // splitting needs two bits beyond the count
        while (bits < 62 && (Size(1) << bits) < n) ++bits;
        count_bits_ = bits;
        int top;
        std::frexp(*std::max_element(bounds_.begin(), bounds_.end()), &top);
        // Only sums that could overflow are scaled down: scaling loses the low bits of small
        // values.
        exponent_ = std::min(0, 1020 - top - count_bits_);
        scale_ = std::ldexp(1.0, exponent_);
        set_bins(1);
    }

    int bins() const { return bins_; }
    int count_bits() const { return count_bits_; }  // bins for 2^count_bits values are the same
    int exponent() const { return exponent_; }
    double scale() const { return scale_; }
    bool per_column() const { return bounds_.size() != 1; }
    const std::vector<double>& bounds() const { return bounds_; }

    void set_bins(int bins) {
        bins_ = bins;
        const std::size_t columns = bounds_.size();
        magic_.assign(columns * std::size_t(bins - 1), 0.0);
        for (std::size_t f = 0; f < columns; ++f)
            for (int w = 0; w + 1 < bins; ++w) magic_[std::size_t(w) * columns + f] = magic(f, w);
    }

    // Adding and subtracting this constant rounds a value to a multiple of the unit of bin w.
    double magic(std::size_t column, int w) const {
        int top;
        std::frexp(bounds_[column] * scale_, &top);  // |v| < 2^top
        // Bin w gets the remainder of bin w - 1: at most half the unit of that bin.
        int unit = top + count_bits_ - 53;
        for (int t = 0; t < w; ++t) unit = unit - 1 + count_bits_ - 53;
        return std::ldexp(1.5, unit + 52);
    }

    // The constants of bin w < bins() - 1: one per column, or a single one unless per_column().
    const double* magic_row(int w) const { return magic_.data() + std::size_t(w) * bounds_.size(); }

private:
    std::vector<double> bounds_;
    std::vector<double> magic_;
    int exponent_ = 0;  // values are multiplied by 2^exponent first
    double scale_ = 1;
    int count_bits_ = 0;
    int bins_ = 1;
};

// The contribution of a row to the sum of its cluster: factor * x, rounded once to double, on the
// scale of the bins.
inline double contribution(double factor, double value, double scale) {
    return factor * value * scale;
}

// The number of bins, at least `bins`, into which the values of rows [begin, end) split without a
// remainder.
template <class Rows>
int bins_needed(const Rows& x, const Bins& grid, Size begin, Size end, int bins = 1) {
    using R = typename Rows::Real;
    const Size columns = Size(grid.bounds().size());
    std::vector<double> magic;
    const auto extend = [&] {
        for (Size w = Size(magic.size()) / columns; w < bins; ++w)
            for (Size f = 0; f < columns; ++f) magic.push_back(grid.magic(std::size_t(f), int(w)));
    };
    extend();
    std::vector<R> packed;
    for (Size i = begin; i < end; ++i) {
        const R* values;
        Size count = x.d;
        if constexpr (is_dense<Rows>) {
            values = x.row(i);
            if (x.col_stride != 1) {
                packed.resize(std::size_t(x.d));
                for (Size f = 0; f < x.d; ++f) packed[std::size_t(f)] = x.at(i, f);
                values = packed.data();
            }
        } else {
            values = x.row(i).value;
            count = x.row(i).nonzeros;
        }
        while (bins < Bins::most &&
               !vector_kernels<R>().fits_bins(values, magic.data(), columns, bins, x.factor(i),
                                              grid.scale(), count)) {
            ++bins;
            extend();
        }
    }
    return bins;
}

}  // namespace exactmeans
