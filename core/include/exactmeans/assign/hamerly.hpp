// Hamerly's algorithm (G. Hamerly, Making k-means even faster, SDM 2010).
//
// Per row there are an upper bound of the distance to its own centre and one lower bound of the
// distances to all others. While the lower bound exceeds the upper one, the label cannot change and
// the row is skipped. Otherwise the distance to its own centre tightens the upper bound; only if
// that is not enough, the row is compared with all centres. Memory: eight bytes per row.
//
//   paper      here
//   a(i)       labels[i]
//   u(i)       upper_[i], plus own_drift_ of the label: the own centre's movement since then
//   l(i)       lower_[i], minus others_drift_ of the label: the largest movements of the others
//   p(j)       movement.distance[j]
//   2 s(j)     nearest_distance_[j]; dense rows only (scan/inter_centre_distances.hpp)
//
// All tests include the rounding slack of numerics/slack.hpp, so a pruned row keeps the label that
// its computed scores would give.
#pragma once

#include <atomic>
#include <limits>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/drift.hpp"
#include "exactmeans/filter/dense_bounds.hpp"
#include "exactmeans/numerics/compensated.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"
#include "exactmeans/scan/inter_centre_distances.hpp"

namespace exactmeans {

template <class R>
class Hamerly {
public:
    using Real = R;
    static constexpr Traits traits{"hamerly", "one lower bound per row", true, true,
                                   "euclidean cosine angular"};
    static Size bytes_per_row(Size, Size, bool) { return 8 + RowSlacks<R>::bytes_per_row; }

    Hamerly(Size n, Size k)
        : upper_(std::size_t(n), std::numeric_limits<float>::infinity()),
          lower_(std::size_t(n), 0.0f),
          nearest_distance_(std::size_t(k), -unreachable),
          own_drift_(k),
          others_drift_(k) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.pack_centres(threads);
        work.measure_rows(threads);
        unit_ = work.slacks.unit();
        distances_pay_ = centre_distances_pay(work.x, Size(nearest_distance_.size()));
        update_centre_distances(work.shared, threads);
        const Size before = compared_.exchange(0);
        if constexpr (is_dense<Rows>)
            filters_ = filter_.start(work.x, before < 0 ? work.x.n : before, work.centroids,
                                     work.codes, nullptr, threads);
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        const ScoredRows<R> scored = work.slacks.scored();
        const BoundRows rows{work.labels,       upper_.data(),        lower_.data(),
                             own_drift_.sums(), others_drift_.sums(), nearest_distance_.data(),
                             scored.margins};
        std::vector<Size> survivors(static_cast<std::size_t>(end - begin));
        survivors.resize(
            std::size_t(bound_kernels().survivors(rows, begin, end, survivors.data())));
        AssignStats stats;
        stats.skipped = end - begin - Size(survivors.size());
        tighten(work, scored.margins, survivors, stats);
        const Size count = Size(survivors.size());
        if (count == 0) return stats;
        nearest_two(work, scan, survivors, stats);
        std::vector<float> near(survivors.size()), far(survivors.size());
        score_kernels<R>().upper_bounds(scored, survivors.data(), scan.score.data(), count,
                                        near.data());
        score_kernels<R>().lower_bounds(scored, survivors.data(), scan.second.data(), count,
                                        far.data());
        for (std::size_t t = 0; t < survivors.size(); ++t) {
            const std::size_t i = std::size_t(survivors[t]);
            const std::int32_t label = scan.label[t];
            stats.changed += work.labels[i] != label;
            work.labels[i] = label;
            upper_[i] = own_drift_.store_upper(label, near[t]);
            lower_[i] = others_drift_.store_lower(label, far[t]);
        }
        return stats;
    }

