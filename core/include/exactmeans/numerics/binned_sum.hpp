// Exact sums of rows in bins (numerics/bins.hpp): dense vectors of sums, sparse ones, and sparse
// accumulators.
#pragma once

#include <array>
#include <type_traits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/numerics/bins.hpp"
#include "exactmeans/numerics/compensated.hpp"

namespace exactmeans {

// Calls put(w, part) for the part of a value of column f in each bin.
template <class Put>
void split_value(const Bins& grid, Size f, double value, Put put) {
    const int last = grid.bins() - 1;
    const Size column = grid.per_column() ? f : 0;
    for (int w = 0; w < last; ++w) {
        const double magic = grid.magic_row(w)[column];
        const double part = (value + magic) - magic;
        put(w, part);
        value -= part;
    }
    put(last, value);
}

// bins[0] + bins[step] + ... as an unevaluated high + low, in twice the precision of a double.
inline TwoSum total(const Bins& grid, const double* bins, Size step) {
    const int last = grid.bins() - 1;
    TwoSum sum(bins[last * step], 0.0);
    for (int w = last - 1; w >= 0; --w) {
        const TwoSum next(bins[w * step], sum.sum);
        sum = TwoSum(next.sum, next.error + sum.error);
    }
    return sum;
}

// A view of one dense vector of sums. Bins are stored as planes: bin w of all columns begins at
// bins + w * columns.
class SumRow {
public:
    SumRow(double* bins, Size columns, const Bins& grid) : bins_(bins), d_(columns), grid_(&grid) {}

    // Adds row i; sign is +1 or -1.
    template <class R>
    void add(const DenseRows<R>& x, Size i, double sign) {
        const Bins& grid = *grid_;
        const R* row = x.row(i);
        const double factor = sign * x.factor(i);
        // The product is rounded once and the sum never, so adding with sign -1 undoes adding with
        // +1.
        if (x.col_stride == 1 && grid.bins() == 1 && grid.exponent() == 0)
            vector_kernels<R>().add_row(bins_, row, factor, d_);
        else if (x.col_stride == 1 && grid.bins() == 2)
            vector_kernels<R>().add_row2(bins_, bins_ + d_, row, grid.magic_row(0),
                                         grid.per_column(), factor, grid.scale(), d_);
        else
            for (Size f = 0; f < d_; ++f)
                add_value(f, contribution(factor, double(x.at(i, f)), grid.scale()));
    }

    template <class R, class I>
    void add(const CsrRows<R, I>& x, Size i, double sign) {
        const auto row = x.row(i);
        const double factor = sign * x.factor(i), scale = grid_->scale();
        for (Size t = 0; t < row.nonzeros; ++t)
            add_value(Size(row.index[t]), contribution(factor, double(row.value[t]), scale));
    }

    void add_value(Size f, double value) {
        split_value(*grid_, f, value, [&](int w, double part) { bins_[w * d_ + f] += part; });
    }

    TwoSum total(Size f) const { return exactmeans::total(*grid_, bins_ + f, d_); }

private:
    double* bins_;
    Size d_;
    const Bins* grid_;
};

// A sparse vector of sums, for CSR rows: only the features that occur, in ascending order, with one
// plane of values per bin.
class SparseSum {
public:
    explicit SparseSum(int bins = 1) : planes_(static_cast<std::size_t>(bins)) {}

    Size size() const { return Size(features_.size()); }
    const std::vector<std::uint32_t>& features() const { return features_; }
    const double* plane(int w) const { return planes_[std::size_t(w)].data(); }

    void clear() {
        features_.clear();
        for (auto& plane : planes_) plane.clear();
    }

    // Appends a feature above all others with bins[0], bins[step] and so on, unless all of them are
    // 0.
    void push(Size f, const double* bins, Size step) {
        bool any = false;
        for (std::size_t w = 0; w < planes_.size(); ++w) any = any || bins[Size(w) * step] != 0;
        if (!any) return;
        features_.push_back(std::uint32_t(f));
        for (std::size_t w = 0; w < planes_.size(); ++w) planes_[w].push_back(bins[Size(w) * step]);
    }

    // Replaces this sum by the accumulator, which is cleared.
    void take(SparseAccumulator& accumulator) {
        resize(accumulator.count());
        std::uint32_t* const features = features_.data();
        std::size_t at = 0;
        with_planes([&](auto planes, auto bins) {
            accumulator.drain([&](Size f, const double* from) {
                bool any = false;
                for (int w = 0; w < bins; ++w) {
                    planes[w][at] = from[w];
                    any |= from[w] != 0;
                }
                features[at] = std::uint32_t(f);
                // Branch-free, because the branch would be mispredicted.
                at += any;
            });
        });
        resize(at);
    }

    // Adds an accumulator of at most `most` features and clears it.
    void add(SparseAccumulator& accumulator, Size most) {
        // Adding this sum to an accumulator larger than the caches would miss them at every
        // feature.
        if (is_few(most) || !accumulator.fits_caches()) {
            SparseSum other(static_cast<int>(planes_.size()));
            other.take(accumulator);
            return add(std::move(other));
        }
        with_planes([&](auto planes, auto bins) {
            for (std::size_t t = 0; t < features_.size(); ++t) {
                double* const to = accumulator.at(Size(features_[t]));
                for (int w = 0; w < bins; ++w) to[w] += planes[w][t];
            }
        });
        take(accumulator);
    }
    void add(SparseSum&& other) {
        if (size() == 0)
            *this = std::move(other);
        else
            add(other);
    }
    void add(const SparseSum& other) {
        if (is_few(other.size())) return add_few(other);
        SparseSum sum(static_cast<int>(planes_.size()));
        add_many(other, sum);
        *this = std::move(sum);
    }

private:
    bool is_few(Size features) const { return cost::few_features * features < size(); }

