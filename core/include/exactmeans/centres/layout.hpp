// Panels of centres that the kernels read, kept up to date with the master copy.
//
// Sparse centres have one of two layouts. Panels with a column for every feature are fastest while
// they fit the caches. If there are many features that few centres have, panels hold only the
// frequent features, and each rare feature has a posting list of its centres. Memory is then
// proportional to the nonzeros, and a rare feature of a row touches only the centres that have it.
// Both layouts give the same scores, because all omitted terms are 0.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/panels.hpp"
#include "exactmeans/numerics/frame.hpp"

namespace exactmeans {

template <class R>
class Layout {
public:
    // Sparse centres, in the precision of the layout or a higher one.
    template <class M>
    using Sparse = std::vector<SparseVector<M>>;

    explicit Layout(Size k) : k_(k), stale_(std::size_t(k), 1) {}
    // A layout with the settings of another one, for sparse centres in this order and number of
    // panels.
    Layout(const Layout& other, std::vector<std::int32_t> order, Size panels) : Layout(other.k_) {
        packed_columns_ = other.packed_columns_;
        requested_rare_below_ = other.requested_rare_below_;
        panel_bytes_ = other.panel_bytes_;
        order_ = std::move(order);
        ordered_panels_ = panels;
    }

    // Marks the centre at this place as moved. Without an order, place j is centre j.
    void outdate(Size place) { stale_[std::size_t(place)] = 1; }

    // The order of features in panels that have all of them.
    void set_packed_columns(std::vector<std::uint32_t> packed_columns) {
        packed_columns_ = std::move(packed_columns);
        std::fill(stale_.begin(), stale_.end(), char(1));
    }
    const std::uint32_t* packed_columns_or_null() const {
        return packed_columns_.empty() ? nullptr : packed_columns_.data();
    }
    // Features of fewer centres than this are rare; 0: no feature is; negative: choose
    // automatically.
    void set_rare_below(Size centres) {
        requested_rare_below_ = centres;
        rare_below_ = -1;
        std::fill(stale_.begin(), stale_.end(), char(1));
    }

    // Limit, in bytes, of panels with all features.
    void set_room(Size bytes) {
        panel_bytes_ = double(bytes);
        rare_below_ = -1;
        std::fill(stale_.begin(), stale_.end(), char(1));
    }

    double room() const { return panel_bytes_; }
    bool lists_rare_features() const { return requested_rare_below_ > 0; }
    // Should panels of sparse centres have a column for every feature, with values of `size` bytes?
    // Yes if they fit in 32 MB, or if at least 2 % of their values are nonzero (1 % for 8-bit
    // panels up to 64 MB, which are cheap to repack) and they fit in 512 MB.
    bool all_have_columns(Size d, Size nonzeros, std::size_t size) const {
        const double values = double(padded<R>(k_)) * double(d), bytes = values * double(size),
                     share = size < sizeof(float) && bytes <= 0x1p26 ? 0.01 : 0.02;
        return bytes <= panel_bytes_ &&
               (bytes <= 0x1p25 || (double(nonzeros) >= share * values && bytes <= 0x1p29));
    }

    Panels<R> panels(const std::vector<R>& master, Size d, const Frame<R>& frame,
                     const R* score_offset, bool dense, const Threads& threads) {
        const Size count = dense ? dense_panels<R>(k_) : csr_panels<R>(k_);
        const std::uint32_t* packed_columns = dense ? nullptr : packed_columns_or_null();
        const Panels<R> view = resize(d, score_offset, count, packed_columns);
        const bool plain = frame.packs_as_is();
        // Small ranges of features keep the centres of a unit in cache.
        const Size step = std::max<Size>(64, 16384 / std::max<Size>(1, k_));
        if (any_stale())
            threads.ranges(d, step, [&](Size begin, Size end, int) {
                for_stale_units(view, 0, count, [&](const Panel& panel, Size j, Size unit_centres) {
                    const R* centre = master.data() + j * d;
                    for (Size f = begin; f < end; ++f) {
                        R* to = lanes(panel, j, d, packed_columns ? Size(packed_columns[f]) : f);
                        for (Size l = 0; plain && l < unit_centres; ++l) to[l] = -centre[l * d + f];
                        for (Size l = 0; !plain && l < unit_centres; ++l)
                            to[l] = packed(frame, f, centre[l * d + f]);
                    }
                });
            });
        std::fill(stale_.begin(), stale_.end(), char(0));
        return view;
    }

