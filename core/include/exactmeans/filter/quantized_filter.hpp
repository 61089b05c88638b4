// A first look at CSR rows by centres in 8 bits (filter/quantized_centres.hpp): which of them it
// settles, and whether it is worth while.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/filter/quantized_centres.hpp"
#include "exactmeans/filter/verify_candidates.hpp"

namespace exactmeans {

// One thread's buffers for labels by a first look. What it finds of the row at t stands at [t].
// Bounds are of exact scores, and have room for the rounding of canonical ones: where they do not
// meet, canonical scores do not.
template <class R>
class QuantizedFilter {
public:
    // Takes rows [begin, end).
    template <class I>
    void take(const CsrRows<R, I>& x, Size begin, Size end) {
        given_.clear();
        make_room(x.offsets[end] - x.offsets[begin]);
        Room to{features_.data(), floats_.data()};
        add(x, begin, end, to);
        to.end();
        rows_.clear();
    }
    // Takes `count` rows from all over, of which row_of(t) is number t.
    template <class I, class RowOf>
    void take_some(const CsrRows<R, I>& x, Size count, RowOf row_of) {
        given_.clear();
        Size total = 0;
        for (Size t = 0; t < count; ++t) total += x.row(row_of(t)).nonzeros;
        make_room(total);
        Room to{features_.data(), floats_.data()};
        for (Size t = 0; t < count; ++t) add(x, row_of(t), row_of(t) + 1, to);
        to.end();
        rows_.clear();
    }
    // Says that rows [begin, end) are taken next.
    template <class I>
    void expect(const CsrRows<R, I>& x, Size begin, Size end) {
        const Size from = x.offsets[begin], entries = x.offsets[end] - from;
        next_ = {{{x.indices + from, entries * Size(sizeof(I))},
                  {x.data + from, entries * Size(sizeof(R))}}};
    }
    // One of the rows taken.
    const PackedCsrRow<float>& given(Size t) const { return given_[std::size_t(t)]; }
    // Makes them ready for looks at centres that have the steps of `coarse`.
    void get_ready(const QuantizedCentres<R>& coarse) {
        Size total = 0, longest = 0;
        for (const PackedCsrRow<float>& row : given_) {
            total += row.nonzeros;
            longest = std::max(longest, row.nonzeros);
        }
        rows_.resize(given_.size());
        bounds_.resize(given_.size());
        values_.resize(std::size_t(total + readable_past_row));
        steps_.resize(std::size_t(longest + readable_past_row));
        std::int16_t* to = values_.data();
        for (std::size_t t = 0; t < given_.size(); ++t) {
            rows_[t] = {given_[t].index, to, given_[t].nonzeros, 0, 0, 0};
            to += given_[t].nonzeros;
        }
        quantized_kernels().quantize_rows(given_.data(), Size(given_.size()), coarse.steps().data(),
                                          steps_.data(), rows_.data());
        for (std::size_t t = 0; t < rows_.size(); ++t) bounds_[t] = bound_of(rows_[t], coarse);
    }
    const QuantizedRow& ready(Size t) const { return rows_[std::size_t(t)]; }
    // Forgets all rows but these, ascending.
    void keep(const std::vector<std::int32_t>& some) {
        const auto only = [&](auto& all) {
            for (std::size_t t = 0; t < some.size(); ++t) all[t] = all[std::size_t(some[t])];
            all.resize(some.size());
        };
        only(given_);
        if (rows_.empty()) return;  // not ready yet
        only(rows_);
        only(bounds_);
    }

    // What the rows see of how far centres moved, by a table.
    void reach(const std::vector<float>& table) {
        reached_.resize(given_.size());
        quantized_kernels().reach(given_.data(), Size(given_.size()), table.data(),
                                  reached_.data());
    }
    const DeltaSums& reached(Size t) const { return reached_[std::size_t(t)]; }
    // Bounds of the rows, of which any may have entries below 0 or none has, follow the centres;
    // lists those that they no longer tell the labels of.
    void follow(bool any_below, const GroupDeltas& shifts, const std::int32_t* labels,
                RowBounds* bounds, std::vector<std::int32_t>& left) const {
        left.resize(given_.size());
        left.resize(std::size_t(quantized_kernels().update_bounds(
            given_.data(), Size(given_.size()), any_below, shifts, labels, bounds, left.data())));
    }

    // A score is at least what is seen and `offset`, and at most `width` more; by all bits, it is
    // seen to within `closer`.
    struct Bound {
        double offset, width, closer;
    };
    const Bound& bound(Size t) const { return bounds_[std::size_t(t)]; }

