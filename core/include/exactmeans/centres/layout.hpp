// Panels of centres that the kernels read, packed from one version of the centres.
//
// Sparse centres have one of two layouts. Panels with a column for every feature are fastest while
// they fit the caches. Otherwise, if most features occur in few centres only, panels hold only the
// frequent features, and each rare feature has a posting list of its centres. Memory is then
// proportional to the nonzeros, and a rare feature of a row is multiplied only with the centres
// that have it. Both layouts give the same scores, because all omitted terms are 0.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout_settings.hpp"
#include "exactmeans/centres/posting_lists.hpp"
#include "exactmeans/kernels/panels.hpp"

namespace exactmeans {

// V: type of the packed values, the dtype of the centres or a lower precision.
template <class V>
class Layout {
public:
    using Settings = std::shared_ptr<const LayoutSettings>;

    template <class M>
    Layout(const Centres<M>& centres, Settings settings, bool dense)
        : Layout(centres, std::move(settings), dense, {},
                 dense ? dense_panels<V>(centres.k()) : csr_panels<V>(centres.k())) {}
    // order: the centre at each place; empty: place j is centre j.
    template <class M>
    Layout(const Centres<M>& centres, Settings settings, bool dense,
           std::vector<std::int32_t> order, Size panels)
        : k_(centres.k()),
          d_(centres.d()),
          width_(d_),
          count_(panels),
          dense_(dense),
          settings_(std::move(settings)),
          order_(std::move(order)),
          score_offset_(std::size_t(padded<V>(k_)), std::numeric_limits<V>::infinity()),
          packed_(std::size_t(k_), -1),
          stale_(std::size_t(k_), 1) {
        if (centres.sparse() && dense)
            throw std::invalid_argument("sparse centres are for CSR rows");
    }

    // The version of the centres that the panels are packed from; -1 if an update did not end.
    Size version() const { return version_; }
    // Valid until the next update.
    Panels<V> panels() const {
        return {values_.data(),
                score_offset_.data(),
                k_,
                width_,
                count_,
                packed_columns(),
                lists_.any() ? lists_.postings() : nullptr};
    }

    // Packs the centres that moved. Records what is packed only after all of it is, so that an
    // interrupted update is repeated.
    template <class M>
    void update(const Centres<M>& centres, const Threads& threads) {
        if (version_ == centres.version()) return;
        version_ = -1;
        for (Size place = 0; place < k_; ++place)
            if (packed_[std::size_t(place)] != centres.moved_in(centre(place)))
                stale_[std::size_t(place)] = 1;
        set_score_offsets(centres);
        if (centres.sparse())
            pack_sparse(centres, threads);
        else if constexpr (std::is_same_v<M, V>)
            pack_dense(centres, threads);
        else
            throw std::invalid_argument("dense centres are packed in their own dtype");
        for (Size place = 0; place < k_; ++place)
            packed_[std::size_t(place)] = centres.moved_in(centre(place));
        std::fill(stale_.begin(), stale_.end(), char(0));
        version_ = centres.version();
    }

private:
    using Panel = typename Panels<V>::Panel;

    Size centre(Size place) const {
        return order_.empty() ? place : Size(order_[std::size_t(place)]);
    }
    const std::uint32_t* packed_columns() const {
        if (dense_) return nullptr;
        return lists_.any() ? lists_.columns() : settings_->packed_columns_or_null();
    }

    template <class M>
    void set_score_offsets(const Centres<M>& centres) {
        // Kernels of dense rows sum |x - c| over all features, so the L1 score offset is 0.
        const bool none = dense_ && centres.frame().metric == Metric::manhattan;
        for (Size place = 0; place < k_; ++place)
            score_offset_[std::size_t(place)] =
                none ? V(0) : V(centres.score_offset()[centre(place)]);
    }