    template <class M>
    Panels<R> panels(const Sparse<M>& master, Size d, const Frame<M>& frame, const R* score_offset,
                     const Threads& threads) {
        const Size stale = Size(std::count(stale_.begin(), stale_.end(), char(1)));
        if (stale && (rare_below_ < 0 || 4 * stale >= k_)) choose(master, d);
        const bool hybrid = rare_below_ > 0;
        if (hybrid && stale) list_rare(master, d, frame, threads);
        Panels<R> view = resize(hybrid ? frequent_ + 1 : d, score_offset,
                                order_.empty() ? csr_panels<R>(k_) : ordered_panels_,
                                hybrid ? feature_columns_.data() : packed_columns_or_null());
        if (hybrid) view.postings = postings_.data();
        if (stale)
            threads.run(view.count, [&](Size p, int) {
                for_stale_units(view, p, p + 1, [&](const Panel& panel, Size j, Size unit_centres) {
                    pack(master, view, frame, panel, j, unit_centres);
                });
            });
        std::fill(stale_.begin(), stale_.end(), char(0));
        return view;
    }

    // Value c of feature f as stored in panels. Multiplying the centre by the squared scale equals
    // scaling both row and centre.
    static R packed(const Frame<R>& frame, Size f, R c) {
        if (frame.packs_as_is()) return -c;
        if (!frame.shift.empty()) c -= frame.shift[std::size_t(f)];
        const int by = 2 * frame.exponent + frame.packing;
        return by ? R(-std::ldexp(double(c), by)) : -c;
    }

private:
    using Panel = typename Panels<R>::Panel;

    bool any_stale() const {
        return std::find(stale_.begin(), stale_.end(), char(1)) != stale_.end();
    }

    Panels<R> resize(Size d, const R* score_offset, Size count,
                     const std::uint32_t* packed_columns) {
        const std::size_t size = std::size_t(padded<R>(k_) * d);
        if (values_.size() != size || count_ != count || used_ != packed_columns) {
            values_.assign(size, R(0));
            std::fill(stale_.begin(), stale_.end(), char(1));
            count_ = count;
            used_ = packed_columns;
        }
        return {values_.data(), score_offset, k_, d, count, packed_columns, nullptr};
    }

    // Calls fn(panel, j, count) for each outdated unit of panels [from, to): `count` places from j
    // on.
    template <class Fn>
    void for_stale_units(const Panels<R>& view, Size from, Size to, Fn fn) const {
        for (Size p = from; p < to; ++p) {
            const Panel panel = view.panel(p);
            const Size past = std::min(k_, panel.first + panel.width());
            for (Size j = panel.first; j < past; j += unit_width<R>) {
                const Size unit_centres = std::min(unit_width<R>, k_ - j);
                const auto stale = stale_.begin() + j;
                if (std::find(stale, stale + unit_centres, char(1)) != stale + unit_centres)
                    fn(panel, j, unit_centres);
            }
        }
    }

    template <class M>
    const SparseVector<M>& at(const Sparse<M>& master, Size place) const {
        return master[std::size_t(order_.empty() ? place : order_[std::size_t(place)])];
    }

    // Packs the sparse centres at places [j, j + unit_centres), one unit.
    template <class M>
    void pack(const Sparse<M>& master, const Panels<R>& view, const Frame<M>& frame,
              const Panel& panel, Size j, Size unit_centres) {
        for (Size packed_column = 0; packed_column < view.d; ++packed_column) {
            R* to = lanes(panel, j, view.d, packed_column);
            std::fill(to, to + unit_width<R>, R(0));
        }
        for (Size l = 0; l < unit_centres; ++l) {
            const SparseVector<M>& own = at(master, j + l);
            for (std::size_t t = 0; t < own.feature.size(); ++t) {
                const Size f = Size(own.feature[t]),
                           packed_column = view.packed_columns ? Size(view.packed_columns[f]) : f;
                if (packed_column < view.d)
                    lanes(panel, j, view.d, packed_column)[l] =
                        R(Layout<M>::packed(frame, f, own.value[t]));
            }
        }
    }

    // Decides which features are rare for the current centres.
    template <class M>
    void choose(const Sparse<M>& master, Size d) {
        Size nonzeros = 0;
        for (const SparseVector<M>& centre : master) nonzeros += centre.size();
        // A slightly outdated choice is valid: posting lists hold every feature without a column.
        if (rare_below_ >= 0 && 8 * std::abs(nonzeros - chosen_for_) <= chosen_for_) return;
        const Size before = rare_below_, below = requested_rare_below_ >= 0
                                                     ? requested_rare_below_
                                                     : best_rare_below(d, nonzeros);
        rare_below_ = -1;  // invalid until the choice is complete
        if (below > 0) {
            find_frequent(master, d, below);
            values_.clear();
        } else if (before != 0) {
            feature_columns_ = {};
            postings_ = {};
            values_.clear();
        }
        rare_below_ = below;
        chosen_for_ = nonzeros;
    }

    Size best_rare_below(Size d, Size nonzeros) const {
        if (all_have_columns(d, nonzeros, sizeof(R))) return 0;
        // Adding one posting takes about as long as 64 bytes of lanes.
        return std::max<Size>(2, k_ * Size(sizeof(R)) / 64);
    }

