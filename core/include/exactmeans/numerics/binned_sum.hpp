// The exact sum of rows in the words of a grid.
#pragma once

#include <array>
#include <type_traits>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/numerics/bins.hpp"
#include "exactmeans/numerics/compensated.hpp"

namespace exactmeans {

// Calls put(w, part) for each word of a value in column f.
template <class Put>
void cut(const Bins& grid, Size f, double value, Put put) {
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

// words[0] + words[step] + ... as an unevaluated high + low, to twice the precision of a double.
inline TwoSum total(const Bins& grid, const double* bins, Size step) {
    const int last = grid.bins() - 1;
    TwoSum sum(bins[last * step], 0.0);
    for (int w = last - 1; w >= 0; --w) {
        const TwoSum next(bins[w * step], sum.sum);
        sum = TwoSum(next.sum, next.error + sum.error);
    }
    return sum;
}

// Word planes of one dense vector of sums: plane w starts at words + w * columns.
class SumRow {
public:
    SumRow(double* bins, Size columns, const Bins& grid) : bins_(bins), d_(columns), grid_(&grid) {}

    // Adds row i; sign is +1 or -1.
    template <class R>
    void add(const DenseRows<R>& x, Size i, double sign) {
        const Bins& grid = *grid_;
        const R* row = x.row(i);
        const double factor = sign * x.factor(i);
        // The product is rounded once and the sum not at all, so the sign commutes with both.
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
        cut(*grid_, f, value, [&](int w, double part) { bins_[w * d_ + f] += part; });
    }

    TwoSum total(Size f) const { return exactmeans::total(*grid_, bins_ + f, d_); }

private:
    double* bins_;
    Size d_;
    const Bins* grid_;
};

// The same of CSR rows, with the features that occur in them and no others, ascending.
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

    // Appends a feature beyond all there are: words[0], words[step] and so on; zeros are left out.
    void push(Size f, const double* bins, Size step) {
        bool any = false;
        for (std::size_t w = 0; w < planes_.size(); ++w) any = any || bins[Size(w) * step] != 0;
        if (!any) return;
        features_.push_back(std::uint32_t(f));
        for (std::size_t w = 0; w < planes_.size(); ++w) planes_[w].push_back(bins[Size(w) * step]);
    }

    // What is on a pile instead, which is cleared.
    void take(SparseAccumulator& pile) {
        resize(pile.count());
        std::uint32_t* const features = features_.data();
        std::size_t at = 0;
        with_planes([&](auto planes, auto bins) {
            pile.drain([&](Size f, const double* from) {
                bool any = false;
                for (int w = 0; w < bins; ++w) {
                    planes[w][at] = from[w];
                    any |= from[w] != 0;
                }
                features[at] = std::uint32_t(f);
                // Which of the sums are 0 is not foretold, so no branch asks.
                at += any;
            });
        });
        resize(at);
    }

    // Adds what is on a pile, of `most` features at most, and clears that.
    void add(SparseAccumulator& pile, Size most) {
        // A pile beyond the caches would be waited for at every feature of the sum.
        if (is_few(most) || !pile.fits_caches()) {
            SparseSum other(static_cast<int>(planes_.size()));
            other.take(pile);
            return add(std::move(other));
        }
        with_planes([&](auto planes, auto bins) {
            for (std::size_t t = 0; t < features_.size(); ++t) {
                double* const to = pile.at(Size(features_[t]));
                for (int w = 0; w < bins; ++w) to[w] += planes[w][t];
            }
        });
        take(pile);
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
    bool is_few(Size features) const { return 8 * features < size(); }

    // Calls visit(planes, words); one or two words are known to the compiler, planes to be
    // elsewhere than all that is written.
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
    // A feature that no row has any more goes.
    void add_many(const SparseSum& other, SparseSum& sum) const {
        sum.resize(features_.size() + other.features_.size());
        std::size_t at = 0;
        for_either(features_, other.features_, [&](std::uint32_t f, Size a, Size b) {
            bool any = false;
            for (std::size_t w = 0; w < planes_.size(); ++w) {
                const double word = (a < 0 ? 0.0 : planes_[w][std::size_t(a)]) +
                                    (b < 0 ? 0.0 : other.planes_[w][std::size_t(b)]);
                sum.planes_[w][at] = word;
                any = any || word != 0;
            }
            sum.features_[at] = f;
            at += any;
        });
        sum.resize(at);
    }
    // The same in place.
    void add_few(const SparseSum& other) {
        std::vector<std::size_t> gone, come, places;
        std::size_t at = 0;
        for (std::size_t t = 0; t < other.features_.size(); ++t) {
            at = place_of(other.features_[t], at);
            if (at == features_.size() || features_[at] != other.features_[t]) {
                come.push_back(t);
                continue;
            }
            bool any = false;
            for (std::size_t w = 0; w < planes_.size(); ++w)
                any = (planes_[w][at] += other.planes_[w][t]) != 0 || any;
            if (!any) gone.push_back(at);
        }
        leave(features_, gone);
        for (auto& plane : planes_) leave(plane, gone);
        at = 0;
        for (const std::size_t t : come) places.push_back(at = place_of(other.features_[t], at));
        join(features_, places, other.features_, come);
        for (std::size_t w = 0; w < planes_.size(); ++w)
            join(planes_[w], places, other.planes_[w], come);
    }
    // The first from `at` on that is not below f, which is not far.
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
    static void leave(std::vector<T>& list, const std::vector<std::size_t>& gone) {
        if (gone.empty()) return;
        T* to = list.data() + gone[0];
        for (std::size_t g = 0; g < gone.size(); ++g) {
            const std::size_t end = g + 1 < gone.size() ? gone[g + 1] : list.size();
            to = std::copy(list.data() + gone[g] + 1, list.data() + end, to);
        }
        list.resize(list.size() - gone.size());
    }
    // Puts from[come[g]] before list[places[g]].
    template <class T>
    static void join(std::vector<T>& list, const std::vector<std::size_t>& places,
                     const std::vector<T>& from, const std::vector<std::size_t>& come) {
        std::size_t end = list.size();
        list.resize(end + come.size());
        for (std::size_t g = come.size(); g-- > 0; end = places[g]) {
            T* const here = list.data() + places[g];
            std::copy_backward(here, list.data() + end, list.data() + end + g + 1);
            here[g] = from[come[g]];
        }
    }

    std::vector<std::uint32_t> features_;
    std::vector<std::vector<double>> planes_;
};

// Adds row i to a pile and says how many entries that were.
template <class R, class I>
Size accumulate_row(SparseAccumulator& pile, const Bins& grid, const CsrRows<R, I>& x, Size i,
                    double sign) {
    const auto row = x.row(i);
    const double factor = sign * x.factor(i), scale = grid.scale();
    const PrefetchCursor next(row);
    const auto each = [&](auto add) {
        for (Size t = 0; t < row.nonzeros; ++t) {
            pile.prefetch(next.feature(t));
            const Size f = Size(row.index[t]);
            add(pile.at(f), f, contribution(factor, double(row.value[t]), scale));
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
            cut(grid, f, value, [&](int w, double part) { bins[w] += part; });
        });
    }
    return row.nonzeros;
}

}  // namespace exactmeans
