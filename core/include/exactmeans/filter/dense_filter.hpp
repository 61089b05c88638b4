// Labels of dense rows by 8-bit codes. Integer products with all centres give certified bounds of
// scores; the centres that these leave are compared by scores in the dtype of the rows, added up in
// any order, and if need be by canonical scores. So the labels are those of plain Lloyd.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/filter/dense_centre_codes.hpp"
#include "exactmeans/filter/dense_codes.hpp"
#include "exactmeans/filter/verify_candidates.hpp"
#include "exactmeans/kernels/integer_products.hpp"
#include "exactmeans/kernels/scores.hpp"

namespace exactmeans {

// What the filter left to be done.
struct FilterStats {
    Size rows = 0;     // compared by codes
    Size decided = 0;  // of them, by codes alone
    Size open = 0;     // of them, left for a comparison with all centres
    Size scores = 0;   // of candidates, in the dtype of the rows

    FilterStats& operator+=(const FilterStats& other) {
        rows += other.rows;
        decided += other.decided;
        open += other.open;
        scores += other.scores;
        return *this;
    }
};

// One thread's buffers, and its results: label[t] belongs to row ids[t], or begin + t if there are
// no ids. `open` lists the t without a label, which need a comparison with all centres.
template <class R>
class DenseFilter {
public:
    // Rows, centres, and what is known of both in this pass.
    struct Input {
        const DenseRows<R>& x;
        const Centres<R>& centroids;
        const DenseCodes<R>& rows;
        const DenseCentreCodes<R>& centres;
    };

    // `labels`: of all rows, before this pass; a label gives a first upper bound. Negative: none.
    FilterStats nearest(const Input& in, Size begin, const Size* ids, Size count,
                        const std::int32_t* labels) {
        FilterStats stats;
        label.resize(std::size_t(count));
        open.clear();
        for (Size t = 0; t < count; t += block_rows) {
            const Size some = std::min(block_rows, count - t);
            load(in, begin + t, ids ? ids + t : nullptr, some);
            find_limits(in, begin + t, ids ? ids + t : nullptr, some, labels);
            compare(in, some);
            decide(in, begin, ids, t, some, stats);
        }
        return stats;
    }

    std::vector<std::int32_t> label;
    std::vector<Size> open;

private:
    // Rows whose codes stay in L2 while all centres pass by, and rows whose products stay in L1.
    static constexpr Size block_rows = cost::dense_block_rows, tile_rows = CandidateLists::tile;
    static constexpr int most = CandidateLists::most;

    void load(const Input& in, Size begin, const Size* ids, Size count) {
        const Size pitch = DenseCodes<R>::pitch(in.x.d);
        if (in.rows.stored() && !ids) {
            codes_ = {in.rows.codes(begin, in.x.d), pitch, count};
            rows_ = in.rows.row(begin);
            return;
        }
        own_codes_.resize(std::size_t(block_rows * pitch + CodesByCentre::padding));
        own_rows_.resize(std::size_t(block_rows));
        for (Size t = 0; t < count && in.rows.stored(); ++t) {
            std::copy_n(in.rows.codes(ids[t], in.x.d), pitch, own_codes_.data() + t * pitch);
            own_rows_[std::size_t(t)] = *in.rows.row(ids[t]);
        }
        if (!in.rows.stored())
            in.rows.quantize(in.x, in.centroids.frame().shift_or_null(), begin, ids, count,
                             buffers_, own_codes_.data(), own_rows_.data());
        codes_ = {own_codes_.data(), pitch, count};
        rows_ = own_rows_.data();
    }

    void find_limits(const Input& in, Size begin, const Size* ids, Size count,
                     const std::int32_t* labels) {
        constexpr float inf = std::numeric_limits<float>::infinity();
        const Size n = block_rows;
        for (auto* all : {&margin_, &start_, &count_, &own_, &product_})
            all->resize(std::size_t(n));
        limit_.resize(std::size_t(n));
        list_.resize(std::size_t(n * most));
        const int bias = integer_products().bias;
        bool labelled = labels != nullptr;
        for (Size t = 0; t < count; ++t) {
            const std::size_t at = std::size_t(t);
            const CodedVector& row = rows_[t];
            margin_[at] = std::int32_t(row.norm * in.centres.margin()) + 1;
            start_[at] = margin_[at] - bias * row.sum;
            count_[at] = 0;
            limit_[at] = row.rounding < inf ? inf : -inf;
            if (labels) own_[at] = labels[ids ? ids[t] : begin + t];
            labelled = labelled && own_[at] >= 0;
        }
        lists_ = {rows_, margin_.data(), limit_.data(), count_.data(), list_.data(), labelled};
        if (!labelled) return;
        integer_products().pair_products(codes_, in.centres.by_centre(), own_.data(),
                                         product_.data());
        filter_kernels().limit_by(product_.data(), own_.data(), count, in.centres.panels(), lists_);
    }