    // Assigns columns to the features of at least `rare_below` centres, roughly the most frequent
    // first.
    template <class M>
    void find_frequent(const Sparse<M>& master, Size d, Size rare_below) {
        if (d > largest_sparse_d) throw std::invalid_argument("X must have at most 2^31 columns");
        feature_columns_.assign(std::size_t(d), 0u);
        for (const SparseVector<M>& centre : master)
            for (const std::uint32_t f : centre.feature) ++feature_columns_[f];
        constexpr int magnitudes = 32;
        Size first[magnitudes + 1] = {};
        const auto magnitude = [&](std::uint32_t count) { return 32 - std::bit_width(count); };
        for (const std::uint32_t count : feature_columns_)
            if (Size(count) >= rare_below) ++first[magnitude(count) + 1];
        for (int m = 0; m < magnitudes; ++m) first[m + 1] += first[m];
        frequent_ = first[magnitudes];
        for (std::uint32_t& column : feature_columns_)
            column =
                Size(column) >= rare_below ? std::uint32_t(first[magnitude(column)]++) : no_column;
    }

    // Builds the posting lists of features without a column.
    template <class M>
    void list_rare(const Sparse<M>& master, Size d, const Frame<M>& frame, const Threads& threads) {
        const std::uint32_t rare = std::uint32_t(frequent_ + 1);
        const Size ranges = 8 * threads.n_jobs, step = d / ranges + 1;
        const auto for_range = [&](Size begin, Size end, auto fn) {
            for (Size j = 0; j < k_; ++j) {
                const SparseVector<M>& own = at(master, j);
                const auto from =
                    std::lower_bound(own.feature.begin(), own.feature.end(), std::uint32_t(begin));
                for (std::size_t t = std::size_t(from - own.feature.begin());
                     t < own.feature.size() && Size(own.feature[t]) < end; ++t)
                    if (feature_columns_[own.feature[t]] >= rare)
                        fn(j, own.feature[t], own.value[t]);
            }
        };
        std::vector<Size> total(static_cast<std::size_t>(ranges + 1));
        threads.ranges(d, step, [&](Size begin, Size end, int) {
            Size& own = total[std::size_t(begin / step) + 1];
            for (Size f = begin; f < end; ++f)
                if (feature_columns_[std::size_t(f)] >= rare)
                    feature_columns_[std::size_t(f)] = rare;
            for_range(begin, end, [&](Size, std::uint32_t f, M) {
                ++feature_columns_[f];
                ++own;
            });
        });
        for (std::size_t r = 1; r < total.size(); ++r) total[r] += total[r - 1];
        if (total.back() + rare >= Size(no_column))
            throw std::invalid_argument("centres must have fewer than 2^32 nonzeros");
        postings_.resize(std::size_t(total.back()));
        threads.ranges(d, step, [&](Size begin, Size end, int) {
            std::vector<std::uint32_t> next(static_cast<std::size_t>(end - begin));
            std::uint32_t at = std::uint32_t(total[std::size_t(begin / step)]);
            for (Size f = begin; f < end; ++f) {
                std::uint32_t& column = feature_columns_[std::size_t(f)];
                if (column < rare) continue;
                const std::uint32_t count = column - rare;
                column = count ? rare + at : no_column;
                next[std::size_t(f - begin)] = at;
                at += count;
            }
            for_range(begin, end, [&](Size j, std::uint32_t f, M value) {
                postings_[next[std::size_t(Size(f) - begin)]++] = {
                    std::uint32_t(j), R(Layout<M>::packed(frame, Size(f), value))};
            });
            for (Size f = begin; f < end; ++f)
                if (feature_columns_[std::size_t(f)] >= rare &&
                    feature_columns_[std::size_t(f)] != no_column)
                    postings_[next[std::size_t(f - begin)] - 1].place |= Posting<R>::last;
        });
    }

    // Where a panel stores the unit of centre j in a packed column.
    R* lanes(const Panel& panel, Size j, Size d, Size packed_column) {
        return values_.data() + panel.first * d + packed_column * panel.width() + (j - panel.first);
    }

    Size k_;
    std::vector<std::int32_t> order_;  // the centre at each place; empty: place j is centre j
    Size ordered_panels_ = 0;
    Size requested_rare_below_ = -1;
    double panel_bytes_ = 0x1p62;
    Size rare_below_ = -1;                       // -1: not chosen yet
    Size chosen_for_ = 0;                        // nonzeros of the centres at that choice
    Size frequent_ = 0;                          // features with a column
    Size count_ = 0;                             // number of panels
    const std::uint32_t* used_ = nullptr;        // the columns that values_ was packed with
    std::vector<std::uint32_t> packed_columns_;  // with columns for all features; empty: in order
    // With posting lists: the packed column or posting list of each feature.
    std::vector<std::uint32_t> feature_columns_;
    std::vector<Posting<R>> postings_;
    AlignedVector<R> values_;
    std::vector<char> stale_;  // places whose centre has to be packed
};

}  // namespace exactmeans
