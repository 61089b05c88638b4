// Hamerly's algorithm (G. Hamerly, Making k-means even faster, SDM 2010).
//
// A row keeps one upper bound of the distance to its own centre and one lower bound of the distance
// to every other. While the bounds stay apart after the centres moved, its label cannot change and
// nothing is computed; otherwise the upper bound is made tight, and only if that does not help is
// the row compared with all centres. Memory: two float64 per row.
//
//   paper      here
//   a(i)       labels[i]
//   u(i)       upper_[i], plus the movement of the own centre
//   l(i)       lower_[i], minus the largest movement of the others
//   p(j)       movement.distance[j]
//   s(j)       not used: it costs k^2 distances an iteration, which the plain form does without
//
// "Apart" carries the rounding slack of slack.hpp, so that a pruned row keeps the label that the
// computed scores would give it.
#pragma once

#include <limits>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/compensated.hpp"
#include "exactmeans/distances.hpp"
#include "exactmeans/slack.hpp"

namespace exactmeans {

template <class R>
class Hamerly {
public:
    using Real = R;
    static constexpr Traits traits{"hamerly", "one lower bound per row", true, true,
                                   "euclidean cosine angular"};
    static Size bytes_per_row(Size, Size, bool) { return 16 + RowSlacks<R>::bytes_per_row; }

    Hamerly(Size n, Size)
        : upper_(std::size_t(n), std::numeric_limits<double>::infinity()),
          lower_(std::size_t(n), 0.0) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.pack_centres(threads);
        work.look_at_rows(threads);
    }

    template <class Rows>
    Tally assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        Tally tally;
        std::vector<Size> open;
        for (Size i = begin; i < end; ++i)
            if (!settled(work, i, tally)) open.push_back(i);
        if (open.empty()) return tally;
        scan.nearest(work, 0, open.data(), Size(open.size()), true);
        tally.distances += Size(open.size()) * work.centroids.k();
        for (std::size_t t = 0; t < open.size(); ++t) {
            const std::size_t i = std::size_t(open[t]);
            const RowSlack slack = work.slack(open[t]);
            tally.changed += work.labels[i] != scan.label[t];
            work.labels[i] = scan.label[t];
            upper_[i] = slack.upper(double(scan.score[t]));
            lower_[i] = slack.lower(double(scan.second[t]));
        }
        return tally;
    }

    void moved(const Movement& movement) { movement_ = movement; }

private:
    // Brings the bounds of row i up to date; true if its label is certain to stay.
    template <class Rows>
    bool settled(const Work<Rows>& work, Size row, Tally& tally) {
        const std::size_t i = std::size_t(row);
        const std::int32_t own = work.labels[i];
        if (own < 0 || movement_.distance.empty()) return false;
        const RowSlack slack = work.slack(row);
        if (!slack.holds()) return false;
        upper_[i] = (upper_[i] + movement_.distance[std::size_t(own)]) * Slack::up;
        lower_[i] = std::max(0.0, (lower_[i] - movement_.farthest_other(own)) * Slack::down);
        if (slack.apart(lower_[i], upper_[i])) {
            tally.skipped += 1;
            return true;
        }
        upper_[i] = std::min(upper_[i], own_distance(work, row, own));
        tally.distances += 1;
        return slack.apart(lower_[i], upper_[i]);
    }

    // The distance to the own centre, rounded up. It only serves as a bound, so any accurate way
    // will do.
    template <class Rows>
    static double own_distance(const Work<Rows>& work, Size i, Size own) {
        const Centroids<R>& centroids = work.centroids;
        const Frame<R>& frame = centroids.frame();
        if (work.x.norms) return own_chord(work, i, own);
        Compensated sum;
        if constexpr (is_dense<Rows>) {
            const R* shift = frame.shift_or_null();
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
        const double dot = kernels<R>().product(row.value, c.data(), row.nonzeros, scale).value();
        const double d2 = 1 + work.centroids.norm2(own) - 2 * (dot / (norm * scale));
        return std::sqrt(std::max(0.0, d2) + 0x1p-48) * (1 + 0x1p-40);
    }

    std::vector<double> upper_, lower_;
    Movement movement_;
};

}  // namespace exactmeans
