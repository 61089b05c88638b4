// CSR rows with their features mapped to the packed columns of a layout, as the kernels read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/scores.hpp"

namespace exactmeans {

// The buffers of one thread. Element t is row ids[t] of x (or begin + t).
template <class R>
class PackedCsrRows {
public:
    // value(v) converts an entry to the form that the kernels use.
    template <class X, class I, class Value>
    const PackedCsrRow<R>* load(const CsrRows<X, I>& x, const Panels<R>& panels, Size begin,
                                const Size* ids, Size count, Value value) {
        rows_.resize(std::size_t(count));
        Size total = 0;
        const auto row_of = [&](Size t) { return x.row(ids ? ids[t] : begin + t); };
        for (Size t = 0; t < count; ++t) total += row_of(t).nonzeros;
        constexpr bool own_values = !std::is_same_v<Value, Same>;
        packed_columns_.resize(std::size_t(total));
        values_.resize(std::size_t(own_values || panels.postings ? total : 0));
        hits_.clear();
        if (panels.postings) find_panels(panels);
        std::uint32_t* to = packed_columns_.data();
        R* to_value = values_.data();
        const std::uint32_t* found =
            panels.postings ? look_up(x, panels, total, count, row_of) : nullptr;
        for (Size t = 0; t < count; ++t) {
            const auto row = row_of(t);
            PackedCsrRow<R>& out = rows_[std::size_t(t)];
            if (panels.postings) {
                out = split(row, found, panels, to, to_value, value);
                found += row.nonzeros;
            } else {
                for (Size e = 0; e < row.nonzeros; ++e)
                    to[e] = panels.packed_columns ? panels.packed_columns[row.index[e]]
                                                  : std::uint32_t(row.index[e]);
                if constexpr (own_values) {
                    for (Size e = 0; e < row.nonzeros; ++e) to_value[e] = value(row.value[e]);
                    out = {to, to_value, row.nonzeros};
                } else {
                    out = {to, row.value, row.nonzeros};
                }
            }
            to += out.nonzeros;
            to_value += out.nonzeros;
        }
        place_hits();
        return rows_.data();
    }
    // The same for rows in the dtype of the layout. 32-bit indices that already are packed columns
    // are used in place.
    template <class I>
    const PackedCsrRow<R>* load(const CsrRows<R, I>& x, const Panels<R>& panels, Size begin,
                                const Size* ids, Size count) {
        if (panels.packed_columns || panels.postings || sizeof(I) != sizeof(std::uint32_t))
            return load(x, panels, begin, ids, count, Same());
        rows_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) {
            const auto row = x.row(ids ? ids[t] : begin + t);
            const void* given = row.index;
            rows_[std::size_t(t)] = {static_cast<const std::uint32_t*>(given), row.value,
                                     row.nonzeros};
        }
        return rows_.data();
    }

    // Loads only the entries of frequent features, for reordered scores: the kernel sums their
    // terms, then add_rare adds the terms of rare features.
    template <class X, class I>
    const PackedCsrRow<R>* load_frequent(const CsrRows<X, I>& x, const Panels<R>& panels,
                                         const Size* ids, Size count) {
        rows_.resize(std::size_t(count));
        const auto row_of = [&](Size t) { return x.row(ids[t]); };
        Size total = 0;
        for (Size t = 0; t < count; ++t) total += row_of(t).nonzeros;
        packed_columns_.resize(std::size_t(total));
        values_.resize(std::size_t(total));
        rare_.resize(std::size_t(total) + 1);
        ends_.clear();
        const std::uint32_t rare = std::uint32_t(panels.d);
        std::uint32_t* to = packed_columns_.data();
        R* to_value = values_.data();
        Size rare_count = 0;
        for (Size t = 0; t < count; ++t) {
            const auto row = row_of(t);
            const PrefetchCursor next(x, row);
            Size kept = 0;
            for (Size e = 0; e < row.nonzeros; ++e) {
                __builtin_prefetch(panels.packed_columns + next.feature(e));
                // Branch-free, because the branch would be mispredicted: the entry is written to
                // both outputs, and only one of them advances.
                const std::uint32_t packed_column = panels.packed_columns[row.index[e]];
                to[kept] = packed_column;
                to_value[kept] = R(row.value[e]);
                kept += packed_column < rare;
                rare_[std::size_t(rare_count)] = {packed_column - rare, R(row.value[e])};
                rare_count += packed_column >= rare && packed_column != no_column;
            }
            rows_[std::size_t(t)] = {to, to_value, kept};
            ends_.push_back(rare_count);
            to += kept;
            to_value += kept;
        }
        return rows_.data();
    }
    void add_rare(const Panels<R>& panels, R* scores) const {
        constexpr Size ahead = cost::postings_ahead;
        const Size last = ends_.empty() ? -1 : ends_.back() - 1;
        Size at = 0;
        for (const Size end : ends_) {
            for (; at < end; ++at) {
                const Rare& next = rare_[std::size_t(std::min(at + ahead, last))];
                __builtin_prefetch(panels.postings + next.posting);
                const Rare& own = rare_[std::size_t(at)];
                const Posting<R>* posting = panels.postings + own.posting;
                for (; !(posting->place & Posting<R>::last); ++posting)
                    scores[posting->place] += own.x * posting->value;
                scores[posting->place & ~Posting<R>::last] += own.x * posting->value;
            }
            scores += panels.k;
        }
    }

private:
    // An entry of a rare feature, and where its posting list begins.
    struct Rare {
        std::uint32_t posting;
        R x;
    };
    struct Same {
        R operator()(R value) const { return value; }
    };

