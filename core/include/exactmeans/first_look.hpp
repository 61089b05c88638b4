// A first look at CSR rows by centres in 8 bits (coarse.hpp): which of them it settles, and
// whether it is worth while.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "exactmeans/coarse.hpp"
#include "exactmeans/pair_score.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

// One thread's buffers for labels by a first look. What it finds of the row at t stands at [t].
// Bounds are of exact scores, and have room for the rounding of canonical ones: where they do not
// meet, canonical scores do not.
template <class R>
class CoarseScan {
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
    const SlotRow<float>& given(Size t) const { return given_[std::size_t(t)]; }
    // Makes them ready for looks at centres that have the steps of `coarse`.
    void get_ready(const Coarse<R>& coarse) {
        Size total = 0, longest = 0;
        for (const SlotRow<float>& row : given_) {
            total += row.nonzeros;
            longest = std::max(longest, row.nonzeros);
        }
        rows_.resize(given_.size());
        bounds_.resize(given_.size());
        values_.resize(std::size_t(total + coarse_ahead));
        sized_.resize(std::size_t(longest + coarse_ahead));
        std::int16_t* to = values_.data();
        for (std::size_t t = 0; t < given_.size(); ++t) {
            rows_[t] = {given_[t].index, to, given_[t].nonzeros, 0, 0, 0};
            to += given_[t].nonzeros;
        }
        kernels<float>().coarse_rows(given_.data(), Size(given_.size()), coarse.steps().data(),
                                     sized_.data(), rows_.data());
        for (std::size_t t = 0; t < rows_.size(); ++t) bounds_[t] = bound_of(rows_[t], coarse);
    }
    const CoarseRow& ready(Size t) const { return rows_[std::size_t(t)]; }
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
        kernels<float>().coarse_reach(given_.data(), Size(given_.size()), table.data(),
                                      reached_.data());
    }
    const CoarseReach& reached(Size t) const { return reached_[std::size_t(t)]; }

    // A score is at least what is seen and `offset`, and at most `width` more; by all bits, it is
    // seen to within `closer`.
    struct Bound {
        double offset, width, closer;
    };
    const Bound& bound(Size t) const { return bounds_[std::size_t(t)]; }

    // Which of the centres may have the lowest score, and the lowest and next lowest that are seen.
    void look(const Coarse<R>& coarse) {
        score_.resize(rows_.size());
        second_.resize(rows_.size());
        label.resize(rows_.size());
        lows_.resize(rows_.size() * std::size_t(coarse.panels().count()));
        kernels<float>().coarse_csr(rows_.data(), Size(rows_.size()), coarse.panels(),
                                    {label.data(), score_.data(), second_.data()}, lows_.data(),
                                    next_);
        next_ = {};
    }
    // The lowest score that any centre may have, and any but the one that may have the lowest.
    double lowest(Size t) const { return double(score_[std::size_t(t)]) + bound(t).offset; }
    double second(Size t) const { return double(second_[std::size_t(t)]) + bound(t).offset; }
    // The highest score of the centre that may have the lowest.
    double highest(const Coarse<R>& coarse, Size t) const {
        return lowest(t) + bound(t).width + coarse.start_slack(label[std::size_t(t)]);
    }

    // Bounds that a look gave, made closer by all bits of those centres that matter: the highest
    // score of the centre at place `own`, if that is one, and the lowest of all others.
    template <class Row>
    void refine(const Row& row, Size t, const Coarse<R>& coarse, Size own, double& own_high,
                double& others_low) {
        candidates_.clear();
        if (own >= 0) {
            candidates_.push_back({own});
            look_closer(row, t, coarse);
            own_high = candidates_[0].high;
        }
        others_low = list_below(coarse, t, own_high);
        std::erase_if(candidates_, [&](const Candidate& one) { return one.place == own; });
        look_closer(row, t, coarse);
        for (const Candidate& one : candidates_) others_low = std::min(others_low, one.low);
    }

    // How many rows took more than a look: a closer one, and the centres as they are.
    struct Open {
        Size closer = 0, exact = 0;
    };
    // The labels of the rows, of which row_of(t) is number t, by a look at all centres; and the
    // highest score that the label may have, and the lowest that any other may have.
    template <class I, class RowOf>
    Open nearest(const CsrRows<R, I>& x, const Centroids<R>& centroids, const Coarse<R>& coarse,
                 RowOf row_of) {
        look(coarse);
        high.resize(rows_.size());
        low.resize(rows_.size());
        Open open;
        for (std::size_t t = 0; t < rows_.size(); ++t) {
            high[t] = highest(coarse, Size(t));
            low[t] = second(Size(t));
            if (high[t] < low[t]) continue;
            ++open.closer;
            open.exact += decide(x.row(row_of(Size(t))), Size(t), centroids, coarse);
        }
        return open;
    }

    std::vector<std::int32_t> label;
    std::vector<double> high, low;

