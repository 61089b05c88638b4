// Posting lists of the rare features of sparse centres, and packed columns of the frequent ones.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/layout_settings.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/panels.hpp"
#include "exactmeans/numerics/frame.hpp"

namespace exactmeans {

// V: type of the values in the layout.
template <class V>
class PostingLists {
public:
    // Are some features rare, by the last choice?
    bool any() const { return rare_below_ > 0; }
    // Features with a packed column.
    Size frequent() const { return frequent_; }
    // By feature: its packed column, or frequent() + 1 plus the start of its posting list, or
    // no_column.
    const std::uint32_t* columns() const { return columns_.data(); }
    const Posting<V>* postings() const { return postings_.data(); }

    // Decides which features are rare, if the centres changed much: `stale` of them are packed in
    // an earlier version. Returns false if the packed columns changed.
    template <class M>
    bool choose(const std::vector<SparseVector<M>>& centres, Size d, Size stale,
                const LayoutSettings& settings) {
        if (rare_below_ >= 0 && cost::moved_for_choice * stale < Size(centres.size())) return true;
        Size nonzeros = 0;
        for (const SparseVector<M>& centre : centres) nonzeros += centre.size();
        // An older choice is valid for any centres: posting lists hold every feature without a
        // column.
        if (rare_below_ >= 0 &&
            cost::changed_for_choice * std::abs(nonzeros - chosen_for_) <= chosen_for_)
            return true;
        const Size k = Size(centres.size()), before = rare_below_,
                   below = settings.rare_below >= 0 ? settings.rare_below
                                                    : best_rare_below(k, d, nonzeros, settings);
        rare_below_ = -1;  // invalid until the choice is complete
        if (below > 0) {
            find_frequent(centres, d, below);
        } else if (before != 0) {
            columns_ = {};
            postings_ = {};
        }
        rare_below_ = below;
        chosen_for_ = nonzeros;
        return below == 0 && before == 0;
    }

    // Builds the posting lists. at(place) is the centre at a place of the layout.
    template <class M, class At>
    void build(Size k, At at, Size d, const Frame<M>& frame, const Threads& threads) {
        const std::uint32_t rare = std::uint32_t(frequent_ + 1);
        const Size ranges = 2 * cost::tasks_per_thread * threads.n_jobs, step = d / ranges + 1;
        const auto for_range = [&](Size begin, Size end, auto fn) {
            for (Size place = 0; place < k; ++place) {
                const SparseVector<M>& own = at(place);
                const auto from =
                    std::lower_bound(own.feature.begin(), own.feature.end(), std::uint32_t(begin));
                for (std::size_t t = std::size_t(from - own.feature.begin());
                     t < own.feature.size() && Size(own.feature[t]) < end; ++t)
                    if (columns_[own.feature[t]] >= rare) fn(place, own.feature[t], own.value[t]);
            }
        };
        std::vector<Size> total(static_cast<std::size_t>(ranges + 1));
        threads.ranges(d, step, [&](Size begin, Size end, int) {
            Size& own = total[std::size_t(begin / step) + 1];
            for (Size f = begin; f < end; ++f)
                if (columns_[std::size_t(f)] >= rare) columns_[std::size_t(f)] = rare;
            for_range(begin, end, [&](Size, std::uint32_t f, M) {
                ++columns_[f];
                ++own;
            });
        });
        for (std::size_t r = 1; r < total.size(); ++r) total[r] += total[r - 1];
        if (total.back() + rare >= Size(no_column))
            throw std::invalid_argument("centres must have fewer than 2^32 nonzeros");
        postings_.resize(std::size_t(total.back()));
        threads.ranges(d, step, [&](Size begin, Size end, int) {
            std::vector<std::uint32_t> next(static_cast<std::size_t>(end - begin));
            std::uint32_t first = std::uint32_t(total[std::size_t(begin / step)]);
            for (Size f = begin; f < end; ++f) {
                std::uint32_t& column = columns_[std::size_t(f)];
                if (column < rare) continue;
                const std::uint32_t count = column - rare;
                column = count ? rare + first : no_column;
                next[std::size_t(f - begin)] = first;
                first += count;
            }
            for_range(begin, end, [&](Size place, std::uint32_t f, M value) {
                postings_[next[std::size_t(Size(f) - begin)]++] = {std::uint32_t(place),
                                                                   V(frame.packed(Size(f), value))};
            });
            for (Size f = begin; f < end; ++f)
                if (columns_[std::size_t(f)] >= rare && columns_[std::size_t(f)] != no_column)
                    postings_[next[std::size_t(f - begin)] - 1].place |= Posting<V>::last;
        });
    }

private:
    static Size best_rare_below(Size k, Size d, Size nonzeros, const LayoutSettings& settings) {
        if (settings.all_have_columns(double(padded<V>(k)) * double(d), nonzeros, sizeof(V)))
            return 0;
        return std::max<Size>(2, k * Size(sizeof(V)) / cost::posting_bytes);
    }

    // Assigns columns to the features of at least `rare_below` centres, by descending magnitude of
    // their frequency, so that frequent features share cache lines.
    template <class M>
    void find_frequent(const std::vector<SparseVector<M>>& centres, Size d, Size rare_below) {
        if (d > largest_sparse_d) throw std::invalid_argument("X must have at most 2^31 columns");
        columns_.assign(std::size_t(d), 0u);
        for (const SparseVector<M>& centre : centres)
            for (const std::uint32_t f : centre.feature) ++columns_[f];
        constexpr int magnitudes = 32;
        Size first[magnitudes + 1] = {};
        const auto magnitude = [&](std::uint32_t count) { return 32 - std::bit_width(count); };
        for (const std::uint32_t count : columns_)
            if (Size(count) >= rare_below) ++first[magnitude(count) + 1];
        for (int m = 0; m < magnitudes; ++m) first[m + 1] += first[m];
        frequent_ = first[magnitudes];
        for (std::uint32_t& column : columns_)
            column =
                Size(column) >= rare_below ? std::uint32_t(first[magnitude(column)]++) : no_column;
    }

    Size rare_below_ = -1;  // the choice; -1: none yet
    Size chosen_for_ = 0;   // nonzeros of the centres at that choice
    Size frequent_ = 0;
    std::vector<std::uint32_t> columns_;
    std::vector<Posting<V>> postings_;
};

}  // namespace exactmeans
