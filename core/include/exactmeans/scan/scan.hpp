// Rows against all centres, through the kernels: what every algorithm does with the rows it cannot
// prune.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "exactmeans/centres/score_error.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/filter/quantized_filter.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/scan/row_slacks.hpp"

namespace exactmeans {

// What an algorithm gets to work on: a block of rows, the centres, and the block's labels.
template <class Rows>
struct Work {
    using R = typename Rows::Real;

    const Rows& x;
    const Centres<R>& centroids;
    std::int32_t* labels;
    RowSlacks<R>& slacks;
    Panels<R> panels{};
    Panels<float> narrow{};  // in place of those, if it has lists
    ScoreError narrow_error{};

    Work(const Rows& rows, const Centres<R>& centres, std::int32_t* row_labels,
         RowSlacks<R>& row_slacks)
        : x(rows), centroids(centres), labels(row_labels), slacks(row_slacks) {}

    // An algorithm asks for what it needs when it starts: the layout of all centres, before
    // Scan::nearest, and what bounds need to know of the rows, before slack().
    void pack_centres(const Threads& threads) {
        panels = centroids.panels(is_dense<Rows>, threads);
    }
    // The same for labels by scores in float32, which take half the room, before Scan::nearest
    // without a second and Scan::nearest_two; false if that is not for these rows and centres.
    bool pack_narrow(const Threads& threads) {
        if constexpr (is_dense<Rows> || sizeof(R) == sizeof(float)) {
            return false;
        } else {
            if (!centroids.sparse() || !centroids.frame().packs_as_is() ||
                centroids.frame().metric == Metric::manhattan)
                return false;
            narrow_error = ScoreError(centroids);
            if (!narrow_error.is_usual()) return false;
            narrow = centroids.narrow_panels(threads);
            if (narrow.postings) look_at_rows(threads);
            return narrow.postings != nullptr;
        }
    }
    void look_at_rows(const Threads& threads) { slacks.look(x, centroids, threads); }
    // May labels come from scores in another order than the contract's? Asks for both of these.
    bool loose() const { return panels.postings && centroids.frame().metric != Metric::manhattan; }
    RowSlack slack(Size i) const { return slacks.of(x, centroids, i); }
};

// Lists that an algorithm makes of a range of rows, kept for the next one.
template <class R>
struct Workspace {
    std::vector<Size> id, some;
    std::vector<float> bound, reach, near, far;
    std::vector<std::int32_t> open, label, home, left;
    std::vector<R> score, second, first;
    std::vector<std::vector<std::int32_t>> picks;
};

// One thread's buffers for such comparisons. Results of row ids[t] (or begin + t) stand at [t].
template <class Rows>
class Scan {
public:
    using R = typename Rows::Real;

    void nearest(const Work<Rows>& work, Size begin, const Size* ids, Size count,
                 bool with_second) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        second.resize(std::size_t(with_second ? count : 0));
        const Nearest<R> out{label.data(), score.data(), with_second ? second.data() : nullptr};
        if constexpr (!is_dense<Rows>) {
            if (!with_second && work.narrow.postings) {
                from_narrow(work, begin, ids, count);
                return;
            }
            if (!with_second && work.loose())
                return from_scores(work, begin, ids, count, [](Size, Size, const R*) {});
        }
        nearest_by(work, begin, ids, count, out);
    }

