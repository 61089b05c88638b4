// The survey of the data: whether it is finite, and its magnitude, which determines the bins of the
// exact sums and the frame of the scores. Surveys of blocks are merged.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

struct Survey {
    double largest = 0;          // the largest |x|
    double largest_weight = 0;   // the largest weight
    std::vector<double> bounds;  // largest |factor x|, per column for dense data, one entry for CSR
    Size first_bad_row = -1;     // the first row with a NaN or an infinity
    bool bad_is_nan = false;

    explicit Survey(Size columns) : bounds(std::size_t(columns)) {}

    void merge(const Survey& other, Size row_offset) {
        largest = std::max(largest, other.largest);
        largest_weight = std::max(largest_weight, other.largest_weight);
        for (std::size_t f = 0; f < bounds.size(); ++f)
            bounds[f] = std::max(bounds[f], other.bounds[f]);
        if (other.first_bad_row >= 0 &&
            (first_bad_row < 0 || other.first_bad_row + row_offset < first_bad_row)) {
            first_bad_row = other.first_bad_row + row_offset;
            bad_is_nan = other.bad_is_nan;
        }
    }
};

namespace detail {

// Raises `largest` and, for dense rows, `bounds`. Returns whether all values are finite.
template <class Rows>
bool sizes_of(const Rows& x, Size i, double& largest, double* bounds) {
    double bad = 0;  // x - x is 0 for finite x, NaN otherwise
    if constexpr (is_dense<Rows>) {
        const double factor = x.factor(i);
        if (x.col_stride == 1)
            return vector_kernels<typename Rows::Real>().sizes(x.row(i), x.d, factor, largest,
                                                               bounds);
        for (Size f = 0; f < x.d; ++f) {
            const double size = std::fabs(double(x.at(i, f))), scaled = size * factor;
            bad += size - size;
            largest = size > largest ? size : largest;
            bounds[f] = scaled > bounds[f] ? scaled : bounds[f];
        }
    } else {
        const auto row = x.row(i);
        for (Size t = 0; t < row.nonzeros; ++t) {
            const double size = std::fabs(double(row.value[t]));
            bad += size - size;
            largest = size > largest ? size : largest;
        }
    }
    return bad == 0;
}

template <class Rows>
void survey_row(const Rows& x, Size i, Survey& part) {
    double largest = 0;
    const bool finite = sizes_of(x, i, largest, part.bounds.data());
    if constexpr (!is_dense<Rows>) part.bounds[0] = std::max(part.bounds[0], largest * x.factor(i));
    part.largest = std::max(part.largest, largest);
    part.largest_weight = std::max(part.largest_weight, x.weight(i));
    if (!finite && part.first_bad_row < 0) {
        part.first_bad_row = i;
        const auto check = [&](double value) {
            part.bad_is_nan = part.bad_is_nan || std::isnan(value);
        };
        if constexpr (is_dense<Rows>) {
            for (Size f = 0; f < x.d; ++f) check(double(x.at(i, f)));
        } else {
            const auto row = x.row(i);
            for (Size t = 0; t < row.nonzeros; ++t) check(double(row.value[t]));
        }
    }
}

}  // namespace detail

template <class Rows>
Survey survey(const Rows& x, const Threads& threads) {
    const Size columns = is_dense<Rows> ? x.d : 1;
    std::vector<Survey> parts(std::size_t(threads.n_jobs), Survey(columns));
    threads.ranges(x.n, cost::read_rows_per_task, [&](Size begin, Size end, int worker) {
        for (Size i = begin; i < end; ++i) detail::survey_row(x, i, parts[std::size_t(worker)]);
    });
    Survey all(columns);
    for (const Survey& part : parts) all.merge(part, 0);
    return all;
}

// Adds to counts[f] the number of rows that store feature f.
template <class Rows>
void count_features(const Rows& x, std::int64_t* counts) {
    if constexpr (is_dense<Rows>) {
        for (Size f = 0; f < x.d; ++f) counts[f] += x.n;
    } else {
        for (Size t = 0; t < x.nonzeros(); ++t) ++counts[x.indices[t]];
    }
}

}  // namespace exactmeans
