// Hamerly's algorithm (G. Hamerly, Making k-means even faster, SDM 2010).
//
// A row keeps one upper bound of the distance to its own centre and one lower bound of the distance
// to every other. While the bounds stay apart after the centres moved, its label cannot change and
// nothing is computed; otherwise the upper bound is made tight, and only if that does not help is
// the row compared with all centres. Memory: eight bytes per row.
//
//   paper      here
//   a(i)       labels[i]
//   u(i)       upper_[i], plus own_ of the label: what the own centre moved since
//   l(i)       lower_[i], minus others_ of the label: the largest movement of the others
//   p(j)       movement.distance[j]
//   2 s(j)     nearest_[j]; dense rows only (scan/inter_centre_distances.hpp)
//
// "Apart" carries the rounding slack of numerics/slack.hpp, so that a pruned row keeps the label
// that the computed scores would give it.
#pragma once

#include <limits>
#include <numeric>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/centres/drift.hpp"
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
          nearest_(std::size_t(k), -unreachable),
          own_(k),
          others_(k) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.pack_centres(threads);
        work.look_at_rows(threads);
        unit_ = work.slacks.unit();
        gaps_pay_ = gaps_pay(work.x, Size(nearest_.size()));
        find_gaps(work.centroids, threads);
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        const ScoredRows<R> scored = work.slacks.scored();
        const BoundRows rows{work.labels,    upper_.data(),   lower_.data(), own_.sums(),
                             others_.sums(), nearest_.data(), scored.margins};
        std::vector<Size> open(static_cast<std::size_t>(end - begin));
        open.resize(std::size_t(bound_kernels().unsettled(rows, begin, end, open.data())));
        AssignStats tally;
        tally.skipped = end - begin - Size(open.size());
        tighten(work, scored.margins, open, tally);
        const Size count = Size(open.size());
        if (count == 0) return tally;
        scan.nearest(work, 0, open.data(), count, true);
        tally.distances += count * work.centroids.k();
        std::vector<float> near(open.size()), far(open.size());
        score_kernels<R>().upper_bounds(scored, open.data(), scan.score.data(), count, near.data());
        score_kernels<R>().lower_bounds(scored, open.data(), scan.second.data(), count, far.data());
        for (std::size_t t = 0; t < open.size(); ++t) {
            const std::size_t i = std::size_t(open[t]);
            const std::int32_t label = scan.label[t];
            tally.changed += work.labels[i] != label;
            work.labels[i] = label;
            upper_[i] = own_.store_upper(label, near[t]);
            lower_[i] = others_.store_lower(label, far[t]);
        }
        return tally;
    }

    // Is every label certain to stay? Needs no rows, but that they were labelled before.
    bool settled(const Centres<R>& centroids, const RowSlacks<R>& slacks,
                 const std::int32_t* labels, const Threads& threads) {
        find_gaps(centroids, threads);
        constexpr Size some = 4096;
        const Size n = Size(upper_.size());
        const BoundRows rows{labels,         upper_.data(),   lower_.data(),   own_.sums(),
                             others_.sums(), nearest_.data(), slacks.margins()};
        std::vector<Size> open(static_cast<std::size_t>(some));
        for (Size begin = 0; begin < n; begin += some)
            if (bound_kernels().unsettled(rows, begin, std::min(n, begin + some), open.data()))
                return false;
        return true;
    }

    void moved(const Movement& movement) {
        for (Size j = 0; j < Size(movement.distance.size()); ++j) {
            own_.add(j, movement.distance[std::size_t(j)] * unit_);
            others_.add(j, movement.farthest.of_others(j) * unit_);
        }
    }

private:
    void find_gaps(const Centres<R>& centroids, const Threads& threads) {
        if (!gaps_pay_ || gaps_version_ == centroids.version()) return;
        nearest_gaps(centroids, unit_, nearest_, threads);
        gaps_version_ = centroids.version();
    }

    // Measures the distance to the own centre; rows that this settles are no longer open.
    template <class Rows>
    void tighten(const Work<Rows>& work, const Margins& margins, std::vector<Size>& open,
                 AssignStats& tally) {
        std::vector<float> near(open.size()), reach(open.size());
        for (std::size_t t = 0; t < open.size(); ++t) {
            const Size i = open[t], own = work.labels[i];
            near[t] = std::numeric_limits<float>::infinity();
            // Without any bound there is nothing that could be settled.
            if (own < 0 || !(upper_[std::size_t(i)] < near[t])) continue;
            near[t] = round_up(own_distance(work, i, own) * unit_);
            upper_[std::size_t(i)] = own_.store_upper(own, near[t]);
            tally.distances += 1;
        }
        bound_kernels().reach(margins, open.data(), near.data(), Size(open.size()), reach.data());
        std::size_t left = 0;
        for (std::size_t t = 0; t < open.size(); ++t) {
            const std::size_t i = std::size_t(open[t]);
            const std::int32_t own = std::max(0, work.labels[i]);
            const float kept = lower_[i] - others_.sums()[own],
                        gap = nearest_[std::size_t(own)] - near[t];
            if (!(std::max(kept, gap) > reach[t])) open[left++] = open[t];
        }
        open.resize(left);
    }

    // The distance to the own centre, rounded up. It only serves as a bound, so any accurate way
    // will do.
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
            // What underflowed of the squares.
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
            // |c|^2 came rounded to float64, and that error stays when the rest cancels.
            sum.add(0x1p-51 * centroids.norm2(own) + double(centroids.d()) * 0x1p-1074);
        }
        return std::sqrt(std::max(0.0, sum.value())) * (1 + 0x1p-40);
    }

    // The same of a direction: |c|^2 + 1 - 2 x.c / |x|. |x|, |c|^2 and the quotient are rounded to
    // a few units of float64.
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
    bool gaps_pay_ = false;
    Size gaps_version_ = -1;
    std::vector<float> upper_, lower_, nearest_;
    Drift own_, others_;
};

}  // namespace exactmeans