    // The same for rows [begin, begin + count) without a second, by canonical scores alone.
    void nearest_in_order(const Work<Rows>& work, Size begin, Size count) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        nearest_by(work, begin, nullptr, count, {label.data(), score.data(), nullptr});
    }

    // The same for rows [begin, begin + count), and calls keep(t, some, scores) with all scores of
    // `some` rows from begin + t on; they may be loose.
    template <class Keep>
    void nearest_keeping(const Work<Rows>& work, Size begin, Size count, Keep keep) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        from_scores(work, begin, nullptr, count, keep);
    }

    // Likewise, with a second, for rows ids[t]; where centres have lists, scores may be loose.
    void nearest_two(const Work<Rows>& work, Size begin, const Size* ids, Size count) {
        const bool loose = work.narrow.postings || work.loose();
        nearest(work, begin, ids, count, !loose);
    }

    // Labels of rows by scores in float32. What is told are bounds of exact scores, but for what
    // canonical ones are off by: no label's is above the score, and no other centre's below the
    // second. Returns how many rows had to be compared otherwise.
    Size from_narrow(const Work<Rows>& work, Size begin, const Size* ids, Size count) {
        const Size k = work.centroids.k(), batch = batch_of(work.x, k * Size(sizeof(float)));
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        second.resize(std::size_t(count));
        take_ids(begin, ids, count);
        narrow_scores_.resize(std::size_t(batch * k));
        narrow_.resize(std::size_t(2 * batch));
        error_.resize(std::size_t(batch));
        Size open = 0;
        for (Size t = 0; t < count; t += batch) {
            const Size some = std::min(batch, count - t);
            const Size* const own = id_.data() + t;
            const PackedCsrRow<float>* const rows =
                narrow_slots_.load_frequent(work.x, work.narrow, own, some);
            score_kernels<float>().scores_csr(rows, some, work.narrow, narrow_scores_.data());
            narrow_slots_.add_rare(work.narrow, narrow_scores_.data());
            score_kernels<float>().lowest_two(
                narrow_scores_.data(), some, k,
                {label.data() + t, narrow_.data(), narrow_.data() + batch});
            for (Size r = 0; r < some; ++r) {
                const double error = work.narrow_error.of_single(work.x.row(own[r]));
                error_[std::size_t(r)] = error;
                score[std::size_t(t + r)] = R(double(narrow_[std::size_t(r)]) + error);
                second[std::size_t(t + r)] = R(double(narrow_[std::size_t(batch + r)]) - error);
            }
            bound(work, t, some);
            for (Size r = 0; r < some; ++r) {
                // Of rows too long for float32 nothing is certain.
                if (std::isfinite(error_[std::size_t(r)]) &&
                    far_[std::size_t(r)] > near_[std::size_t(r)])
                    continue;
                ++open;
                put_in_order(work, t + r, narrow_scores_.data() + r * k, error_[std::size_t(r)]);
            }
        }
        return open;
    }

    // Makes rows ready for in_panel, to which ids[t] is known as t.
    void load(const Work<Rows>& work, const Panels<R>& panels, Size begin, const Size* ids,
              Size count) {
        if constexpr (is_dense<Rows>)
            tile_.load(work.x, work.centroids.frame().shift_or_null(), begin, ids, count);
        else
            rows_ = slots_.load(work.x, panels, begin, ids, count);
    }
    // Rows picks[t] of those against one panel, with a second; labels are places in the layout.
    void in_panel(const Panels<R>& panels, Size p, const std::int32_t* picks, Size count) {
        const Nearest<R> out = pick(picks, count);
        if constexpr (is_dense<Rows>)
            score_kernels<R>().panel_dense(picked_.data(), count, panels, p, out);
        else
            score_kernels<R>().panel_csr(picked_.data(), count, panels, p, out);
    }

    // The same for one centre, which has no second and no label.
    void with_centre(const R* centre, R start, Size d, const std::int32_t* picks, Size count) {
        const Nearest<R> out = pick(picks, count);
        if constexpr (is_dense<Rows>)
            score_kernels<R>().centre_dense(picked_.data(), count, centre, start, d, out.score);
        else
            score_kernels<R>().centre_csr(picked_.data(), count, centre, start, out.score);
        std::fill(second.begin(), second.end(), std::numeric_limits<R>::infinity());
    }

    std::vector<std::int32_t> label;
    std::vector<R> score;
    std::vector<R> second;
    QuantizedFilter<R> coarse;
    Workspace<R> room;

