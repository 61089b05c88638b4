// Sparse vectors, merges of two of them, and the sparse accumulator (SPA).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// Features are stored in 32 bits.
inline constexpr Size largest_sparse_d = Size(1) << 31;

// Ascending features and their values; all other values are +0.
template <class R>
struct SparseVector {
    std::vector<std::uint32_t> feature;
    std::vector<R> value;

    Size size() const { return Size(feature.size()); }
    void clear() {
        feature.clear();
        value.clear();
    }
    void push(Size f, R v) {
        feature.push_back(std::uint32_t(f));
        value.push_back(v);
    }
    R at(Size f) const {
        const auto place = std::lower_bound(feature.begin(), feature.end(), std::uint32_t(f));
        return place != feature.end() && Size(*place) == f
                   ? value[std::size_t(place - feature.begin())]
                   : R(0);
    }
    bool operator==(const SparseVector& other) const {
        // memcmp must not get the null pointer of an empty vector.
        return feature == other.feature &&
               (value.empty() ||
                std::memcmp(value.data(), other.value.data(), value.size() * sizeof(R)) == 0);
    }
};

// Calls visit(feature, index in a or -1, index in b or -1) for each feature of the union.
template <class Visit>
void for_either(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                Visit visit) {
    const Size na = Size(a.size()), nb = Size(b.size());
    Size s = 0, t = 0;
    while (s < na && t < nb) {
        const std::uint32_t fa = a[std::size_t(s)], fb = b[std::size_t(t)];
        // Most features are in both lists, so this branch is predicted well.
        if (fa == fb) {
            visit(fa, s++, t++);
            continue;
        }
        const bool first = fa < fb;
        visit(first ? fa : fb, first ? s : -1, first ? -1 : t);
        s += first;
        t += !first;
    }
    for (; s < na; ++s) visit(a[std::size_t(s)], s, Size(-1));
    for (; t < nb; ++t) visit(b[std::size_t(t)], Size(-1), t);
}

// *value if `there`, else 0. Branch-free, because the branch would be mispredicted.
template <class T>
T value_if(bool there, const T* value) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    Bits bits;
    std::memcpy(&bits, value, sizeof bits);
    return std::bit_cast<T>(bits & (Bits(0) - Bits(there)));
}

// Length of the blocks in which two lists are compared, and copied if they are equal.
inline constexpr Size equal_block = 8;
template <class T>
void copy_block(const T* from, T* to) {
    std::memcpy(to, from, std::size_t(equal_block) * sizeof(T));
}
// The same for overlapping ranges.
template <class T>
void move_block(const T* from, T* to) {
    T values[std::size_t(equal_block)];
    copy_block(from, values);
    copy_block(values, to);
}
// for_either for lists that are mostly equal, with visitors that write a merged list. Calls
// same(position, index in a, index in b) for the next `equal_block` features if both lists have the
// same ones, else one(position, feature, index in a, is in a, index in b, is in b) for one feature.
// A list without the feature still gets an index inside its bounds, or 0 if it is empty. Returns
// the number of features of the union.
template <class Same, class One>
Size for_either_blocks(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                       Same same, One one) {
    const Size na = Size(a.size()), nb = Size(b.size());
    Size at = 0, s = 0, t = 0;
    while (s + equal_block <= na && t + equal_block <= nb) {
        const std::uint32_t *const fa = a.data() + s, *const fb = b.data() + t;
        std::uint32_t bits = 0;
        for (Size l = 0; l < equal_block; ++l) bits |= fa[l] ^ fb[l];
        if (bits == 0) {
            same(at, s, t);
            at += equal_block;
            s += equal_block;
            t += equal_block;
            continue;
        }
        // Both lists have `equal_block` more features, and a step takes at most one of each.
        for (Size l = 0; l < equal_block; ++l) {
            const std::uint32_t f = std::min(a[std::size_t(s)], b[std::size_t(t)]);
            const bool in_a = a[std::size_t(s)] == f, in_b = b[std::size_t(t)] == f;
            one(at++, f, s, in_a, t, in_b);
            s += in_a;
            t += in_b;
        }
    }
    for (; s < na || t < nb; ++at) {
        const bool in_a = t == nb || (s < na && a[std::size_t(s)] <= b[std::size_t(t)]);
        const bool in_b = s == na || (t < nb && b[std::size_t(t)] <= a[std::size_t(s)]);
        const std::uint32_t f = in_a ? a[std::size_t(s)] : b[std::size_t(t)];
        one(at, f, std::min(s, std::max<Size>(na, 1) - 1), in_a,
            std::min(t, std::max<Size>(nb, 1) - 1), in_b);
        s += in_a;
        t += in_b;
    }
    return at;
}

