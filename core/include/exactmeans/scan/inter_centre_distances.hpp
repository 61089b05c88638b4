// Lower bounds of the distances between centres. If a row is at most u away from centre c, it is at
// least |c - z| - u away from any other centre z (Elkan 2003, lemma 1). This bound takes no memory
// per row, does not loosen when distant centres move, and holds in the first pass already.
//
// Centres are compared with each other as rows are with centres, by the same kernels and with the
// same slack.
#pragma once

#include <numeric>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/scan/scan.hpp"

namespace exactmeans {

// The distances take k^2 products, which must be few beside those of a pass. Directions (rows with
// lengths) are hardly ever so near their own centre that the bound prunes.
template <class Rows>
bool centre_distances_pay(const Rows& x, Size k) {
    return is_dense<Rows> && !x.norms && cost::rows_per_centre_for_distances * k <= x.n;
}

// The centres as rows, to be compared with centres.
template <class R>
class CentreRows {
public:
    CentreRows(SharedCentres<R>& shared, double unit, const Threads& threads)
        : rows_{shared.centres.master(), shared.centres.k(), shared.centres.d(),
                shared.centres.d()},
          work_(rows_, shared, nullptr, slacks_),
          ids_(std::size_t(shared.centres.k())) {
        work_.measure_rows(threads);
        units_ = unit / slacks_.unit();
        std::iota(ids_.begin(), ids_.end(), Size(0));
    }
    CentreRows(const CentreRows&) = delete;

    Work<DenseRows<R>>& work() { return work_; }

    // far[t]: a lower bound, in the unit of the rows, of the distance between centre begin + t and
    // the centre with which it has score[t].
    void lower_bounds(Size begin, const std::vector<R>& score, std::vector<float>& far) const {
        far.resize(score.size());
        score_kernels<R>().lower_bounds(slacks_.scored(), ids_.data() + begin, score.data(),
                                        Size(score.size()), far.data());
        for (float& x : far)
            x = x < unreachable ? round_down(std::min(double(x) * units_, double(farthest_bound)))
                                : unreachable;
    }

private:
    DenseRows<R> rows_;
    RowSlacks<R> slacks_;
    Work<DenseRows<R>> work_;
    std::vector<Size> ids_;
    double units_;
};

// A lower bound of the distance from each centre to the nearest other.
template <class R>
void nearest_centre_distances(SharedCentres<R>& shared, double unit, std::vector<float>& out,
                              const Threads& threads) {
    CentreRows<R> centres(shared, unit, threads);
    centres.work().pack_centres(threads);
    threads.ranges(shared.centres.k(), cost::compared_centres_per_task,
                   [&](Size begin, Size end, int) {
                       Scan<DenseRows<R>> scan;
                       std::vector<float> far;
                       scan.nearest(centres.work(), begin, nullptr, end - begin, true);
                       for (Size j = begin; j < end; ++j) {
                           const std::size_t t = std::size_t(j - begin);
                           if (scan.label[t] == j) scan.score[t] = scan.second[t];
                       }
                       centres.lower_bounds(begin, scan.score, far);
                       std::copy(far.begin(), far.end(), out.begin() + begin);
                   });
}

// Lower bounds of the distance from each centre to the nearest other centre of each group. They are
// -unreachable, which prunes nothing, until update() and after forget().
template <class R>
class InterCentreDistances {
public:
    InterCentreDistances(Size k, Size pitch)
        : k_(k),
          pitch_(pitch),
          distance_(std::size_t(k * pitch), -unreachable),
          nearest_(std::size_t(k), -unreachable) {}

    // The distances of centre j, one entry per group.
    const float* of(Size j) const { return distance_.data() + j * pitch_; }
    // The least over all groups, one entry per centre.
    const float* nearest() const { return nearest_.data(); }

    void forget() {
        if (!known_) return;
        version_ = -1;
        known_ = false;
        std::fill(distance_.begin(), distance_.end(), -unreachable);
        std::fill(nearest_.begin(), nearest_.end(), -unreachable);
    }

    template <class Grouping>
    void update(const Grouping& groups, SharedCentres<R>& shared, double unit,
                const Threads& threads) {
        if (version_ == shared.centres.version()) return;
        version_ = -1;
        known_ = true;
        CentreRows<R> centres(shared, unit, threads);
        std::vector<std::int32_t> all(static_cast<std::size_t>(k_));
        std::iota(all.begin(), all.end(), 0);
        const Size step =
            std::max<Size>(1, groups.count() / (cost::tasks_per_thread * threads.n_jobs));
        threads.ranges(groups.count(), step, [&](Size begin, Size end, int) {
            Scan<DenseRows<R>> scan;
            std::vector<float> far;
            scan.load(centres.work(), groups.panels(), 0, nullptr, k_);
            for (Size g = begin; g < end; ++g) {
                groups.compare(scan, g, all.data(), k_);
                for (std::size_t j = 0; j < all.size(); ++j)
                    if (groups.centre(scan.label[j]) == all[j]) scan.score[j] = scan.second[j];
                centres.lower_bounds(0, scan.score, far);
                for (Size j = 0; j < k_; ++j)
                    distance_[std::size_t(j * pitch_ + g)] = far[std::size_t(j)];
            }
        });
        for (Size j = 0; j < k_; ++j)
            nearest_[std::size_t(j)] = *std::min_element(of(j), of(j) + groups.count());
        version_ = shared.centres.version();
    }

private:
    Size k_, pitch_, version_ = -1;
    bool known_ = false;  // update() has run since the last forget()
    std::vector<float> distance_, nearest_;
};

}  // namespace exactmeans
