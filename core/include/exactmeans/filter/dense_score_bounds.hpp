// Certified bounds of the scores of dense rows with all centres, by 8-bit codes, and the centres
// that may be among the m nearest. docs/proofs/dense_integer_filter.md derives them.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/filter/coded_rows.hpp"

namespace exactmeans {

// One thread's buffers. Row t of a call is row ids[t], or begin + t if there are no ids.
template <class R>
class DenseScoreBounds {
public:
    using Input = DenseFilterInput<R>;
    // The largest m. limit() is tight if the m nearest centres are in different lanes, which is
    // likely for so few.
    static constexpr Size most_nearest = ScoreBounds::lanes / 4;

    // Rows per call: their bounds stay in L2.
    static Size rows_per_call(const Input& in) {
        constexpr Size tile = CandidateLists::tile;
        const Size rows = cost::dense_bounds_bytes / (pitch(in) * Size(sizeof(float)));
        return std::clamp<Size>(rows / tile * tile, tile, cost::dense_block_rows);
    }

    void compute(const Input& in, Size begin, const Size* ids, Size count) {
        const CodedCentres& centres = in.centres.panels();
        pitch_ = pitch(in);
        coded_.load(in, begin, ids, count);
        lows_.resize(std::max(lows_.size(), std::size_t(count * pitch_)));
        highs_.assign(std::size_t(count * ScoreBounds::lanes),
                      std::numeric_limits<float>::infinity());
        coded_.for_products(
            centres, [&](Size t, Size some, Size unit, Size units, const std::int32_t* products) {
                filter_kernels().bound_scores(products, some, centres, unit, units,
                                              {coded_.rows() + t, coded_.margin() + t, lows(t),
                                               pitch_, highs_.data() + t * ScoreBounds::lanes});
            });
    }

    const CodedVector& row(Size t) const { return coded_.rows()[t]; }
    // The lower bounds of row t by place, in units of its scale; infinite for empty places.
    float* lows(Size t) { return lows_.data() + t * pitch_; }

    // Lists the places that may be among the m nearest of row t. Returns none if there would be
    // more than `most`, or if the row has no codes.
    std::vector<Candidate>& candidates(Size t, Size m, Size most) {
        list_.clear();
        if (!(row(t).rounding < std::numeric_limits<float>::infinity())) return list_;
        places_.resize(std::size_t(pitch_));
        const Size found =
            filter_kernels().places_below(lows(t), pitch_, limit(t, m), places_.data());
        if (found > most) return list_;
        for (Size c = 0; c < found; ++c) {
            const std::int32_t place = places_[std::size_t(c)];
            list_.push_back({place, lows(t)[place]});
        }
        return list_;
    }

private:
    static Size pitch(const Input& in) { return in.centres.panels().units() * CodedCentres::unit; }

    // A centre whose lower bound exceeds the limit is not among the m nearest. Lanes have different
    // centres, so at least m centres have upper bounds up to the m-th lowest of the lanes.
    float limit(Size t, Size m) {
        const float* const highs = highs_.data() + t * ScoreBounds::lanes;
        float upper;
        if (m == 1) {
            upper = filter_kernels().lowest(highs, ScoreBounds::lanes);
        } else {
            std::array<float, std::size_t(ScoreBounds::lanes)> sorted;
            std::copy_n(highs, ScoreBounds::lanes, sorted.begin());
            std::nth_element(sorted.begin(), sorted.begin() + (m - 1), sorted.end());
            upper = sorted[std::size_t(m - 1)];
        }
        return limit_above(upper, row(t).rounding);
    }

    CodedRows<R> coded_;
    Size pitch_ = 0;
    AlignedVector<float> lows_, highs_;
    std::vector<std::int32_t> places_;
    std::vector<Candidate> list_;
};

}  // namespace exactmeans