    // The lowest score of each group of centres.
    void look(const QuantizedCentres<R>& coarse) {
        const QuantizedPanels& panels = coarse.panels();
        const std::size_t n = rows_.size(), seen = n * std::size_t(panels.groups());
        score_.resize(seen);
        second_.resize(seen);
        place_.resize(seen);
        lows_.resize(n * std::size_t(panels.count()));
        quantized_kernels().nearest(rows_.data(), Size(n), panels,
                                    {place_.data(), score_.data(), second_.data()}, lows_.data(),
                                    next_);
        next_ = {};
    }
    // Scores of which no centre of a group is below its own.
    struct Lows {
        double of[QuantizedPanels::most_groups];
        double lowest() const { return std::min(std::min(of[0], of[1]), std::min(of[2], of[3])); }
    };
    // What a look tells of the row at t: which place may have the lowest score, and from where to
    // where that may be; and what is below the scores of all other places.
    struct Seen {
        Size place;
        double lowest, highest;
    };
    Seen seen(const QuantizedCentres<R>& coarse, std::size_t t, Lows& others) const {
        const std::size_t n = rows_.size(), groups = std::size_t(coarse.panels().groups());
        const Bound& own = bounds_[t];
        std::size_t best = 0;
        for (std::size_t g = 1; g < groups; ++g)
            if (score_[g * n + t] < score_[best * n + t]) best = g;
        for (std::size_t g = 0; g < std::size(others.of); ++g)
            others.of[g] = g < groups
                               ? double((g == best ? second_ : score_)[g * n + t]) + own.offset
                               : std::numeric_limits<double>::infinity();
        const Size place = place_[best * n + t];
        const double lowest = double(score_[best * n + t]) + own.offset;
        return {place, lowest, lowest + own.width + coarse.score_offset_slack(place)};
    }

    // Bounds that a look gave, made closer by all bits of those centres that matter: the highest
    // score of the centre at place `own`, if that is one, and the lowest of all others.
    template <class Row>
    void refine(const Row& row, Size t, const QuantizedCentres<R>& coarse, Size own,
                double& own_high, double& others_low) {
        get_ready_closer(row, coarse, own, closer_);
        if (own >= 0) own_high = look_closer(row, std::size_t(t), coarse, own).high;
        others_low = list_below(coarse, std::size_t(t), own_high, own).lowest();
        look_closer(row, std::size_t(t), coarse);
        for (const Candidate& one : candidates_) others_low = std::min(others_low, one.low);
    }

    // How many rows took more than a look: a closer one, and the centres as they are.
    struct Open {
        Size closer = 0, exact = 0;
    };
    // The labels of the rows, of which row_of(t) is number t, by a look at all centres; and the
    // highest score that the label may have, and the lowest that any other centre of each group
    // may have.
    template <class I, class RowOf>
    Open nearest(const CsrRows<R, I>& x, const Centres<R>& centroids,
                 const QuantizedCentres<R>& coarse, RowOf row_of) {
        look(coarse);
        label.resize(rows_.size());
        high.resize(rows_.size());
        low.resize(rows_.size());
        open_.clear();
        for (std::size_t t = 0; t < rows_.size(); ++t) {
            const Seen own = seen(coarse, t, low[t]);
            label[t] = std::int32_t(coarse.centre(own.place));
            high[t] = own.highest;
            if (!(high[t] < low[t].lowest())) open_.push_back({t, own.place});
        }
        // What a closer look reads is on its way while the row before has its own.
        const auto get_ready = [&](std::size_t o) {
            if (o < open_.size())
                get_ready_closer(x.row(row_of(Size(open_[o].at))), coarse, open_[o].nearest,
                                 upcoming_);
        };
        Open open{Size(open_.size()), 0};
        get_ready(0);
        for (std::size_t o = 0; o < open_.size(); ++o) {
            std::swap(closer_, upcoming_);
            get_ready(o + 1);
            open.exact += decide(x.row(row_of(Size(open_[o].at))), open_[o].at, open_[o].nearest,
                                 centroids, coarse);
        }
        return open;
    }

    std::vector<std::int32_t> label;
    std::vector<double> high;
    std::vector<Lows> low;

private:
    static constexpr bool is_single = std::is_same_v<R, float>;
    // A score that none is below.
    static constexpr double no_score = -0x1p1000;

    struct Candidate {
        Size place;
        double low = no_score, high = 0;  // scores
    };

