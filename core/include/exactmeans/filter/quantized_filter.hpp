// The 8-bit filter for CSR rows: exact labels from 8-bit scores.
//
//   quantise    a row becomes 16-bit integers for the scales of the centres
//   bound       integer scores of all centres, with a certified error, bound the exact scores
//   candidates  the centres whose lower bound does not exceed the upper bound of the best one; if
//               there are several, 16-bit codes refine their bounds
//   verify      canonical scores decide between the candidates that are still left
//
// Bounds hold for exact scores and include the rounding of canonical ones: if the bounds of two
// centres do not overlap, their canonical scores have the same order. docs/proofs/sparse_filter.md
// derives the bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/filter/float32_rows.hpp"
#include "exactmeans/filter/quantized_centres.hpp"
#include "exactmeans/filter/verify_candidates.hpp"

namespace exactmeans {

// The buffers of one thread. Results of row t are at [t].
template <class R>
class QuantizedFilter {
public:
    // Loads rows [begin, end), or `count` rows of which row t is row_of(t).
    template <class I>
    void load(const CsrRows<R, I>& x, Size begin, Size end) {
        rows_.load(x, begin, end);
        quantized_.clear();
    }
    template <class I, class RowOf>
    void load_some(const CsrRows<R, I>& x, Size count, RowOf row_of) {
        rows_.load_some(x, count, row_of);
        quantized_.clear();
    }
    // Announces that rows [begin, end) are loaded next: score() prefetches them.
    template <class I>
    void prefetch_next(const CsrRows<R, I>& x, Size begin, Size end) {
        const Size from = x.offsets[begin], entries = x.offsets[end] - from;
        next_ = {{{x.indices + from, entries * Size(sizeof(I))},
                  {x.data + from, entries * Size(sizeof(R))}}};
    }
    // Keeps only these rows, ascending.
    void keep(const std::vector<std::int32_t>& some) {
        rows_.keep(some);
        if (quantized_.empty()) return;
        for (std::size_t t = 0; t < some.size(); ++t) {
            quantized_[t] = quantized_[std::size_t(some[t])];
            errors_[t] = errors_[std::size_t(some[t])];
        }
        quantized_.resize(some.size());
        errors_.resize(some.size());
    }
    const Float32Rows<R>& rows() const { return rows_; }

    // Quantises the rows for centres with the scales of `centres`.
    void quantize(const QuantizedCentres<R>& centres) { quantize(centres.quantization()); }
    void quantize(const Quantization& by) {
        Size total = 0, longest = 0;
        for (Size t = 0; t < rows_.size(); ++t) {
            total += rows_[t].nonzeros;
            longest = std::max(longest, rows_[t].nonzeros);
        }
        quantized_.resize(std::size_t(rows_.size()));
        errors_.resize(quantized_.size());
        values_.resize(std::size_t(total + readable_past_row));
        scaled_.resize(std::size_t(longest + readable_past_row));
        std::int16_t* to = values_.data();
        for (Size t = 0; t < rows_.size(); ++t) {
            quantized_[std::size_t(t)] = {rows_[t].index, to, rows_[t].nonzeros, 0, 0, 0};
            to += rows_[t].nonzeros;
        }
        quantized_kernels().quantize_rows(rows_.data(), rows_.size(), by.scales->all().data(),
                                          scaled_.data(), quantized_.data());
        for (std::size_t t = 0; t < quantized_.size(); ++t)
            errors_[t] = error_of(quantized_[t], by);
    }
    const QuantizedRow* quantized() const { return quantized_.data(); }
    const QuantizedRow& quantized(Size t) const { return quantized_[std::size_t(t)]; }

    // An exact score is at least the 8-bit score plus `offset`, and at most `width` more. It
    // differs from the 16-bit score by at most `refined`.
    struct Error {
        double offset, width, refined;
    };
    const Error& error(Size t) const { return errors_[std::size_t(t)]; }