private:
    static constexpr bool is_single = std::is_same_v<R, float>;
    // A score that none is below.
    static constexpr double no_score = -0x1p1000;

    // Room for what cannot be used where it lies.
    struct Room {
        std::uint32_t* feature;
        float* value;
        bool used = false;
        // Kernels may read on behind the last of them.
        void end() const {
            if (!used) return;
            std::fill_n(feature, coarse_ahead, 0u);
            std::fill_n(value, coarse_ahead, 0.0f);
        }
    };
    void make_room(Size entries) {
        const std::size_t size = std::size_t(entries + coarse_ahead);
        if (features_.size() < size) features_.resize(size);
        if (floats_.size() < size) floats_.resize(size);
    }
    // Entries are used where they lie, if kernels may read on behind them.
    template <class I>
    void add(const CsrRows<R, I>& x, Size begin, Size end, Room& to) {
        const Size from = x.offsets[begin], n = x.offsets[end] - from;
        const bool stays = x.offsets[x.n] - x.offsets[end] >= coarse_ahead;
        SlotRow<float> all{to.feature, to.value, n};
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
            kernels<R>().to_singles(x.data + from, n, to.value);
            to.value += n;
        }
        for (Size i = begin; i < end; ++i) {
            const Size nonzeros = x.offsets[i + 1] - x.offsets[i];
            given_.push_back({all.index, all.value, nonzeros});
            all.index += nonzeros;
            all.value += nonzeros;
        }
    }

    static Bound bound_of(const CoarseRow& row, const Coarse<R>& coarse) {
        const double infinite = std::numeric_limits<double>::infinity(),
                     unit = row.unit > 0 ? double(row.unit) : infinite, m = double(row.nonzeros),
                     rounding = unit * (m + 2) * 0x1p-8 + coarse.largest_start() * 0x1p-22 +
                                (m + 1) * (1 + coarse.largest_step()) * 0x1p-120,
                     error = unit * (133 + m * (1 + 0x1p-5)) + rounding;
        return {std::max(no_score, -double(row.sum) * coarse.zero() - error), 2 * error,
                4 * unit + rounding};
    }

    // Lists places of centres whose scores may be as low as `limit`; returns the lowest score that
    // any other may have.
    double list_below(const Coarse<R>& coarse, Size t, double limit) {
        const std::size_t at = std::size_t(t);
        const CoarsePanels& panels = coarse.panels();
        // Scores are seen without the offset, in float32: the limit must not be rounded down.
        const double seen = limit - bound(t).offset;
        const float most = float(seen + std::abs(seen) * 0x1p-22);
        float others = std::numeric_limits<float>::infinity();
        listed_.resize(std::size_t(CoarsePanels::padded(coarse.k())));
        Size count = 0;
        for (Size p = 0; p < panels.count(); ++p) {
            const float lowest_seen = lows_[std::size_t(p) * rows_.size() + at];
            if (lowest_seen > most)
                others = std::min(others, lowest_seen);
            else
                count += kernels<float>().coarse_below(rows_[at], panels, p, most,
                                                       listed_.data() + count, others);
        }
        candidates_.clear();
        for (Size c = 0; c < count; ++c)
            if (listed_[std::size_t(c)] < coarse.k())
                candidates_.push_back({Size(listed_[std::size_t(c)])});
        return double(others) + bound(t).offset;
    }

    // By a closer look at all centres whose scores may be as low as any, and if need be by their
    // canonical scores. Returns whether there was need.
    template <class Row>
    bool decide(const Row& row, Size t, const Centroids<R>& centroids, const Coarse<R>& coarse) {
        const std::size_t at = std::size_t(t);
        low[at] = list_below(coarse, t, high[at]);
        if (std::isfinite(bound(t).width)) {
            look_closer(row, t, coarse);
            high[at] = std::numeric_limits<double>::infinity();
            for (const Candidate& one : candidates_)
                if (one.high < high[at]) {
                    high[at] = one.high;
                    label[at] = std::int32_t(one.place);
                }
            for (const Candidate& one : candidates_)
                if (one.place != Size(label[at])) low[at] = std::min(low[at], one.low);
        }
        if (high[at] < low[at]) return false;
        R least = std::numeric_limits<R>::infinity();
        label[at] = 0;
        for (const Candidate& one : candidates_) {
            if (one.low > high[at]) continue;
            const R own = score_of_(centroids, row, one.place);
            if (own < least) {
                least = own;
                label[at] = std::int32_t(one.place);
            }
        }
        high[at] = std::numeric_limits<double>::infinity();
        return true;
    }

    // Bounds of candidates by all bits that they have.
    template <class Row>
    void look_closer(const Row& row, Size t, const Coarse<R>& coarse) {
        const double error = bound(t).closer;
        closer_.resize(std::size_t(row.nonzeros));
        for (Size e = 0; e < row.nonzeros; ++e) {
            const Size f = Size(row.index[e]);
            closer_[std::size_t(e)] = double(row.value[e]) * double(coarse.steps()[std::size_t(f)]);
            for (const Candidate& one : candidates_) coarse.fetch(one.place, f);
        }
        for (Candidate& one : candidates_) {
            one.low = coarse.closer(row, closer_.data(), one.place) - error;
            one.high = one.low + 2 * error + coarse.start_slack(one.place);
        }
    }

    struct Candidate {
        Size place;
        double low = no_score, high = 0;  // scores
    };

    Upcoming next_;
    std::vector<SlotRow<float>> given_;
    std::vector<CoarseRow> rows_;
    std::vector<Bound> bounds_;
    std::vector<std::uint32_t> features_;
    std::vector<float> floats_;
    std::vector<std::int16_t> values_;
    std::vector<float> sized_;  // entries times steps
    std::vector<float> score_, second_, lows_;
    std::vector<double> closer_;
    std::vector<std::int32_t> listed_;
    std::vector<CoarseReach> reached_;
    std::vector<Candidate> candidates_;
    PairScore<R> score_of_;
};