    // Room for what cannot be used where it lies.
    struct Room {
        std::uint32_t* feature;
        float* value;
        bool used = false;
        // Kernels may read on behind the last of them.
        void end() const {
            if (!used) return;
            std::fill_n(feature, readable_past_row, 0u);
            std::fill_n(value, readable_past_row, 0.0f);
        }
    };
    void make_room(Size entries) {
        const std::size_t size = std::size_t(entries + readable_past_row);
        if (features_.size() < size) features_.resize(size);
        if (floats_.size() < size) floats_.resize(size);
    }
    // Entries are used where they lie, if kernels may read on behind them.
    template <class I>
    void add(const CsrRows<R, I>& x, Size begin, Size end, Room& to) {
        const Size from = x.offsets[begin], n = x.offsets[end] - from;
        const bool stays = x.offsets[x.n] - x.offsets[end] >= readable_past_row;
        PackedCsrRow<float> all{to.feature, to.value, n};
        if constexpr (sizeof(I) == sizeof(std::uint32_t)) {
            const void* const given = x.indices + from;
            if (stays) all.index = static_cast<const std::uint32_t*>(given);
        }
        if constexpr (is_single)
            if (stays) all.value = x.data + from;
        if (all.index == to.feature) {
            to.used = true;
            to.feature = std::copy_n(x.indices + from, n, to.feature);
        }
        if (all.value == to.value) {
            to.used = true;
            vector_kernels<R>().to_float32(x.data + from, n, to.value);
            to.value += n;
        }
        for (Size i = begin; i < end; ++i) {
            const Size nonzeros = x.offsets[i + 1] - x.offsets[i];
            given_.push_back({all.index, all.value, nonzeros});
            all.index += nonzeros;
            all.value += nonzeros;
        }
    }

    static Bound bound_of(const QuantizedRow& row, const QuantizedCentres<R>& coarse) {
        const double infinite = std::numeric_limits<double>::infinity(),
                     unit = row.unit > 0 ? double(row.unit) : infinite, m = double(row.nonzeros),
                     rounding = unit * (m + 2) * 0x1p-8 + coarse.largest_score_offset() * 0x1p-22 +
                                (m + 1) * (1 + coarse.largest_step()) * 0x1p-120,
                     error = unit * (133 + m * (1 + 0x1p-5)) + rounding;
        return {std::max(no_score, -double(row.sum) * coarse.zero() - error), 2 * error,
                4 * unit + rounding};
    }

    // Lists places of centres, other than `own`, whose scores may be as low as `limit`; returns the
    // lowest scores that those left out may have.
    Lows list_below(const QuantizedCentres<R>& coarse, std::size_t t, double limit, Size own) {
        const QuantizedPanels& panels = coarse.panels();
        // Scores are seen without the offset, in float32: the limit must not be rounded down.
        const double offset = bounds_[t].offset, seen = limit - offset;
        const float most = float(seen + std::abs(seen) * 0x1p-22),
                    inf = std::numeric_limits<float>::infinity();
        float others[] = {inf, inf, inf, inf};
        static_assert(std::size(others) == QuantizedPanels::most_groups);
        listed_.resize(std::size_t(panels.places()));
        Size count = 0;
        for (Size p = 0; p < panels.count(); ++p) {
            const float lowest = lows_[std::size_t(p) * rows_.size() + t];
            if (panels.count() > 1 && lowest > most)
                others[0] = std::min(others[0], lowest);
            else
                count += quantized_kernels().places_below(rows_[t], panels, p, most,
                                                          listed_.data() + count, others);
        }
        candidates_.clear();
        for (Size c = 0; c < count; ++c) {
            const Size place = Size(listed_[std::size_t(c)]);
            if (place != own && coarse.centre(place) != QuantizedCentres<R>::none)
                candidates_.push_back({place});
        }
        Lows rest;
        for (std::size_t g = 0; g < std::size(others); ++g) rest.of[g] = double(others[g]) + offset;
        return rest;
    }

    // By a closer look at the centre that seems the nearest, then at all whose scores may be as
    // low, and if need be by their canonical scores. Returns whether there was need.
    template <class Row>
    bool decide(const Row& row, std::size_t t, Size nearest, const Centres<R>& centroids,
                const QuantizedCentres<R>& coarse) {
        if (std::isfinite(bounds_[t].width)) {
            const Candidate own = look_closer(row, t, coarse, nearest);
            high[t] = own.high;
            if (high[t] < low[t].lowest()) return false;
            low[t] = list_below(coarse, t, high[t], nearest);
            look_closer(row, t, coarse);
            candidates_.push_back(own);
            const Candidate* best = &candidates_[0];
            for (const Candidate& one : candidates_)
                if (one.high < best->high) best = &one;
            const auto lower = [&](const Candidate& one) {
                double& lowest = low[t].of[coarse.group(one.place)];
                lowest = std::min(lowest, one.low);
            };
            for (const Candidate& one : candidates_)
                if (&one != best) lower(one);
            high[t] = best->high;
            label[t] = std::int32_t(coarse.centre(best->place));
            if (high[t] < low[t].lowest()) return false;
            lower(*best);  // it may not be the label
        } else {
            low[t] = list_below(coarse, t, high[t], QuantizedCentres<R>::none);
        }
        verified_.clear();
        for (const Candidate& one : candidates_)
            if (!(one.low > high[t])) verified_.push_back(std::int32_t(coarse.centre(one.place)));
        label[t] = verify_candidates<R>(score_of_, centroids, row, verified_).label;
        high[t] = std::numeric_limits<double>::infinity();
        return true;
    }