    // The largest 8-bit score of a place whose exact score may be as low as `limit`. 8-bit scores
    // are float32 and exclude the offset. Rounding to nearest takes no limit past one of them.
    float score_limit(Size t, double limit) const {
        return float(limit - errors_[std::size_t(t)].offset);
    }

    // Computes 8-bit scores of the quantised rows: the lowest two of each group.
    void score(const QuantizedCentres<R>& centres) { score(centres.panels()); }
    void score(const QuantizedPanels& panels) {
        const std::size_t n = quantized_.size(), results = n * std::size_t(panels.groups());
        score_.resize(results);
        second_.resize(results);
        place_.resize(results);
        lows_.resize(n * std::size_t(panels.count()));
        quantized_kernels().nearest(quantized_.data(), Size(n), panels,
                                    {place_.data(), score_.data(), second_.data()}, lows_.data(),
                                    next_);
        next_ = {};
    }
    // Lower bounds of scores, per group.
    struct GroupLows {
        double of[QuantizedPanels::most_groups];
        double lowest() const { return std::min(std::min(of[0], of[1]), std::min(of[2], of[3])); }
    };
    // The place with the lowest 8-bit score, and bounds of its exact score.
    struct Best {
        Size place;
        double low, high;
    };
    // The best place of row t; `others` become lower bounds of the scores of all other places.
    Best best(const QuantizedCentres<R>& centres, Size t, GroupLows& others) const {
        return best(centres.panels(), t, others);
    }
    Best best(const QuantizedPanels& panels, Size t, GroupLows& others) const {
        const std::size_t n = quantized_.size(), groups = std::size_t(panels.groups()),
                          r = std::size_t(t);
        const Error& error = errors_[r];
        std::size_t lowest = 0;
        for (std::size_t g = 1; g < groups; ++g)
            if (score_[g * n + r] < score_[lowest * n + r]) lowest = g;
        for (std::size_t g = 0; g < std::size(others.of); ++g)
            others.of[g] = g < groups
                               ? double((g == lowest ? second_ : score_)[g * n + r]) + error.offset
                               : std::numeric_limits<double>::infinity();
        const Size place = place_[lowest * n + r];
        const double low_score = double(score_[lowest * n + r]) + error.offset;
        return {place, low_score, low_score + error.width + panels.score_offset_error(place)};
    }

    // Tightens bounds of row t by 16-bit scores of the candidates: own_high, an upper bound of the
    // score of the centre at place `own` (unless that is negative), and others_low, a lower bound
    // of the scores of all others.
    template <class Row>
    void refine(const Row& row, Size t, const QuantizedCentres<R>& centres, Size own,
                double& own_high, double& others_low) {
        prepare_refinement(row, centres, own, current_);
        if (own >= 0) own_high = refined(row, t, centres, own).high;
        others_low = list_candidates(centres, t, own_high, own).lowest();
        refine_candidates(row, t, centres);
        for (const Candidate& one : candidates_) others_low = std::min(others_low, one.low);
    }

    // Numbers of rows that 8-bit scores did not decide: all of these, which were refined, and those
    // that also needed canonical scores.
    struct Undecided {
        Size refined = 0, verified = 0;
    };
    // Labels the quantised rows, of which row t is row_of(t) of x. high[t] bounds the score of the
    // label from above, low[t] the scores of all other centres of each group from below.
    template <class I, class RowOf>
    Undecided label_rows(const CsrRows<R, I>& x, const Centres<R>& centroids,
                         const QuantizedCentres<R>& centres, RowOf row_of) {
        score(centres);
        label.resize(quantized_.size());
        high.resize(quantized_.size());
        low.resize(quantized_.size());
        undecided_.clear();
        for (std::size_t t = 0; t < quantized_.size(); ++t) {
            const Best own = best(centres, Size(t), low[t]);
            label[t] = std::int32_t(centres.centre(own.place));
            high[t] = own.high;
            if (!(high[t] < low[t].lowest())) undecided_.push_back({Size(t), own.place});
        }
        // The codes of the next row are prefetched while a row is refined.
        const auto prepare = [&](std::size_t u) {
            if (u < undecided_.size())
                prepare_refinement(x.row(row_of(undecided_[u].row)), centres, undecided_[u].best,
                                   upcoming_);
        };
        Undecided count{Size(undecided_.size()), 0};
        prepare(0);
        for (std::size_t u = 0; u < undecided_.size(); ++u) {
            std::swap(current_, upcoming_);
            prepare(u + 1);
            count.verified += decide(x.row(row_of(undecided_[u].row)), undecided_[u].row,
                                     undecided_[u].best, centroids, centres);
        }
        return count;
    }