// Decides, pass by pass, whether rows are labelled by a first look, which pays while it settles
// nearly all of them.
template <class R>
class FirstLook {
public:
    // Is it for centres like these?
    static bool fits(const Centroids<R>& centroids) {
        return centroids.k() >= least_k && centroids.frame().metric != Metric::manhattan &&
               Coarse<R>::fits(centroids);
    }
    // May there be one in this pass?
    bool possible(const Centroids<R>& centroids) {
        if (!fits(centroids)) return false;
        if (wait_ == 0) return true;
        --wait_;
        return false;
    }
    // A few rows are asked.
    template <class I>
    bool pays(const CsrRows<R, I>& x, const Centroids<R>& centroids, const Coarse<R>& coarse) {
        const Size some = std::min(probed, x.n), stride = some ? x.n / some : 1;
        const auto row_of = [&](Size t) { return t * stride; };
        scan_.take_some(x, some, row_of);
        scan_.get_ready(coarse);
        const auto open = scan_.nearest(x, centroids, coarse, row_of);
        if (open.closer * 2 <= some && open.exact * 16 <= some) return true;
        wait_ = passes_without;
        return false;
    }

private:
    static constexpr Size least_k = 32, probed = 256;
    static constexpr int passes_without = 16;

    int wait_ = 0;
    CoarseScan<R> scan_;
};

}  // namespace exactmeans
