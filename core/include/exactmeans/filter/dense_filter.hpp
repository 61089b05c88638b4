// Labels of dense rows by 8-bit codes. Integer products with all centres give certified bounds of
// scores. The candidates that the bounds do not exclude are compared by reordered scores in the
// dtype of the rows, and by canonical scores if these are too close. So the labels are those of
// plain Lloyd.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/filter/coded_rows.hpp"

namespace exactmeans {

// One thread's buffers, and its results: label[t] belongs to row ids[t], or begin + t if there are
// no ids. `undecided` lists the t without a label, which need a comparison with all centres.
template <class R>
class DenseFilter {
public:
    using Input = DenseFilterInput<R>;

    // `labels`: of all rows, before this pass; a label gives a first upper bound. Negative: none.
    FilterStats nearest(const Input& in, Size begin, const Size* ids, Size count,
                        const std::int32_t* labels) {
        FilterStats stats;
        label.resize(std::size_t(count));
        undecided.clear();
        for (Size t = 0; t < count; t += block_rows) {
            const Size some = std::min(block_rows, count - t);
            coded_.load(in, begin + t, ids ? ids + t : nullptr, some);
            find_limits(in, begin + t, ids ? ids + t : nullptr, some, labels);
            compare(in);
            decide(in, begin, ids, t, some, stats);
        }
        return stats;
    }

    std::vector<std::int32_t> label;
    std::vector<Size> undecided;

private:
    // Rows whose codes stay in L2 while they are compared with all centres.
    static constexpr Size block_rows = cost::dense_block_rows;
    static constexpr int most = CandidateLists::most;

    void find_limits(const Input& in, Size begin, const Size* ids, Size count,
                     const std::int32_t* labels) {
        constexpr float inf = std::numeric_limits<float>::infinity();
        const Size n = block_rows;
        for (auto* all : {&count_, &own_, &product_}) all->resize(std::size_t(n));
        limit_.resize(std::size_t(n));
        list_.resize(std::size_t(n * most));
        bool labelled = labels != nullptr;
        for (Size t = 0; t < count; ++t) {
            const std::size_t at = std::size_t(t);
            count_[at] = 0;
            limit_[at] = coded_.rows()[t].rounding < inf ? inf : -inf;
            if (labels) own_[at] = labels[ids ? ids[t] : begin + t];
            labelled = labelled && own_[at] >= 0;
        }
        lists_ = {coded_.rows(), coded_.margin(), limit_.data(),
                  count_.data(), list_.data(),    labelled};
        if (!labelled) return;
        integer_products().pair_products(coded_.codes(), in.centres.by_centre(), own_.data(),
                                         product_.data());
        filter_kernels().limit_by(product_.data(), own_.data(), count, in.centres.panels(), lists_);
    }

    void compare(const Input& in) {
        const CodedCentres& centres = in.centres.panels();
        coded_.for_products(centres, [&](Size t, Size some, Size unit, Size units,
                                         const std::int32_t* products) {
            const CandidateLists lists{lists_.rows + t,  lists_.margin + t,      lists_.limit + t,
                                       lists_.count + t, lists_.list + t * most, lists_.labelled};
            filter_kernels().find_candidates(products, some, centres, unit, units, lists);
        });
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
            label[std::size_t(first + t)] = list[0].centre;  // replaced unless one is kept
            if (kept == 0) {
                undecided.push_back(first + t);
                ++stats.undecided;
            } else if (kept == 1) {
                ++stats.decided;
            } else {
                several_.push_back(t);
                in.x.prefetch(ids ? ids[first + t] : begin + first + t);
            }
        }
        for (const Size t : several_) {
            verifier_.load(in, ids ? ids[first + t] : begin + first + t, coded_.rows()[t]);
            label[std::size_t(first + t)] =
                verifier_.nearest(in, list_.data() + t * most, count_[std::size_t(t)], stats);
        }
    }

    CodedRows<R> coded_;
    DenseVerifier<R> verifier_;
    std::vector<std::int32_t> count_, own_, product_;
    std::vector<float> limit_;
    std::vector<Candidate> list_;
    CandidateLists lists_{};
    std::vector<Size> several_;
};

}  // namespace exactmeans