// Two sparse vectors as value arrays over the union of their features. Vectors with equal features
// are referenced, not copied, so they must outlive the pair.
template <class R>
class AlignedPair {
public:
    AlignedPair(const SparseVector<R>& a, const SparseVector<R>& b)
        : size_(a.size()),
          feature_(a.feature.data()),
          left_(a.value.data()),
          right_(b.value.data()) {
        if (a.feature != b.feature) merge(a, b);
    }
    Size size() const { return size_; }
    const std::uint32_t* feature() const { return feature_; }
    const R* left() const { return left_; }
    const R* right() const { return right_; }

private:
    void merge(const SparseVector<R>& a, const SparseVector<R>& b) {
        const std::size_t most = a.feature.size() + b.feature.size();
        own_feature_ = std::make_unique_for_overwrite<std::uint32_t[]>(most);
        own_values_ = std::make_unique_for_overwrite<R[]>(2 * most);
        R *const left = own_values_.get(), *const right = left + most;
        // Gives value_if an address to read if a list is empty.
        const R none = 0;
        const R* const a_value = a.size() ? a.value.data() : &none;
        const R* const b_value = b.size() ? b.value.data() : &none;
        size_ = for_either_blocks(
            a.feature, b.feature,
            [&](Size at, Size s, Size t) {
                copy_block(a.feature.data() + s, own_feature_.get() + at);
                copy_block(a_value + s, left + at);
                copy_block(b_value + t, right + at);
            },
            [&](Size at, std::uint32_t f, Size s, bool in_a, Size t, bool in_b) {
                own_feature_[std::size_t(at)] = f;
                left[at] = value_if(in_a, a_value + s);
                right[at] = value_if(in_b, b_value + t);
            });
        feature_ = own_feature_.get();
        left_ = left;
        right_ = right;
    }

    Size size_;
    const std::uint32_t* feature_;
    const R *left_, *right_;
    std::unique_ptr<std::uint32_t[]> own_feature_;
    std::unique_ptr<R[]> own_values_;
};

// A sparse accumulator (SPA): a dense vector with `bins` doubles per feature and bit masks of the
// features that were touched. Pages that are never touched are not backed by memory.
class SparseAccumulator {
public:
    SparseAccumulator(Size d, int bins)
        : bins_(bins),
          values_(static_cast<double*>(std::calloc(std::size_t(d * bins), sizeof(double)))),
          marks_(std::size_t(d / 64 + 1)),
          tops_(marks_.size() / 64 + 1) {
        if (!values_) throw std::bad_alloc();
    }

    // The bins of feature f; marks the feature as touched.
    double* at(Size f) {
        std::uint64_t& mark = marks_[std::size_t(f >> 6)];
        // Neighbouring features share a word of tops_. Writing it only for the first of them avoids
        // waiting for the store before the next load.
        if (!mark) tops_[std::size_t(f >> 12)] |= std::uint64_t(1) << ((f >> 6) & 63);
        mark |= std::uint64_t(1) << (f & 63);
        return values_.get() + f * bins_;
    }
    void prefetch(Size f) const { __builtin_prefetch(values_.get() + f * bins_, 1); }
    // Reads bins without marking the feature.
    const double* peek(Size f) const { return values_.get() + f * bins_; }

    // Do all values fit L2?
    bool fits_caches() const {
        return Size(marks_.size()) * 64 * bins_ <= cost::accumulator_values;
    }

    // The number of touched features.
    std::size_t count() const {
        std::size_t sum = 0;
        for (std::size_t top = 0; top < tops_.size(); ++top)
            for (std::uint64_t left = tops_[top]; left; left &= left - 1)
                sum += std::size_t(
                    std::popcount(marks_[top * 64 + std::size_t(std::countr_zero(left))]));
        return sum;
    }

    // Calls visit(feature, bins) for all touched features in ascending order, and clears them.
    template <class Visit>
    void drain(Visit visit) {
        // With a compile-time count the compiler clears bins without a loop.
        if (bins_ == 1)
            drain_by(std::integral_constant<Size, 1>(), visit);
        else if (bins_ == 2)
            drain_by(std::integral_constant<Size, 2>(), visit);
        else
            drain_by(bins_, visit);
    }

private:
    struct Free {
        void operator()(double* p) const { std::free(p); }
    };

    template <class BinCount, class Visit>
    void drain_by(BinCount bins, Visit visit) {
        for (std::size_t top = 0; top < tops_.size(); ++top) {
            for (std::uint64_t words = std::exchange(tops_[top], 0); words; words &= words - 1) {
                const std::size_t at = top * 64 + std::size_t(std::countr_zero(words));
                double* const values = values_.get() + Size(at) * 64 * bins;
                for (std::uint64_t left = std::exchange(marks_[at], 0); left; left &= left - 1) {
                    const Size l = std::countr_zero(left);
                    visit(Size(at) * 64 + l, values + l * bins);
                    std::fill_n(values + l * bins, Size(bins), 0.0);
                }
            }
        }
    }

    Size bins_;
    std::unique_ptr<double[], Free> values_;
    std::vector<std::uint64_t> marks_;  // one bit per touched feature
    std::vector<std::uint64_t> tops_;   // one bit per nonzero word of marks_
};

}  // namespace exactmeans
