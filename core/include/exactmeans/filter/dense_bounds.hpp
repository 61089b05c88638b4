// Bounds of distances from the 8-bit filter for dense rows, for algorithms that keep bounds: the
// label, an upper bound of its score, and lower bounds of the scores of all other centres.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/totals.hpp"
#include "exactmeans/filter/dense_filter_pass.hpp"
#include "exactmeans/filter/dense_score_bounds.hpp"
#include "exactmeans/kernels/bounds.hpp"

namespace exactmeans {

// The result of the filter for one row. It bounds exact scores, without the rounding of canonical
// ones.
template <class R>
class BoundedRow {
public:
    BoundedRow(std::int32_t place, double upper, double base, double scale, float* lows)
        : place_(place), upper_(upper), base_(base), scale_(scale), lows_(lows) {
        lows_[place] = std::numeric_limits<float>::infinity();
    }
    std::int32_t place() const { return place_; }  // of the label
    // An upper bound of the score of the label.
    R upper() const {
        const double bound = upper_ + std::abs(upper_) * 0x1p-40;
        return std::is_same_v<R, double> ? R(bound) : R(round_up(bound));
    }
    // A lower bound of the scores of all centres but the label at places [first, first + count), a
    // multiple of 16.
    R lower(Size first, Size count) const {
        const float low = filter_kernels().lowest(lows_ + first, count);
        if (!(low < std::numeric_limits<float>::infinity()))
            return std::numeric_limits<R>::infinity();
        const double own = scale_ * double(low),
                     bound = base_ + own - (std::abs(base_) + std::abs(own)) * 0x1p-40;
        return std::is_same_v<R, double> ? R(bound) : R(round_down(bound));
    }

private:
    std::int32_t place_;
    double upper_, base_, scale_;
    float* lows_;
};

// One thread's buffers.
template <class R>
class DenseBounds {
public:
    using Input = DenseFilterInput<R>;

    // Calls fn(t, BoundedRow) for the rows ids[t] that the filter decides, and lists the others in
    // `undecided`.
    template <class Fn>
    FilterStats run(const Input& in, const Size* ids, Size count, Fn fn) {
        FilterStats stats;
        stats.rows = count;
        undecided.clear();
        const Size step = DenseScoreBounds<R>::rows_per_call(in);
        for (Size first = 0; first < count; first += step) {
            const Size some = std::min(step, count - first);
            bounds_.compute(in, 0, ids + first, some);
            for (Size t = 0; t < some; ++t) {
                if (t + 2 < some) in.x.prefetch(ids[first + t + 2]);
                const auto& list = bounds_.candidates(t, 1, CandidateLists::most);
                if (list.empty()) {
                    undecided.push_back(first + t);
                    ++stats.undecided;
                    continue;
                }
                verifier_.load(in, ids[first + t], bounds_.row(t));
                std::int32_t place = list[0].centre;
                if (list.size() == 1)
                    ++stats.decided;
                else
                    place = verifier_.nearest(in, list.data(), Size(list.size()), stats);
                ++stats.labels;
                fn(first + t, BoundedRow<R>(place, verifier_.upper(in, place), verifier_.base(in),
                                            1 / double(bounds_.row(t).inverse), bounds_.lows(t)));
            }
        }
        return stats;
    }

    std::vector<Size> undecided;

private:
    DenseScoreBounds<R> bounds_;
    DenseVerifier<R> verifier_;
};

// Decides, pass by pass, whether these bounds replace those of canonical scores, and keeps the
// codes of the centres.
template <class R>
class DenseBoundsPass {
public:
    // Does the filter pay for `compared` rows? If so, quantises the centres, in `order` unless that
    // is null.
    bool start(const DenseRows<R>& x, Size compared, const Centres<R>& centroids,
               DenseCodes<R>* rows, const std::vector<std::int32_t>* order,
               const Threads& threads) {
        if (!rows) return false;
        const FilterStats last = totals_.take();
        if (last.rows)
            backoff_.record(share(x.d, centroids.k(), rows->stored(), last) <
                            cost::dense_kept_share);
        if (compared < cost::dense_filter_rows ||
            least_share(x.d, centroids.k(), rows->stored()) == 1 ||
            !rows->possible(x, centroids.frame()) || !backoff_.due())
            return false;
        rows->choose_origin(x, centroids.frame());
        if (!centres_.update(centroids, *rows, threads, order)) return false;
        if (!rows->stored() && rows->may_store() && cost::compared_for_codes * compared >= x.n)
            rows->store(x, centroids.frame(), threads);
        return true;
    }
    const DenseCentreCodes<R>& centres() const { return centres_; }

    // Adds the statistics of one range.
    void record(const FilterStats& stats) { totals_.record(stats); }

    // The cost of a pass with these statistics, as a share of a plain one.
    static double share(Size d, Size k, bool stored, const FilterStats& stats) {
        DenseFilterCost cost = DenseFilterCost::of<R>(d, k, stored);
        cost.filtered += double(k) * cost::dense_all_bounds;
        return cost.share(stats);
    }
    // The same if codes alone decide every row; 1 if that is so much that the filter is not used.
    static double least_share(Size d, Size k, bool stored) {
        const double least = share(d, k, stored, {.rows = 1, .decided = 1, .labels = 1});
        const bool used = integer_products().speed > 1 && least <= cost::dense_promised_share;
        return used ? least : 1.0;
    }

private:
    DenseCentreCodes<R> centres_;
    Backoff backoff_{cost::dense_filter_wait, cost::dense_filter_longest_wait};
    Totals<FilterStats> totals_;  // of this pass
};

}  // namespace exactmeans