    // Calls visit(planes, bins); bins is a compile-time constant if it is 1 or 2. Raw pointers,
    // because stores through them cannot change the vectors themselves, so the compiler keeps the
    // pointers in registers.
    template <class Visit>
    void with_planes(Visit visit) {
        if (planes_.size() == 1) {
            visit(std::array{planes_[0].data()}, std::integral_constant<int, 1>());
        } else if (planes_.size() == 2) {
            visit(std::array{planes_[0].data(), planes_[1].data()},
                  std::integral_constant<int, 2>());
        } else {
            std::vector<double*> planes;
            for (auto& plane : planes_) planes.push_back(plane.data());
            visit(planes.data(), int(planes.size()));
        }
    }

    void resize(std::size_t size) {
        features_.resize(size);
        for (auto& plane : planes_) plane.resize(size);
    }
    // Drops features whose sums become 0.
    void add_many(const SparseSum& other, SparseSum& sum) const {
        sum.resize(features_.size() + other.features_.size());
        std::size_t at = 0;
        for_either(features_, other.features_, [&](std::uint32_t f, Size a, Size b) {
            bool any = false;
            for (std::size_t w = 0; w < planes_.size(); ++w) {
                const double value = (a < 0 ? 0.0 : planes_[w][std::size_t(a)]) +
                                     (b < 0 ? 0.0 : other.planes_[w][std::size_t(b)]);
                sum.planes_[w][at] = value;
                any = any || value != 0;
            }
            sum.features_[at] = f;
            at += any;
        });
        sum.resize(at);
    }
    // The same in place, for few features.
    void add_few(const SparseSum& other) {
        std::vector<std::size_t> removed, added, places;
        std::size_t at = 0;
        for (std::size_t t = 0; t < other.features_.size(); ++t) {
            at = place_of(other.features_[t], at);
            if (at == features_.size() || features_[at] != other.features_[t]) {
                added.push_back(t);
                continue;
            }
            bool any = false;
            for (std::size_t w = 0; w < planes_.size(); ++w)
                any = (planes_[w][at] += other.planes_[w][t]) != 0 || any;
            if (!any) removed.push_back(at);
        }
        erase(features_, removed);
        for (auto& plane : planes_) erase(plane, removed);
        at = 0;
        for (const std::size_t t : added) places.push_back(at = place_of(other.features_[t], at));
        insert(features_, places, other.features_, added);
        for (std::size_t w = 0; w < planes_.size(); ++w)
            insert(planes_[w], places, other.planes_[w], added);
    }
    // The first position from `at` on whose feature is not below f (galloping search).
    std::size_t place_of(std::uint32_t f, std::size_t at) const {
        std::size_t step = 8;
        while (at + step < features_.size() && features_[at + step] < f) {
            at += step;
            step *= 2;
        }
        const auto begin = features_.begin() + Size(at);
        const auto end = begin + Size(std::min(step, features_.size() - at));
        return at + std::size_t(std::lower_bound(begin, end, f) - begin);
    }
    template <class T>
    static void erase(std::vector<T>& list, const std::vector<std::size_t>& removed) {
        if (removed.empty()) return;
        T* to = list.data() + removed[0];
        for (std::size_t g = 0; g < removed.size(); ++g) {
            const std::size_t end = g + 1 < removed.size() ? removed[g + 1] : list.size();
            to = std::copy(list.data() + removed[g] + 1, list.data() + end, to);
        }
        list.resize(list.size() - removed.size());
    }
    // Inserts from[added[g]] before list[places[g]].
    template <class T>
    static void insert(std::vector<T>& list, const std::vector<std::size_t>& places,
                       const std::vector<T>& from, const std::vector<std::size_t>& added) {
        std::size_t end = list.size();
        list.resize(end + added.size());
        for (std::size_t g = added.size(); g-- > 0; end = places[g]) {
            T* const here = list.data() + places[g];
            std::copy_backward(here, list.data() + end, list.data() + end + g + 1);
            here[g] = from[added[g]];
        }
    }

    std::vector<std::uint32_t> features_;
    std::vector<std::vector<double>> planes_;
};

// Adds row i to an accumulator; returns its number of entries.
template <class R, class I>
Size accumulate_row(SparseAccumulator& accumulator, const Bins& grid, const CsrRows<R, I>& x,
                    Size i, double sign) {
    const auto row = x.row(i);
    const double factor = sign * x.factor(i), scale = grid.scale();
    const PrefetchCursor next(row);
    const auto each = [&](auto add) {
        for (Size t = 0; t < row.nonzeros; ++t) {
            accumulator.prefetch(next.feature(t));
            const Size f = Size(row.index[t]);
            add(accumulator.at(f), f, contribution(factor, double(row.value[t]), scale));
        }
    };
    if (grid.bins() == 1) {
        each([](double* bins, Size, double value) { bins[0] += value; });
    } else if (grid.bins() == 2) {
        const double* magic = grid.magic_row(0);
        const Size step = grid.per_column() ? 1 : 0;
        each([=](double* bins, Size f, double value) {
            const double m = magic[f * step], part = (value + m) - m;
            bins[0] += part;
            bins[1] += value - part;
        });
    } else {
        each([&](double* bins, Size f, double value) {
            split_value(grid, f, value, [&](int w, double part) { bins[w] += part; });
        });
    }
    return row.nonzeros;
}

}  // namespace exactmeans