    void pack_dense(const Centres<V>& centres, const Threads& threads) {
        const Panels<V> view = resize();
        if (!any_stale()) return;
        const Frame<V>& frame = centres.frame();
        const bool plain = frame.packs_as_is();
        const std::uint32_t* columns = packed_columns();
        // Ranges of features are small, so that the lines of a unit's centres stay in cache.
        const Size step = std::max<Size>(cost::packed_features_per_task,
                                         cost::centre_values_per_task / std::max<Size>(1, k_));
        threads.ranges(d_, step, [&](Size begin, Size end, int) {
            for_stale_units(view, 0, count_, [&](const Panel& panel, Size place, Size unit_places) {
                const V* from[unit_width<V>];
                for (Size l = 0; l < unit_places; ++l) from[l] = centres.master(centre(place + l));
                for (Size f = begin; f < end; ++f) {
                    V* to = lanes(panel, place, columns ? Size(columns[f]) : f);
                    for (Size l = 0; plain && l < unit_places; ++l) to[l] = -from[l][f];
                    for (Size l = 0; !plain && l < unit_places; ++l)
                        to[l] = frame.packed(f, from[l][f]);
                }
            });
        });
    }

    template <class M>
    void pack_sparse(const Centres<M>& centres, const Threads& threads) {
        const std::vector<SparseVector<M>>& master = centres.sparse_master();
        const Size stale = Size(std::count(stale_.begin(), stale_.end(), char(1)));
        if (stale == 0) return;
        if (!lists_.choose(master, d_, stale, *settings_)) values_.clear();
        const auto at = [&](Size place) -> const SparseVector<M>& {
            return centres.sparse_master(centre(place));
        };
        if (lists_.any()) lists_.build(k_, at, d_, centres.frame(), threads);
        width_ = lists_.any() ? lists_.frequent() + 1 : d_;
        const Panels<V> view = resize();
        threads.run(count_, [&](Size p, int) {
            for_stale_units(view, p, p + 1, [&](const Panel& panel, Size place, Size unit_places) {
                for (Size column = 0; column < width_; ++column)
                    std::fill_n(lanes(panel, place, column), unit_width<V>, V(0));
                for (Size l = 0; l < unit_places; ++l)
                    pack(at(place + l), centres.frame(), panel, place, l);
            });
        });
    }
    // Packs a sparse centre into lane l of the unit at a place.
    template <class M>
    void pack(const SparseVector<M>& own, const Frame<M>& frame, const Panel& panel, Size place,
              Size l) {
        const std::uint32_t* columns = packed_columns();
        for (std::size_t t = 0; t < own.feature.size(); ++t) {
            const Size f = Size(own.feature[t]), column = columns ? Size(columns[f]) : f;
            if (column < width_) lanes(panel, place, column)[l] = V(frame.packed(f, own.value[t]));
        }
    }

    bool any_stale() const {
        return std::find(stale_.begin(), stale_.end(), char(1)) != stale_.end();
    }
    Panels<V> resize() {
        const std::size_t size = std::size_t(padded<V>(k_) * width_);
        if (values_.size() != size) {
            std::fill(stale_.begin(), stale_.end(), char(1));
            values_.assign(size, V(0));
        }
        return panels();
    }

    // Calls fn(panel, place, count) for each stale unit of panels [from, to): `count` places from
    // `place` on.
    template <class Fn>
    void for_stale_units(const Panels<V>& view, Size from, Size to, Fn fn) const {
        for (Size p = from; p < to; ++p) {
            const Panel panel = view.panel(p);
            const Size past = std::min(k_, panel.first + panel.width());
            for (Size place = panel.first; place < past; place += unit_width<V>) {
                const Size unit_places = std::min(unit_width<V>, k_ - place);
                const auto stale = stale_.begin() + place;
                if (std::find(stale, stale + unit_places, char(1)) != stale + unit_places)
                    fn(panel, place, unit_places);
            }
        }
    }
    // The address of the unit at `place` in a packed column of a panel.
    V* lanes(const Panel& panel, Size place, Size column) {
        return values_.data() + panel.first * width_ + column * panel.width() +
               (place - panel.first);
    }

    Size k_, d_;
    Size width_;  // packed columns
    Size count_;  // panels
    bool dense_;
    Settings settings_;
    std::vector<std::int32_t> order_;
    PostingLists<V> lists_;
    AlignedVector<V> values_;
    std::vector<V> score_offset_;
    Size version_ = -1;
    std::vector<Size> packed_;  // by place: moved_in(j) of the packed centre
    std::vector<char> stale_;   // by place: must be packed; cleared when an update is complete
};

}  // namespace exactmeans
