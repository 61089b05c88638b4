// Lower bounds of gaps of rows while prices change and centres move, as in Hamerly's algorithm.
//
// The gap of a row is the cost of its cheapest other cluster minus the cost of its label. Per
// label, lost() is the most by which gaps have fallen since the first bound. A gap is stored with
// lost() of that time added; subtracting the current lost() gives a lower bound of the gap now.
// docs/proofs/size_limits.md derives the bounds. Memory: 8 bytes per row, kept by the caller.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/movement.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/vectors.hpp"

namespace exactmeans {

class GapBounds {
public:
    // The stored gap of a row without a bound.
    static constexpr float unknown = -std::numeric_limits<float>::infinity();

    explicit GapBounds(Size k) : fallen_(std::size_t(k)), drifted_(std::size_t(k)) {}

    // The most by which the gap of a row with this label, and at most this length, has fallen: a
    // part through prices and score offsets, and a part in proportion to the length through moving
    // centres.
    double lost(float length, std::int32_t label) const {
        return fallen_[std::size_t(label)] + double(length) * drifted_[std::size_t(label)];
    }
    // The stored form of a gap that holds now.
    float stored(double gap, float length, std::int32_t label) const {
        const double kept = std::min(gap, 0x1p100) + lost(length, label);
        return float(kept - std::abs(kept) * 0x1p-22);
    }
    // Is the gap of a row certainly larger than `reach`?
    bool exceeds(float stored_gap, float length, std::int32_t label, double reach) const {
        return stored_gap > unknown && double(stored_gap) - lost(length, label) > reach;
    }

    // Adjusts the bounds to a rise of the costs by these amounts per cluster: a gap falls by the
    // rise of the label's cost minus the least rise of all others.
    void follow_rises(const std::vector<double>& rises) {
        double low = infinite, second = infinite;
        for (const double own : rises) {
            second = std::min(second, std::max(low, own));
            low = std::min(low, own);
        }
        for (std::size_t j = 0; rises.size() > 1 && j < fallen_.size(); ++j)
            fallen_[j] += (rises[j] - (rises[j] == low ? second : low)) * (1 + 0x1p-40) +
                          0x1p-50 * (std::abs(rises[j]) + std::abs(low));
    }

    // Records the movement of the centres since the last assignment.
    void moved(const Movement& movement) {
        steps_ = movement.distance;
        from_ = movement.from;
        to_ = movement.to;
    }
    // Adjusts the bounds to the recorded movement. Returns false, and stored gaps are then invalid,
    // unless it leads from the centres of the last assignment to these centres. A score changes by
    // the change of the score offset, and by at most the length of the row times the movement; the
    // rounding of both scores comes on top.
    template <class R>
    bool follow_centres(const Centres<R>& centroids) {
        const std::size_t k = fallen_.size();
        const R* const offset = centroids.score_offset();
        const bool known = steps_.size() == k && from_ == version_ && to_ == centroids.version() &&
                           centroids.in_range();
        if (!known) {
            fallen_.assign(k, 0.0);
            drifted_.assign(k, 0.0);
        } else {
            std::vector<double> rises;
            double far = 0, second = 0, largest = 0;
            for (std::size_t j = 0; j < k; ++j) {
                rises.push_back(double(offset[j]) - offsets_[j]);
                largest = std::max({largest, double(offset[j]), offsets_[j]});
                second = std::max(second, std::min(far, steps_[j]));
                far = std::max(far, steps_[j]);
            }
            follow_rises(rises);
            const double longest = std::max(longest_, centroids.longest());
            const double d = double(centroids.d()), u = 2 * std::numeric_limits<R>::epsilon();
            const double rounding = u * (d + 8), tiny = 0x1p-120 * (d + 8);
            for (std::size_t j = 0; j < k; ++j) {
                const double own = steps_[j];
                drifted_[j] += (own + (own == far ? second : far)) * (1 + 0x1p-40) +
                               4 * rounding * longest + tiny;
                fallen_[j] += 4 * rounding * largest + tiny;
            }
        }
        steps_.clear();
        version_ = centroids.version();
        longest_ = centroids.longest();
        offsets_.assign(offset, offset + k);
        return known;
    }

private:
    static constexpr double infinite = std::numeric_limits<double>::infinity();

    std::vector<double> fallen_, drifted_;  // per cluster; see lost()
    std::vector<double> steps_;             // movements of the centres since the last assignment
    Size from_ = -1, to_ = -1;              // versions of the centres before and after these
    // The centres at the last assignment: score offsets, length of the longest, version.
    std::vector<double> offsets_;
    double longest_ = 0;
    Size version_ = -1;
};

// Upper bounds of the lengths of the rows, on the scale of costs: 1 for directions.
template <class Rows>
std::vector<float> row_lengths(const Rows& x, const Frame<typename Rows::Real>& frame,
                               const Threads& threads) {
    using R = typename Rows::Real;
    std::vector<float> length(std::size_t(x.n), 1.0f + 0x1p-20f);
    if (x.norms) return length;
    threads.ranges(x.n, cost::measured_rows_per_task, [&](Size begin, Size end, int) {
        DenseTile<R> tile;
        if constexpr (is_dense<Rows>)
            tile.load(x, frame.shift_or_null(), begin, nullptr, end - begin);
        for (Size i = begin; i < end; ++i) {
            const R* values;
            Size count = x.d;
            if constexpr (is_dense<Rows>) {
                values = tile.rows()[i - begin];
            } else {
                values = x.row(i).value;
                count = x.row(i).nonzeros;
            }
            const double norm2 =
                vector_kernels<R>().square_sum(values, nullptr, count, frame.scale()).value();
            length[std::size_t(i)] = float(std::sqrt(norm2) * (1 + 0x1p-20));
        }
    });
    return length;
}

}  // namespace exactmeans