    // Reads bounds only, not the rows.
    bool labels_certain(SharedCentres<R>& shared, const RowSlacks<R>& slacks,
                        const std::int32_t* labels, const Threads& threads) {
        update_centre_distances(shared, threads);
        constexpr Size batch = cost::bounds_per_batch;
        const Size n = Size(upper_.size());
        const BoundRows rows{labels,
                             upper_.data(),
                             lower_.data(),
                             own_drift_.sums(),
                             others_drift_.sums(),
                             nearest_distance_.data(),
                             slacks.margins()};
        std::vector<Size> survivors(static_cast<std::size_t>(batch));
        for (Size begin = 0; begin < n; begin += batch)
            if (bound_kernels().survivors(rows, begin, std::min(n, begin + batch),
                                          survivors.data()))
                return false;
        return true;
    }

    void moved(const Movement& movement) {
        for (Size j = 0; j < Size(movement.distance.size()); ++j) {
            own_drift_.add(j, movement.distance[std::size_t(j)] * unit_);
            others_drift_.add(j, movement.farthest.of_others(j) * unit_);
        }
    }

private:
    // Sets label, score and second score of the survivors, in `scan`: canonical scores, or bounds
    // of exact scores by the 8-bit filter.
    template <class Rows>
    void nearest_two(const Work<Rows>& work, Scan<Rows>& scan, const std::vector<Size>& ids,
                     AssignStats& stats) {
        const Size count = Size(ids.size()), k = work.centroids.k();
        compared_.fetch_add(count, std::memory_order_relaxed);
        if constexpr (is_dense<Rows>) {
            if (filters_) {
                std::vector<std::int32_t> label(ids.size());
                std::vector<R> score(ids.size()), second(ids.size());
                const DenseCentreCodes<R>& centres = filter_.centres();
                const FilterStats filtered =
                    scan.dense_bounds.run({work.x, work.centroids, *work.codes, centres},
                                          ids.data(), count, [&](Size t, const BoundedRow<R>& row) {
                                              const std::size_t at = std::size_t(t);
                                              label[at] = row.place();
                                              score[at] = row.upper();
                                              second[at] = row.lower(0, centres.padded_places());
                                          });
                filter_.record(filtered);
                stats.add(filtered, filtered.undecided * k);
                std::vector<Size> rest;
                for (const Size t : scan.dense_bounds.undecided)
                    rest.push_back(ids[std::size_t(t)]);
                scan.nearest(work, 0, rest.data(), Size(rest.size()), true);
                for (std::size_t o = 0; o < rest.size(); ++o) {
                    const std::size_t at = std::size_t(scan.dense_bounds.undecided[o]);
                    label[at] = scan.label[o];
                    score[at] = scan.score[o];
                    second[at] = scan.second[o];
                }
                scan.label.swap(label);
                scan.score.swap(score);
                scan.second.swap(second);
                return;
            }
        }
        scan.nearest(work, 0, ids.data(), count, true);
        stats.distances += count * k;
    }

    void update_centre_distances(SharedCentres<R>& shared, const Threads& threads) {
        const Size version = shared.centres.version();
        if (!distances_pay_ || distances_version_ == version) return;
        distances_version_ = -1;
        nearest_centre_distances(shared, unit_, nearest_distance_, threads);
        distances_version_ = version;
    }

    // Tightens the upper bounds by the distances to the own centres, and drops the survivors that
    // the tighter bounds prune.
    template <class Rows>
    void tighten(const Work<Rows>& work, const Margins& margins, std::vector<Size>& survivors,
                 AssignStats& stats) {
        std::vector<float> near(survivors.size()), reach(survivors.size());
        for (std::size_t t = 0; t < survivors.size(); ++t) {
            const Size i = survivors[t], own = work.labels[i];
            near[t] = std::numeric_limits<float>::infinity();
            // A row without an upper bound has no lower bound either.
            if (own < 0 || !(upper_[std::size_t(i)] < near[t])) continue;
            near[t] = round_up(own_distance(work, i, own) * unit_);
            upper_[std::size_t(i)] = own_drift_.store_upper(own, near[t]);
            stats.distances += 1;
        }
        bound_kernels().reach(margins, survivors.data(), near.data(), Size(survivors.size()),
                              reach.data());
        std::size_t remaining = 0;
        for (std::size_t t = 0; t < survivors.size(); ++t) {
            const std::size_t i = std::size_t(survivors[t]);
            const std::int32_t own = std::max(0, work.labels[i]);
            const float stored = lower_[i] - others_drift_.sums()[own],
                        by_centres = nearest_distance_[std::size_t(own)] - near[t];
            if (!(std::max(stored, by_centres) > reach[t])) survivors[remaining++] = survivors[t];
        }
        survivors.resize(remaining);
    }

