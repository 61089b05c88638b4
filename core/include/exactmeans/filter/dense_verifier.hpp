// The last steps of the 8-bit filter for dense rows: compares candidates by reordered scores in the
// dtype of the rows, and by canonical scores if these are too close.
// docs/proofs/dense_integer_filter.md derives the errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/filter/dense_centre_codes.hpp"
#include "exactmeans/filter/dense_codes.hpp"
#include "exactmeans/filter/verify_candidates.hpp"
#include "exactmeans/kernels/integer_products.hpp"
#include "exactmeans/kernels/scores.hpp"

namespace exactmeans {

// How many rows the filter decided, and what the others cost.
struct FilterStats {
    Size rows = 0;       // compared by codes
    Size decided = 0;    // of them, by codes alone
    Size undecided = 0;  // of them, left for a comparison with all centres
    // Scores in the dtype of the rows: of candidates, and of labels, as upper bounds.
    Size scores = 0, labels = 0;

    FilterStats& operator+=(const FilterStats& other) {
        rows += other.rows;
        decided += other.decided;
        undecided += other.undecided;
        scores += other.scores;
        labels += other.labels;
        return *this;
    }
};

// Rows, centres, and the codes of both in this pass.
template <class R>
struct DenseFilterInput {
    const DenseRows<R>& x;
    const Centres<R>& centroids;
    const DenseCodes<R>& rows;
    const DenseCentreCodes<R>& centres;
};

// One thread's buffers.
template <class R>
class DenseVerifier {
public:
    using Input = DenseFilterInput<R>;

    // Loads row i, with codes `row`, for the calls below.
    void load(const Input& in, Size i, const CodedVector& row) {
        tile_.load(in.x, in.centroids.frame().shift_or_null(), 0, &i, 1);
        own_error_ = reordered(in.x.d) * double(row.rounding) / double(row.inverse);
    }

    // The loaded row, minus the shift of the frame.
    const R* row() const { return tile_.rows()[0]; }

    // The place of the row's label. The list must have all candidates: the places that bounds by
    // codes do not exclude.
    std::int32_t nearest(const Input& in, const Candidate* list, Size count, FilterStats& stats) {
        score_all(in, list, count);
        stats.scores += count;
        double limit = std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < std::size_t(count); ++c)
            limit = std::min(limit, double(score_[c]) + error_[c]);
        candidates_.clear();
        std::int32_t place = 0;
        for (Size c = 0; c < count; ++c) {
            if (!(double(score_[std::size_t(c)]) - error_[std::size_t(c)] <= limit)) continue;
            place = list[c].centre;
            candidates_.push_back(in.centres.centre(place));
        }
        if (candidates_.size() == 1) return place;
        stats.scores += Size(candidates_.size());
        const std::int32_t label =
            verify_candidates<R>(score_of_, in.centroids, row(), candidates_).label;
        for (Size c = 0; c < count; ++c)
            if (in.centres.centre(list[c].centre) == label) place = list[c].centre;
        return place;
    }

    // Drops candidates that are not among the m nearest, and orders the others by score. Returns
    // whether exactly m are left and their order is that of canonical scores.
    bool keep_nearest(const Input& in, std::vector<Candidate>& list, Size m) {
        const std::size_t count = list.size(), most = std::size_t(m);
        score_all(in, list.data(), Size(count));
        order_.resize(count);
        highs_.resize(count);
        for (std::size_t c = 0; c < count; ++c) {
            order_[c] = {double(score_[c]), error_[c], list[c]};
            highs_[c] = order_[c].high();
        }
        std::nth_element(highs_.begin(), highs_.begin() + (m - 1), highs_.end());
        const double limit = highs_[most - 1];
        std::erase_if(order_, [&](const Scored& own) { return own.low() > limit; });
        std::sort(order_.begin(), order_.end(),
                  [](const Scored& a, const Scored& b) { return a.score < b.score; });
        bool certain = order_.size() == most;
        list.clear();
        for (std::size_t c = 0; c < order_.size(); ++c) {
            certain = certain && (c == 0 || order_[c - 1].high() < order_[c].low());
            list.push_back(order_[c].candidate);
        }
        return certain;
    }

    // An upper bound of the row's exact score with the centre at a place.
    double upper(const Input& in, std::int32_t place) {
        return score_with(in, place) + error(in, place);
    }
    // A lower bound of the part of the row's scores that bounds by codes leave out
    // (DenseCentreCodes::base and the score of the mean).
    double base(const Input& in) {
        const std::int32_t place = std::int32_t(in.centres.mean_place());
        return in.centres.base() + score_with(in, place) - error(in, place);
    }

private:
    // A reordered score, and the most by which it and the canonical score may differ.
    struct Scored {
        double score, error;
        Candidate candidate;
        double low() const { return score - error; }
        double high() const { return score + error; }
    };

    void score_all(const Input& in, const Candidate* list, Size count) {
        score_.resize(std::size_t(count));
        error_.resize(score_.size());
        score(in, list, count, score_.data());
        for (Size c = 0; c < count; ++c) error_[std::size_t(c)] = error(in, list[c].centre);
    }
    void score(const Input& in, const Candidate* list, Size count, R* out) const {
        score_kernels<R>().listed_scores(row(), in.centres.packed(), in.centres.score_offset(),
                                         in.x.d, list, count, out);
    }
    double score_with(const Input& in, std::int32_t place) const {
        const Candidate own{place, 0};
        R out;
        score(in, &own, 1, &out);
        return double(out);
    }
    // Two sums of the same terms, in any order, differ by at most two such errors.
    double error(const Input& in, std::int32_t place) const {
        return own_error_ + reordered(in.x.d) * in.centres.rounding(place);
    }
    // The errors of a canonical and of a reordered score together, in errors of a canonical score.
    // The reordered one may have a larger error, because it does not cut long float32 chains.
    static double reordered(Size d) {
        constexpr double unit = 0.5 * double(std::numeric_limits<R>::epsilon());
        const double any = double(d + 12) * unit / (1 - double(d + 12) * unit);
        return (1 + std::max(1.0, any / DenseCodes<R>::gamma(d))) * (1 + 0x1p-20);
    }

    DenseTile<R> tile_;
    double own_error_ = 0;
    std::vector<R> score_;
    std::vector<double> error_, highs_;
    std::vector<Scored> order_;
    std::vector<std::int32_t> candidates_;
    CanonicalScore<R> score_of_;
};

}  // namespace exactmeans