    // A row that is ready for closer looks: its entries times steps, and where these find them.
    struct Closer {
        std::vector<double> sized;
        std::vector<std::uint32_t> packed_columns;
    };
    // Makes a row ready, the first look being at the centre at `place`.
    template <class Row>
    static void get_ready_closer(const Row& row, const QuantizedCentres<R>& coarse, Size place,
                                 Closer& out) {
        out.sized.resize(std::size_t(row.nonzeros));
        out.packed_columns.resize(std::size_t(row.nonzeros));
        for (Size e = 0; e < row.nonzeros; ++e) {
            const Size f = Size(row.index[e]);
            out.packed_columns[std::size_t(e)] = std::uint32_t(coarse.packed_column(f));
            if (place >= 0) coarse.prefetch(place, coarse.packed_column(f));
            out.sized[std::size_t(e)] =
                double(row.value[e]) * double(coarse.steps()[std::size_t(f)]);
        }
    }
    // Bounds of a candidate by all bits that it has; of all that are listed.
    template <class Row>
    Candidate look_closer(const Row& row, std::size_t t, const QuantizedCentres<R>& coarse,
                          Size place) const {
        const double error = bounds_[t].closer,
                     low_score = coarse.closer(closer_.sized.data(), closer_.packed_columns.data(),
                                               row.nonzeros, place) -
                                 error;
        return {place, low_score, low_score + 2 * error + coarse.score_offset_slack(place)};
    }
    template <class Row>
    void look_closer(const Row& row, std::size_t t, const QuantizedCentres<R>& coarse) {
        for (const std::uint32_t packed_column : closer_.packed_columns)
            for (const Candidate& one : candidates_)
                coarse.prefetch(one.place, Size(packed_column));
        for (Candidate& one : candidates_) one = look_closer(row, t, coarse, one.place);
    }

    PrefetchHint next_;
    std::vector<PackedCsrRow<float>> given_;
    std::vector<QuantizedRow> rows_;
    std::vector<Bound> bounds_;
    std::vector<std::uint32_t> features_;
    std::vector<float> floats_;
    std::vector<std::int16_t> values_;
    std::vector<float> steps_;  // entries times steps
    std::vector<std::int32_t> place_;
    std::vector<float> score_, second_, lows_;
    Closer closer_, upcoming_;
    // Rows that a look leaves open, and where their nearest centres seem to be.
    struct OpenRow {
        std::size_t at;
        Size nearest;
    };
    std::vector<OpenRow> open_;
    std::vector<std::int32_t> listed_, verified_;
    std::vector<DeltaSums> reached_;
    std::vector<Candidate> candidates_;
    CanonicalScore<R> score_of_;
};

// Decides, pass by pass, whether rows are labelled by a first look, which pays while it settles
// nearly all of them.
template <class R>
class FirstLook {
public:
    // Is it for centres like these?
    static bool fits(const Centres<R>& centroids, const LayoutSettings& settings) {
        return centroids.k() >= least_k && centroids.frame().metric != Metric::manhattan &&
               QuantizedCentres<R>::fits(centroids, settings);
    }
    // May there be one in this pass?
    bool possible(const Centres<R>& centroids, const LayoutSettings& settings) {
        return fits(centroids, settings) && backoff_.due();
    }
    // A few rows are asked.
    template <class I>
    bool pays(const CsrRows<R, I>& x, const Centres<R>& centroids,
              const QuantizedCentres<R>& coarse) {
        const Size some = std::min(probed, x.n), stride = some ? x.n / some : 1;
        const auto row_of = [&](Size t) { return t * stride; };
        scan_.take_some(x, some, row_of);
        scan_.get_ready(coarse);
        const auto open = scan_.nearest(x, centroids, coarse, row_of);
        const bool paid = open.closer * 2 <= some && open.exact * 16 <= some;
        backoff_.record(paid);
        return paid;
    }

private:
    static constexpr Size least_k = 32, probed = 256;

    Backoff backoff_{16, 16};  // passes without a probe, after one that failed
    QuantizedFilter<R> scan_;
};

}  // namespace exactmeans
