// How centres changed between two passes over CSR rows: one table of all that moved, for rows that
// have no first look at them; or of those that did not go far
// (assign/sparse/grouped_delta_bounds.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/centres/history.hpp"
#include "exactmeans/centres/layout_settings.hpp"
#include "exactmeans/kernels/quantized.hpp"

namespace exactmeans {

template <class R>
class DeltaBounds : public CentreHistory<R> {
public:
    DeltaBounds(const Centres<R>& centroids, const std::shared_ptr<const LayoutSettings>&, bool)
        : CentreHistory<R>(centroids), rise_(std::size_t(centroids.k())) {}

    void update(const Centres<R>& centroids, const Threads& threads) {
        if (!this->begin(centroids)) return;
        const PassStats last = this->take_stats();
        const std::vector<Size> moved = this->moved_centres(centroids);
        const bool calm = pays_soon(centroids, last);
        sifts_ = calm && this->from() >= 0 && pays_now(last);
        if (sifts_) bound(centroids, moved, std::vector<char>(moved.size(), 1), threads);
        if (calm) this->remember(centroids, moved, threads);
        this->finish(centroids);
    }

    // By feature: how far centres moved, for rows to look at; empty if none did.
    const std::vector<float>& table() const { return table_; }
    // What scores of a row of so many entries, which has looked at it, may have lost with any
    // centre that moved; and gained with the one that is `own`.
    struct Reach {
        double fall = 0, rise = 0;
    };
    Reach reach(const DeltaSums& seen, Size nonzeros, Size own) const {
        const double m = double(nonzeros), fall = double(seen.fall), rise = double(seen.rise);
        // Both sums are rounded, and canonical scores of larger values are rounded by more.
        const double more = (fall + rise) * (m + 16) * 0x1p-22 + m * tiny_ + extra_;
        return {fall + more + fall_, rise + more + rise_[std::size_t(own)]};
    }

protected:
    using typename CentreHistory<R>::PassStats;
    using CentreHistory<R>::k_;
    using CentreHistory<R>::sifts_;

    // Makes the table, of those that moved which are chosen.
    void bound(const Centres<R>& centroids, const std::vector<Size>& moved,
               const std::vector<char>& chosen, const Threads& threads) {
        fall_ = extra_ = 0;
        table_.clear();
        for (std::size_t m = 0; m < moved.size(); ++m) {
            if (!chosen[m]) continue;
            const double offset_rise = this->score_offset_rise(centroids, moved[m]);
            rise_[std::size_t(moved[m])] = offset_rise;
            fall_ = std::max(fall_, -offset_rise);
            extra_ = std::max(extra_, 0x1p-22 * double(centroids.score_offset()[moved[m]]));
            table_.resize(std::size_t(centroids.d()));
        }
        if (table_.empty()) return;
        tiny_ = this->template tabulate<1>(
            centroids, moved, [&](std::size_t m) { return chosen[m] ? 0 : -1; }, threads,
            [&](Size f, const std::uint16_t* most) {
                table_[std::size_t(f)] =
                    std::bit_cast<float>(std::uint32_t(most[0]) << 16 | most[1]);
            });
    }

private:
    // Centres are worth remembering when most labels stay, and when comparing them with what they
    // were, and a table of all features, take little beside comparing all rows with them.
    bool pays_soon(const Centres<R>& centroids, const PassStats& last) const {
        Size nonzeros = centroids.sparse() ? 0 : k_ * centroids.d();
        for (const SparseVector<R>& centre : centroids.sparse_master()) nonzeros += centre.size();
        return last.rows > 0 && 8 * last.changed <= last.rows &&
               centroids.d() <= 4 * last.nonzeros &&
               double(last.nonzeros) * double(k_) >= 500 * double(nonzeros);
    }
    // Looks at the table are of use when hardly any label changes, and for as long as they settle
    // many rows.
    bool pays_now(const PassStats& last) {
        if (32 * last.changed > last.rows) return false;
        if (!backoff_.due()) return false;
        if (!sifts_) return true;
        const bool paid = 5 * last.left <= 3 * last.rows;
        backoff_.record(paid);
        return paid;
    }

    Backoff backoff_{1, 16};  // passes without the table, after one that it did not pay for
    // By feature: the most by which a centre fell, and rose, in half a float32 each.
    std::vector<float> table_;
    // The most by which starts fell, and what their rounding comes to; what underflow of an entry
    // does; and by how much each start rose.
    double fall_ = 0, extra_ = 0, tiny_ = 0;
    std::vector<double> rise_;
};

}  // namespace exactmeans