    // An upper bound of the distance to the own centre, from compensated sums, not from a score.
    template <class Rows>
    static double own_distance(const Work<Rows>& work, Size i, Size own) {
        const Centres<R>& centroids = work.centroids;
        const Frame<R>& frame = centroids.frame();
        if (work.x.norms) return own_chord(work, i, own);
        Compensated sum;
        if constexpr (is_dense<Rows>) {
            const R* shift = frame.shift_or_null();
            if (work.x.col_stride == 1) {
                const R* row = work.x.row(i);
                const Size d = work.x.d;
                const double step2 =
                    vector_kernels<R>().step2(row, centroids.master(own), shift, d, frame.scale());
                return std::sqrt(step2 + double(d) * 0x1p-1074) * (1 + double(d + 8) * 0x1p-53) *
                       (1 + 0x1p-40);
            }
            for (Size f = 0; f < work.x.d; ++f) {
                const R value = shift ? R(work.x.at(i, f) - shift[f]) : work.x.at(i, f);
                const double step =
                    (double(value) - double(centroids.derived(own, f))) * frame.scale();
                sum.add_product(step, step);
            }
            // Covers underflow of the squares.
            sum.add(double(work.x.d) * 0x1p-1074);
        } else {
            // |c|^2 + sum of (x - c)^2 - c^2 over the stored entries, all compensated.
            const double scale = frame.scale();
            sum.add(centroids.norm2(own));
            const auto row = work.x.row(i);
            std::vector<double> centre(static_cast<std::size_t>(row.nonzeros));
            centroids.values_at(own, row.index, row.nonzeros, centre.data());
            for (Size t = 0; t < row.nonzeros; ++t) {
                const double c = centre[std::size_t(t)] * scale,
                             step = double(row.value[t]) * scale - c;
                sum.add_product(step, step);
                sum.add_product(-c, c);
            }
            // The rounding of |c|^2 to float64 remains even if the other terms cancel.
            sum.add(0x1p-51 * centroids.norm2(own) + double(centroids.d()) * 0x1p-1074);
        }
        return std::sqrt(std::max(0.0, sum.value())) * (1 + 0x1p-40);
    }

    // own_distance for a direction, the root of |c|^2 + 1 - 2 x.c / |x|. The added 2^-48 covers the
    // errors of |x|, |c|^2 and the quotient, a few units in the last place each.
    template <class Rows>
    static double own_chord(const Work<Rows>& work, Size i, Size own) {
        std::vector<R> buffer;
        const auto row = stored(work.x, i, buffer);
        const double norm = work.x.norms[i];
        if (!(norm > 0)) return std::numeric_limits<double>::infinity();
        std::vector<double> c(static_cast<std::size_t>(row.nonzeros));
        if constexpr (is_dense<Rows>)
            std::copy(work.centroids.master(own), work.centroids.master(own) + work.x.d, c.data());
        else
            work.centroids.values_at(own, row.index, row.nonzeros, c.data());
        const double scale = to_one(norm);
        const double dot =
            vector_kernels<R>().product(row.value, c.data(), row.nonzeros, scale).value();
        const double d2 = 1 + work.centroids.norm2(own) - 2 * (dot / (norm * scale));
        return std::sqrt(std::max(0.0, d2) + 0x1p-48) * (1 + 0x1p-40);
    }

    double unit_ = 1;
    bool distances_pay_ = false;
    Size distances_version_ = -1;
    std::vector<float> upper_, lower_, nearest_distance_;
    Drift own_drift_, others_drift_;
    DenseBoundsPass<R> filter_;
    bool filters_ = false;  // this pass compares survivors by the 8-bit filter
    // Rows of this pass that are compared with all centres; -1 before the first pass.
    std::atomic<Size> compared_ = -1;
};

}  // namespace exactmeans
