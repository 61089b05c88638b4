// Bounds of the change of scores by one table: per feature, the largest fall and the largest rise
// of a value over all bounded centres. Sums of the table over a row bound the fall and the rise of
// its scores with any of these centres. docs/proofs/delta_bounds.md derives the bounds. Memory:
// four bytes per feature, eight per centre.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "exactmeans/centres/history.hpp"
#include "exactmeans/kernels/quantized.hpp"

namespace exactmeans {

template <class R>
class DeltaBounds {
public:
    explicit DeltaBounds(Size k) : rise_(std::size_t(k)) {}

    // Tabulates the change of the moved centres for which is_bounded(m); m is a position in
    // history.moved().
    template <class IsBounded>
    void build(CentreHistory<R>& history, const Centres<R>& centroids, IsBounded is_bounded,
               const Threads& threads) {
        fall_ = extra_ = 0;
        table_.clear();
        const std::vector<Size>& moved = history.moved();
        for (std::size_t m = 0; m < moved.size(); ++m) {
            if (!is_bounded(m)) continue;
            const double offset_rise = history.score_offset_rise(centroids, moved[m]);
            rise_[std::size_t(moved[m])] = offset_rise;
            fall_ = std::max(fall_, -offset_rise);
            extra_ = std::max(extra_, 0x1p-22 * double(centroids.score_offset()[moved[m]]));
            table_.resize(std::size_t(centroids.d()));
        }
        if (table_.empty()) return;
        tiny_ = history.template tabulate<1>(
            centroids, [&](std::size_t m) { return is_bounded(m) ? 0 : -1; }, threads,
            [&](Size f, const std::uint16_t* most) {
                table_[std::size_t(f)] =
                    std::bit_cast<float>(std::uint32_t(most[0]) << 16 | most[1]);
            });
    }

    // Is no centre bounded by the table?
    bool empty() const { return table_.empty(); }
    // By feature: the largest fall in the upper half of the word, the largest rise in the lower.
    const std::vector<float>& table() const { return table_; }
    // Sums of the table over rows.
    void sum(const PackedCsrRow<float>* rows, Size n, std::vector<DeltaSums>& out) const {
        out.resize(std::size_t(n));
        quantized_kernels().sum_deltas(rows, n, table_.data(), out.data());
    }

    // Bounds of the fall of a row's score with any bounded centre, and of its rise with the bounded
    // centre `own`.
    struct ScoreChange {
        double fall = 0, rise = 0;
    };
    ScoreChange change(const DeltaSums& sums, Size nonzeros, Size own) const {
        const double m = double(nonzeros), fall = double(sums.fall), rise = double(sums.rise);
        // Covers the rounding of both sums, and of canonical scores, which grows with the values.
        const double more = (fall + rise) * (m + 16) * 0x1p-22 + m * tiny_ + extra_;
        return {fall + more + fall_, rise + more + rise_[std::size_t(own)]};
    }

private:
    std::vector<float> table_;
    double fall_ = 0;           // the largest fall of a score offset
    double extra_ = 0;          // rounding of score offsets
    double tiny_ = 0;           // underflow per entry
    std::vector<double> rise_;  // per centre: the rise of its score offset
};

}  // namespace exactmeans