    void compare(const Input& in, Size count) {
        const CodedCentres& centres = in.centres.panels();
        const Size units = centres.units(), most_units = CodedCentres::most_units,
                   groups = (units + most_units - 1) / most_units;
        products_.resize(std::size_t(tile_rows * most_units * CodedCentres::unit));
        for (Size g = 0; g < groups; ++g) {
            const Size unit = g * units / groups, past = (g + 1) * units / groups;
            for (Size t = 0; t < count; t += tile_rows) {
                const Size some = std::min(tile_rows, count - t);
                integer_products().products({codes_.codes + t * codes_.pitch, codes_.pitch, some},
                                            start_.data() + t, centres, unit, past - unit,
                                            products_.data());
                const CandidateLists lists{lists_.rows + t,        lists_.margin + t,
                                           lists_.limit + t,       lists_.count + t,
                                           lists_.list + t * most, lists_.labelled};
                filter_kernels().find_candidates(products_.data(), some, centres, unit, past - unit,
                                                 lists);
            }
        }
    }

    // Sets labels of rows [first, first + count).
    void decide(const Input& in, Size begin, const Size* ids, Size first, Size count,
                FilterStats& stats) {
        stats.rows += count;
        several_.clear();
        for (Size t = 0; t < count; ++t) {
            const std::size_t at = std::size_t(t);
            Candidate* const list = list_.data() + t * most;
            int kept = 0;
            for (int c = 0; c < count_[at] && c < most; ++c)
                if (list[c].low <= limit_[at]) list[kept++] = list[c];
            count_[at] = kept;
            label[std::size_t(first + t)] = list[0].centre;
            if (kept == 0) {
                open.push_back(first + t);
                ++stats.open;
            } else if (kept == 1) {
                ++stats.decided;
            } else {
                several_.push_back(t);
                in.x.prefetch(ids ? ids[first + t] : begin + first + t);
            }
        }
        for (const Size t : several_) {
            const Size i = ids ? ids[first + t] : begin + first + t;
            label[std::size_t(first + t)] = verify(in, i, t, stats);
        }
    }

    // The label of row i, at t in the block, among its candidates, which are in ascending order.
    std::int32_t verify(const Input& in, Size i, Size t, FilterStats& stats) {
        const Size d = in.x.d;
        const Candidate* const list = list_.data() + t * most;
        const int count = count_[std::size_t(t)];
        buffers_.tile.load(in.x, in.centroids.frame().shift_or_null(), 0, &i, 1);
        const R* const row = buffers_.tile.rows()[0];
        R score[most];
        score_kernels<R>().listed_scores(row, in.centres.packed(), in.centroids.score_offset(), d,
                                         list, count, score);
        stats.scores += count;
        // Two sums of the same terms, in any order, differ by at most two such errors.
        const double own = reordered(d) * double(rows_[t].rounding) / double(rows_[t].inverse);
        double error[most], limit = std::numeric_limits<double>::infinity();
        for (int c = 0; c < count; ++c) {
            error[c] = own + reordered(d) * in.centres.rounding(list[c].centre);
            limit = std::min(limit, double(score[c]) + error[c]);
        }
        candidates_.clear();
        for (int c = 0; c < count; ++c)
            if (double(score[c]) - error[c] <= limit) candidates_.push_back(list[c].centre);
        if (candidates_.size() == 1) return candidates_[0];
        stats.scores += Size(candidates_.size());
        return verify_candidates<R>(score_of_, in.centroids, row, candidates_).label;
    }
    // The error of a canonical score and of a sum in any order, in errors of a canonical score:
    // chains of float32 are cut, sums in another order are not.
    static double reordered(Size d) {
        constexpr double unit = 0.5 * double(std::numeric_limits<R>::epsilon());
        const double any = double(d + 12) * unit / (1 - double(d + 12) * unit);
        return (1 + std::max(1.0, any / DenseCodes<R>::gamma(d))) * (1 + 0x1p-20);
    }

    CodeRows codes_{};
    const CodedVector* rows_ = nullptr;
    AlignedVector<std::int8_t> own_codes_;
    std::vector<CodedVector> own_rows_;
    typename DenseCodes<R>::Buffers buffers_;
    std::vector<std::int32_t> margin_, start_, count_, own_, product_;
    std::vector<float> limit_;
    std::vector<Candidate> list_;
    AlignedVector<std::int32_t> products_;
    CandidateLists lists_{};
    std::vector<Size> several_;
    std::vector<std::int32_t> candidates_;
    CanonicalScore<R> score_of_;
};

}  // namespace exactmeans