    // Looks up the packed columns of all entries. Prefetches them, because the lookups are random
    // accesses.
    template <class X, class I, class RowOf>
    const std::uint32_t* look_up(const CsrRows<X, I>& x, const Panels<R>& panels, Size total,
                                 Size count, RowOf row_of) {
        looked_up_.resize(std::size_t(total));
        std::uint32_t* to = looked_up_.data();
        for (Size t = 0; t < count; ++t) {
            const auto row = row_of(t);
            const PrefetchCursor next(x, row);
            for (Size e = 0; e < row.nonzeros; ++e) {
                __builtin_prefetch(panels.packed_columns + next.feature(e));
                *to++ = panels.packed_columns[row.index[e]];
            }
        }
        return looked_up_.data();
    }

    // Copies the entries of frequent features to `to` and `to_value`, and turns those of rare
    // features into hits. Long float32 chains are cut by entry number (longest_chain), so in these
    // chains a zero replaces a rare entry.
    template <class Row, class Value>
    PackedCsrRow<R> split(const Row& row, const std::uint32_t* found, const Panels<R>& panels,
                          std::uint32_t* to, R* to_value, Value value) {
        const bool cut = sizeof(R) < sizeof(double) && row.nonzeros > longest_chain;
        const std::uint32_t rare = std::uint32_t(panels.d);
        constexpr Size ahead = cost::postings_ahead;
        const std::uint32_t* const end = looked_up_.data() + looked_up_.size();
        const Size first = Size(hits_.size());
        Size kept = 0;
        row_hits_.clear();
        std::fill(per_panel_.begin(), per_panel_.end(), 0u);
        for (Size e = 0; e < row.nonzeros; ++e) {
            const std::uint32_t packed_column = found[e],
                                next = found + e + ahead < end ? found[e + ahead] : 0;
            if (next >= rare && next != no_column)
                __builtin_prefetch(panels.postings + (next - rare));
            const R x = value(row.value[e]);
            if (packed_column < rare || cut) {
                to[kept] = packed_column < rare ? packed_column : rare - 1;
                to_value[kept++] = x;
            }
            if (packed_column < rare || packed_column == no_column) continue;
            const Posting<R>* posting = panels.postings + (packed_column - rare);
            const std::uint32_t at = std::uint32_t(cut ? e : kept);
            while (true) {
                const std::uint32_t place = posting->place & ~Posting<R>::last;
                row_hits_.push_back({at, place, x, posting->value});
                ++per_panel_[panel_of(place) + 1];
                if (posting->place & Posting<R>::last) break;
                ++posting;
            }
        }
        // A stable counting sort by panel.
        for (std::size_t p = 1; p < per_panel_.size(); ++p) per_panel_[p] += per_panel_[p - 1];
        hits_.resize(std::size_t(first) + row_hits_.size());
        for (const PostingHit<R>& hit : row_hits_)
            hits_[std::size_t(first) + per_panel_[panel_of(hit.place)]++] = hit;
        ends_.push_back(Size(hits_.size()));
        return {to, to_value, kept};
    }

    void find_panels(const Panels<R>& panels) {
        ends_.clear();
        panel_of_.clear();
        for (Size p = 0; p < panels.count; ++p)
            panel_of_.resize(
                std::size_t((panels.panel(p).first + panels.panel(p).width()) / unit_width<R>),
                std::uint32_t(p));
        per_panel_.assign(std::size_t(panels.count + 1), 0u);
    }
    std::size_t panel_of(std::uint32_t place) const {
        return panel_of_[place / std::size_t(unit_width<R>)];
    }

    // Sets the pointers to hits, after hits_ has its final size.
    void place_hits() {
        for (std::size_t t = 0; t < ends_.size(); ++t) {
            rows_[t].hits = hits_.data() + (t ? ends_[t - 1] : 0);
            rows_[t].hits_end = hits_.data() + ends_[t];
        }
        ends_.clear();
    }

    std::vector<PackedCsrRow<R>> rows_;
    std::vector<std::uint32_t> packed_columns_, looked_up_;
    std::vector<R> values_;
    std::vector<PostingHit<R>> hits_, row_hits_;
    std::vector<Rare> rare_;
    std::vector<Size> ends_;  // per row: end of its hits, or of its rare entries
    std::vector<std::uint32_t> panel_of_, per_panel_;  // panel of each unit; counts for the sort
};

}  // namespace exactmeans
