// The exact sum of rows in the words of a grid.
#pragma once

#include "exactmeans/compensated.hpp"
#include "exactmeans/grid.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/rows.hpp"
#include "exactmeans/sparse.hpp"

namespace exactmeans {

// Calls put(w, part) for each word of a value in column f.
template <class Put>
void cut(const Grid& grid, Size f, double value, Put put) {
    const int last = grid.words() - 1;
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
inline TwoSum total(const Grid& grid, const double* words, Size step) {
    const int last = grid.words() - 1;
    TwoSum sum(words[last * step], 0.0);
    for (int w = last - 1; w >= 0; --w) {
        const TwoSum next(words[w * step], sum.sum);
        sum = TwoSum(next.sum, next.error + sum.error);
    }
    return sum;
}

// Word planes of one dense vector of sums: plane w starts at words + w * columns.
class SumRow {
public:
    SumRow(double* words, Size columns, const Grid& grid)
        : words_(words), d_(columns), grid_(&grid) {}

    // Adds row i; sign is +1 or -1.
    template <class R>
    void add(const DenseRows<R>& x, Size i, double sign) {
        const Grid& grid = *grid_;
        const R* row = x.row(i);
        const double factor = sign * x.pull(i);
        // The product is rounded once and the sum not at all, so the sign commutes with both.
        if (x.col_stride == 1 && grid.words() == 1 && grid.exponent() == 0)
            kernels<R>().add_row(words_, row, factor, d_);
        else if (x.col_stride == 1 && grid.words() == 2)
            kernels<R>().add_row2(words_, words_ + d_, row, grid.magic_row(0), grid.per_column(),
                                  factor, grid.scale(), d_);
        else
            for (Size f = 0; f < d_; ++f)
                add_value(f, contribution(factor, double(x.at(i, f)), grid.scale()));
    }

    template <class R, class I>
    void add(const CsrRows<R, I>& x, Size i, double sign) {
        const auto row = x.row(i);
        const double factor = sign * x.pull(i), scale = grid_->scale();
        for (Size t = 0; t < row.nonzeros; ++t)
            add_value(Size(row.index[t]), contribution(factor, double(row.value[t]), scale));
    }

    void add_value(Size f, double value) {
        cut(*grid_, f, value, [&](int w, double part) { words_[w * d_ + f] += part; });
    }

    TwoSum total(Size f) const { return exactmeans::total(*grid_, words_ + f, d_); }

private:
    double* words_;
    Size d_;
    const Grid* grid_;
};

// The same of CSR rows, with the features that occur in them and no others, ascending.
class SparseSum {
public:
    explicit SparseSum(int words = 1) : planes_(static_cast<std::size_t>(words)) {}

    Size size() const { return Size(features_.size()); }
    const std::vector<std::uint32_t>& features() const { return features_; }
    const double* plane(int w) const { return planes_[std::size_t(w)].data(); }

    void clear() {
        features_.clear();
        for (auto& plane : planes_) plane.clear();
    }

    // Appends a feature beyond all there are: words[0], words[step] and so on; zeros are left out.
    void push(Size f, const double* words, Size step) {
        bool any = false;
        for (std::size_t w = 0; w < planes_.size(); ++w) any = any || words[Size(w) * step] != 0;
        if (!any) return;
        features_.push_back(std::uint32_t(f));
        for (std::size_t w = 0; w < planes_.size(); ++w)
            planes_[w].push_back(words[Size(w) * step]);
    }

    void reserve(std::size_t size) {
        features_.reserve(size);
        for (auto& plane : planes_) plane.reserve(size);
    }

    void add(SparseSum&& other) {
        if (size() == 0)
            *this = std::move(other);
        else
            add(other);
    }
    void add(const SparseSum& other) {
        if (other.size() == 0) return;
        SparseSum sum(static_cast<int>(planes_.size()));
        if (8 * other.size() < size())
            add_few(other, sum);
        else
            add_many(other, sum);
        *this = std::move(sum);
    }

private:
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
    // The same, copying what lies between the other's features as it is.
    void add_few(const SparseSum& other, SparseSum& sum) const {
        sum.features_.reserve(features_.size() + other.features_.size());
        for (auto& plane : sum.planes_) plane.reserve(sum.features_.capacity());
        std::vector<double> words(planes_.size());
        std::size_t at = 0;
        for (std::size_t t = 0; t < other.features_.size(); ++t) {
            const std::uint32_t f = other.features_[t];
            const auto place =
                std::size_t(std::lower_bound(features_.begin() + Size(at), features_.end(), f) -
                            features_.begin());
            sum.append(*this, at, place);
            const bool here = place < features_.size() && features_[place] == f;
            for (std::size_t w = 0; w < words.size(); ++w)
                words[w] = (here ? planes_[w][place] : 0.0) + other.planes_[w][t];
            sum.push(Size(f), words.data(), 1);
            at = place + here;
        }
        sum.append(*this, at, features_.size());
    }
    void append(const SparseSum& other, std::size_t begin, std::size_t end) {
        features_.insert(features_.end(), other.features_.begin() + Size(begin),
                         other.features_.begin() + Size(end));
        for (std::size_t w = 0; w < planes_.size(); ++w)
            planes_[w].insert(planes_[w].end(), other.planes_[w].begin() + Size(begin),
                              other.planes_[w].begin() + Size(end));
    }

    std::vector<std::uint32_t> features_;
    std::vector<std::vector<double>> planes_;
};

template <class R, class I>
void pile_up(Pile& pile, const Grid& grid, const CsrRows<R, I>& x, Size i, double sign) {
    const auto row = x.row(i);
    const double factor = sign * x.pull(i), scale = grid.scale();
    const auto each = [&](auto add) {
        for (Size t = 0; t < row.nonzeros; ++t) {
            const Size f = Size(row.index[t]);
            add(pile.at(f), f, contribution(factor, double(row.value[t]), scale));
        }
    };
    if (grid.words() == 1) {
        each([](double* words, Size, double value) { words[0] += value; });
    } else if (grid.words() == 2) {
        const double* magic = grid.magic_row(0);
        const Size step = grid.per_column() ? 1 : 0;
        each([=](double* words, Size f, double value) {
            const double m = magic[f * step], part = (value + m) - m;
            words[0] += part;
            words[1] += value - part;
        });
    } else {
        each([&](double* words, Size f, double value) {
            cut(grid, f, value, [&](int w, double part) { words[w] += part; });
        });
    }
}

}  // namespace exactmeans