    std::vector<std::int32_t> label;
    std::vector<double> high;
    std::vector<GroupLows> low;

private:
    // Lower than every score.
    static constexpr double no_score = -0x1p1000;

    // A place, and bounds of its exact score.
    struct Candidate {
        Size place;
        double low = no_score, high = 0;
    };

    // 133 = 128 (half a code times the sum of the row's codes) + 5 for float32: E in
    // docs/proofs/sparse_filter.md.
    static Error error_of(const QuantizedRow& row, const Quantization& by) {
        const double infinite = std::numeric_limits<double>::infinity(), m = double(row.nonzeros),
                     unit =
                         row.unit > 0 && by.largest_score_offset < QuantizedPanels::largest_offset
                             ? double(row.unit)
                             : infinite,
                     rounding = unit * (m + 2) * 0x1p-8 + by.largest_score_offset * 0x1p-22 +
                                (m + 1) * (1 + by.scales->largest()) * 0x1p-120,
                     error = unit * (133 + m * (1 + 0x1p-5)) + rounding;
        return {std::max(no_score, -double(row.sum) * by.scales->zero_point() - error), 2 * error,
                4 * unit + rounding};
    }

    // Lists the candidates: the places other than `own` whose scores may be as low as `limit`.
    // Returns lower bounds of the scores of all places that are neither listed nor `own`.
    GroupLows list_candidates(const QuantizedCentres<R>& centres, Size t, double limit, Size own) {
        const QuantizedPanels panels = centres.panels();
        const double offset = errors_[std::size_t(t)].offset;
        const float most = score_limit(t, limit), inf = std::numeric_limits<float>::infinity();
        float others[] = {inf, inf, inf, inf};
        static_assert(std::size(others) == QuantizedPanels::most_groups);
        listed_.resize(std::size_t(panels.places()));
        Size count = 0;
        for (Size p = 0; p < panels.count(); ++p) {
            const float lowest = lows_[std::size_t(p) * quantized_.size() + std::size_t(t)];
            if (panels.count() > 1 && lowest > most)
                others[0] = std::min(others[0], lowest);
            else
                count += quantized_kernels().places_below(quantized_[std::size_t(t)], panels, p,
                                                          most, listed_.data() + count, others);
        }
        candidates_.clear();
        for (Size c = 0; c < count; ++c) {
            const Size place = Size(listed_[std::size_t(c)]);
            if (place != own && centres.centre(place) != QuantizedCentres<R>::none)
                candidates_.push_back({place});
        }
        GroupLows rest;
        for (std::size_t g = 0; g < std::size(others); ++g) rest.of[g] = double(others[g]) + offset;
        return rest;
    }