private:
    void nearest_by(const Work<Rows>& work, Size begin, const Size* ids, Size count,
                    const Nearest<R>& out) {
        const R* const shift = work.centroids.frame().shift_or_null();
        const bool l1 = work.centroids.frame().metric == Metric::manhattan,
                   thin = work.x.d <= thin_features<R>;
        // Rows with hits, or shifted ones, take room: a batch of them should stay in the cache.
        Size batch = work.panels.postings ? batch_rows(work.x) : std::max<Size>(1, count);
        if constexpr (is_dense<Rows>)
            if (shift && !thin) batch = shifted_rows(work.x.d, batch);
        const ScoreKernels<R>& by = score_kernels<R>();
        for (Size t = 0; t < count; t += batch) {
            const Size some = std::min(batch, count - t);
            const Nearest<R> to{out.label + t, out.score + t,
                                out.second ? out.second + t : nullptr};
            const Size* own = ids ? ids + t : nullptr;
            if constexpr (is_dense<Rows>) {
                tile_.load(work.x, thin ? nullptr : shift, begin + t, own, some);
                (l1 ? by.nearest_dense_l1 : by.nearest_dense)(
                    tile_.rows(), some, thin ? shift : nullptr, work.panels, to);
            } else {
                load(work, work.panels, begin + t, own, some);
                (l1 ? by.nearest_csr_l1 : by.nearest_csr)(rows_, some, work.panels, to);
            }
        }
    }

    // Labels from all scores of a row. Where centres have lists, these are added up in another
    // order, which is faster; wherever that might matter, the row is compared once more, in order
    // (docs/numerics.md, "Loose scores").
    template <class Keep>
    void from_scores(const Work<Rows>& work, Size begin, const Size* ids, Size count, Keep keep) {
        const Size k = work.centroids.k(), batch = batch_of(work.x, k * Size(sizeof(R)));
        second.resize(std::size_t(count));
        scores_.resize(std::size_t(batch * k));
        take_ids(begin, ids, count);
        for (Size t = 0; t < count; t += batch) {
            const Size some = std::min(batch, count - t);
            const Size* const own = id_.data() + t;
            rows_ = work.loose() ? slots_.load_frequent(work.x, work.panels, own, some)
                                 : slots_.load(work.x, work.panels, 0, own, some);
            score_kernels<R>().scores_csr(rows_, some, work.panels, scores_.data());
            if (work.loose()) slots_.add_rare(work.panels, scores_.data());
            score_kernels<R>().lowest_two(scores_.data(), some, k,
                                          {label.data() + t, score.data() + t, second.data() + t});
            keep(t, some, static_cast<const R*>(scores_.data()));
        }
        if (work.loose()) put_in_order(work, count);
    }

    void take_ids(Size begin, const Size* ids, Size count) {
        id_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) id_[std::size_t(t)] = ids ? ids[t] : begin + t;
    }
    // Rows whose scores, all of them, stay in the cache.
    static Size batch_of(const Rows& x, Size bytes) {
        return std::clamp<Size>((Size(1) << 20) / bytes, 1, batch_rows(x));
    }

    // How far the second centres of `count` rows from t on are at least, and within what reach of
    // the first ones others may get lower scores; into far_ and near_.
    void bound(const Work<Rows>& work, Size t, Size count) {
        const ScoredRows<R> scored = work.slacks.scored();
        const Size* const own = id_.data() + t;
        near_.resize(std::size_t(count));
        far_.resize(std::size_t(count));
        score_kernels<R>().lower_bounds(scored, own, second.data() + t, count, far_.data());
        score_kernels<R>().upper_bounds(scored, own, score.data() + t, count, near_.data());
        bound_kernels().reach(scored.margins, own, near_.data(), count, near_.data());
    }

    // The label of the row at t, by canonical scores of the centres that others, off by an error,
    // leave open.
    void put_in_order(const Work<Rows>& work, Size t, const float* others, double error) {
        const Size i = id_[std::size_t(t)], k = work.centroids.k();
        const RowSlack slack = work.slack(i);
        const double near = slack.upper(double(score[std::size_t(t)]));
        R least = std::numeric_limits<R>::infinity();
        label[std::size_t(t)] = 0;
        for (Size j = 0; j < k; ++j) {
            const double low = slack.lower(double(others[j]) - error);
            if (slack.holds() && slack.apart(low, near)) continue;
            const R own = score_of_(work.centroids, work.x.row(i), j);
            if (!(own < least)) continue;
            least = own;
            label[std::size_t(t)] = std::int32_t(j);
        }
    }

    void put_in_order(const Work<Rows>& work, Size count) {
        bound(work, 0, count);
        std::vector<Size> open, at;
        for (Size t = 0; t < count; ++t) {
            const std::size_t s = std::size_t(t);
            // Slack is that of chains cut into pieces, which these were not.
            const bool cut =
                sizeof(R) < sizeof(double) && work.x.row(id_[s]).nonzeros > longest_chain;
            if (far_[s] > near_[s] && !cut) continue;
            open.push_back(id_[s]);
            at.push_back(t);
        }
        if (open.empty()) return;
        std::vector<std::int32_t> own(open.size());
        std::vector<R> scores(open.size());
        nearest_by(work, 0, open.data(), Size(open.size()), {own.data(), scores.data(), nullptr});
        for (std::size_t o = 0; o < open.size(); ++o) label[std::size_t(at[o])] = own[o];
    }

    Nearest<R> pick(const std::int32_t* picks, Size count) {
        label.resize(std::size_t(count));
        score.resize(std::size_t(count));
        second.resize(std::size_t(count));
        picked_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) {
            if constexpr (is_dense<Rows>)
                picked_[std::size_t(t)] = tile_.rows()[picks[t]];
            else
                picked_[std::size_t(t)] = rows_[picks[t]];
        }
        return {label.data(), score.data(), second.data()};
    }

    // Whole register tiles that fit the first-level cache, or all rows if none does.
    static Size shifted_rows(Size d, Size all) {
        const Size fit = (Size(1) << 15) / (48 * d * Size(sizeof(R)));
        return fit ? fit * 48 : all;
    }
    static Size batch_rows(const Rows& x) {
        if constexpr (is_dense<Rows>)
            return x.n;
        else
            return std::max<Size>(16, (Size(1) << 16) / (x.nonzeros() / x.n + 1));
    }

    std::vector<R> scores_;
    std::vector<float> narrow_scores_, narrow_;
    std::vector<double> error_;
    PackedCsrRows<float> narrow_slots_;
    CanonicalScore<R> score_of_;
    std::vector<Size> id_;
    std::vector<float> near_, far_;
    DenseTile<R> tile_;
    PackedCsrRows<R> slots_;
    const PackedCsrRow<R>* rows_ = nullptr;
    std::vector<std::conditional_t<is_dense<Rows>, const R*, PackedCsrRow<R>>> picked_;
};