    // Decides row t: by the 16-bit score of the best place, then by the 16-bit scores of all
    // candidates, at last by canonical scores. Returns whether it needed canonical scores.
    template <class Row>
    bool decide(const Row& row, Size t, Size best, const Centres<R>& centroids,
                const QuantizedCentres<R>& centres) {
        double& own_high = high[std::size_t(t)];
        GroupLows& others = low[std::size_t(t)];
        std::int32_t& own_label = label[std::size_t(t)];
        const auto include = [&](const Candidate& one) {
            double& group_low = others.of[centres.group(one.place)];
            group_low = std::min(group_low, one.low);
        };
        if (std::isfinite(errors_[std::size_t(t)].width)) {
            const Candidate first = refined(row, t, centres, best);
            own_high = first.high;
            if (own_high < others.lowest()) return false;
            others = list_candidates(centres, t, own_high, best);
            refine_candidates(row, t, centres);
            candidates_.push_back(first);
            const Candidate* lowest = &candidates_[0];
            for (const Candidate& one : candidates_)
                if (one.high < lowest->high) lowest = &one;
            for (const Candidate& one : candidates_)
                if (&one != lowest) include(one);
            own_high = lowest->high;
            own_label = std::int32_t(centres.centre(lowest->place));
            if (own_high < others.lowest()) return false;
            include(*lowest);  // another candidate may become the label
        } else {
            others = list_candidates(centres, t, own_high, QuantizedCentres<R>::none);
            for (const Candidate& one : candidates_) include(one);
        }
        verified_.clear();
        for (const Candidate& one : candidates_)
            if (!(one.low > own_high)) verified_.push_back(std::int32_t(centres.centre(one.place)));
        own_label = verify_candidates<R>(score_of_, centroids, row, verified_).label;
        own_high = std::numeric_limits<double>::infinity();
        return true;
    }

    // A row for 16-bit scores: its values times the scales of their features, and its packed
    // columns.
    struct ScaledRow {
        std::vector<double> value;
        std::vector<std::uint32_t> packed_columns;
    };
    // Fills `out` and prefetches the codes of the centre at `place`, unless that is negative.
    template <class Row>
    static void prepare_refinement(const Row& row, const QuantizedCentres<R>& centres, Size place,
                                   ScaledRow& out) {
        out.value.resize(std::size_t(row.nonzeros));
        out.packed_columns.resize(std::size_t(row.nonzeros));
        for (Size e = 0; e < row.nonzeros; ++e) {
            const Size f = Size(row.index[e]), packed_column = centres.packed_column(f);
            out.packed_columns[std::size_t(e)] = std::uint32_t(packed_column);
            if (place >= 0) centres.prefetch(place, packed_column);
            out.value[std::size_t(e)] =
                double(row.value[e]) * double(centres.scales()[std::size_t(f)]);
        }
    }
    // Bounds by the 16-bit score of one place. The row must be in current_.
    template <class Row>
    Candidate refined(const Row& row, Size t, const QuantizedCentres<R>& centres,
                      Size place) const {
        const double error = errors_[std::size_t(t)].refined,
                     low_score = centres.refined_score(current_.value.data(),
                                                       current_.packed_columns.data(), row.nonzeros,
                                                       place) -
                                 error;
        return {place, low_score, low_score + 2 * error + centres.score_offset_error(place)};
    }
    template <class Row>
    void refine_candidates(const Row& row, Size t, const QuantizedCentres<R>& centres) {
        for (const std::uint32_t packed_column : current_.packed_columns)
            for (const Candidate& one : candidates_)
                centres.prefetch(one.place, Size(packed_column));
        for (Candidate& one : candidates_) one = refined(row, t, centres, one.place);
    }

    PrefetchHint next_;
    Float32Rows<R> rows_;
    std::vector<QuantizedRow> quantized_;
    std::vector<Error> errors_;
    std::vector<std::int16_t> values_;  // of the quantised rows
    std::vector<float> scaled_;         // a buffer of quantize_rows
    std::vector<std::int32_t> place_;
    std::vector<float> score_, second_, lows_;
    ScaledRow current_, upcoming_;
    struct UndecidedRow {
        Size row, best;  // the place with the lowest 8-bit score
    };
    std::vector<UndecidedRow> undecided_;
    std::vector<std::int32_t> listed_, verified_;
    std::vector<Candidate> candidates_;
    CanonicalScore<R> score_of_;
};

}  // namespace exactmeans