// Lays out centres for labels of rows: in float32 where that tells nearly all of them, which a few
// rows are asked in each pass.
class Narrow {
public:
    template <class Rows>
    void pack(Work<Rows>& work, const Threads& threads) {
        if constexpr (!is_dense<Rows>) {
            if (wait_ > 0)
                --wait_;
            else if (work.pack_narrow(threads) && pays(work))
                return;
            work.narrow = {};
        }
        work.pack_centres(threads);
        if (work.loose()) work.look_at_rows(threads);
    }

private:
    static constexpr Size probed = 128;
    static constexpr int passes_without = 16;

    template <class Rows>
    bool pays(const Work<Rows>& work) {
        const Size some = std::min(probed, work.x.n);
        std::vector<Size> ids(static_cast<std::size_t>(some));
        for (Size t = 0; t < some; ++t) ids[std::size_t(t)] = t * (work.x.n / some);
        Scan<Rows> scan;
        if (16 * scan.from_narrow(work, 0, ids.data(), some) <= some) return true;
        wait_ = passes_without;
        return false;
    }

    int wait_ = 0;
};

// Rows per unit of parallel work. Dense: about a million multiply-adds, and whole register tiles;
// more where centres are read from the last cache for each unit, as far as balance and Ctrl-C
// allow. CSR: a panel of centres comes into the cache once per unit, so units are as long as
// balance and Ctrl-C allow.
template <class Rows>
Size chunk_rows(const Rows& x, Size k, int n_jobs) {
    if constexpr (is_dense<Rows>) {
        const Size terms = std::max<Size>(1, x.d * k), rows = (Size(1) << 20) / terms;
        const bool two = terms <= (Size(1) << 22) && x.n >= 96 * 16 * n_jobs;
        return std::clamp<Size>(rows / 48 * 48, two ? 96 : 48, 480);
    } else {
        const Size work = (x.n ? x.nonzeros() / x.n + 1 : 1) * k;
        const Size most = std::clamp<Size>((Size(1) << 31) / std::max<Size>(1, work), 64, 16384);
        return std::clamp<Size>(x.n / (4 * n_jobs), std::min<Size>(most, 256), most);
    }
}

}  // namespace exactmeans
