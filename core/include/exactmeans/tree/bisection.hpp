// Lloyd's loop with two centres, for dense rows.
//
// The label of a row follows from the gap between its two scores, which is linear in the row: with
// w = c0 - c1 and any reference point m, gap(x) = (x - m).w + C, where C is the gap of m. When the
// centres move, C is computed anew and the first term changes by at most |x - m| times the movement
// of w. If the border shifts without turning, w hardly changes, so these bounds are tighter than
// those of Hamerly's algorithm, which add the movements of both centres. Rows whose gap is certain
// to keep its sign are not read. Derivation: docs/proofs/bounds.md, "Two centres".
//
// Memory: eight bytes per row, and the rows are not copied.
//
//   here            meaning
//   radius_[i]      |x - m|, rounded up
//   gap_[i]         a lower bound of (x - m).w, negated for label 1, plus radius_[i] times
//                   normal_drift_ at that time
//   normal_drift_   the drift of w: the sum of its movements
//   gap_at_m_       C
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/evaluate/own_distances.hpp"
#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/numerics/exact_sum.hpp"
#include "exactmeans/numerics/slack.hpp"
#include "exactmeans/scan/all_scores.hpp"
#include "exactmeans/update/cluster_sums.hpp"
#include "exactmeans/update/means.hpp"

namespace exactmeans {

template <class R>
class Bisection {
public:
    // sums: empty sums of two clusters. origin: that of the scatter (update/means.hpp).
    Bisection(const DenseRows<R>& x, SharedCentres<R>& shared, Sums& sums, const double* origin,
              const Threads& threads)
        : x_(x),
          shared_(shared),
          sums_(sums),
          origin_(origin),
          threads_(threads),
          radius_(std::size_t(x.n)),
          gap_(std::size_t(x.n), -std::numeric_limits<float>::infinity()),
          w_(std::size_t(x.d)),
          workers_(std::size_t(threads.n_jobs)) {
        set_reference();
    }

    // Labels all rows and moves the centres, with the steps of fit/loop.py. Returns false if the
    // general loop must do it from the start: a cluster ran empty, or scores may overflow.
    bool run(Size max_iter, double tolerance, std::int32_t* labels) {
        std::fill(labels, labels + x_.n, -1);
        CentreUpdate<R> update(2);
        bool converged = false, again = true;
        while (iterations < max_iter && !converged) {
            ++iterations;
            if (!follow_centres()) return false;
            const Size changed = assign(labels);
            if (sums_.any_empty()) return false;
            const Movement movement = update.run(sums_, shared_.centres, origin_, threads_);
            converged = changed == 0 || movement.shift2 <= tolerance;
            again = changed || movement.moved;
        }
        if (again) {
            if (!follow_centres()) return false;
            assign(labels);
        }
        Size ones = 0;
        for (Size i = 0; i < x_.n; ++i) ones += labels[i];
        if (ones == 0 || ones == x_.n) return false;
        measure_inertia(labels);
        return true;
    }

    Size iterations = 0;
    std::array<double, 2> inertia{};

private:
    static constexpr Size tile_rows = cost::bisection_tile_rows;

    // The reference point: the mean of a sample of the rows. Bounds hold for any point, and are
    // tightest near the rows.
    void set_reference() {
        const Size count = std::min(cost::bisection_sampled_rows, x_.n);
        const R* const shift = shared_.centres.frame().shift_or_null();
        reference_.resize(std::size_t(x_.d));
        for (Size f = 0; f < x_.d; ++f) {
            double sum = 0;
            for (Size t = 0; t < count; ++t) sum += double(x_.at(t * x_.n / count, f));
            const R mean = R(sum / double(count));
            reference_[std::size_t(f)] = shift ? mean - shift[f] : mean;
        }
        const double scale = shared_.centres.frame().scale();
        reference_length_ =
            std::sqrt(
                vector_kernels<R>().square_sum(reference_.data(), nullptr, x_.d, scale).value()) *
            up;
    }

    // Updates w, C and the slack after the centres moved. Returns false if bounds would not hold.
    bool follow_centres() {
        const Centres<R>& centres = shared_.centres;
        const Frame<R>& frame = centres.frame();
        const Slack slack = Slack::of<R>(x_.d, x_.d, centres.norm_terms(), frame.exponent);
        const double first = centres.norm2(0), second = centres.norm2(1);
        if (!centres.in_range() || !slack.holds()) return false;
        double step2 = 0, product = 0;
        for (Size f = 0; f < x_.d; ++f) {
            const double w =
                (double(centres.derived(0, f)) - double(centres.derived(1, f))) * frame.scale();
            const double step = w - w_[std::size_t(f)];
            step2 += step * step;
            product += double(reference_[std::size_t(f)]) * frame.scale() * w;
            w_[std::size_t(f)] = w;
        }
        const double length = (std::sqrt(first) + std::sqrt(second)) * up;
        if (!started_) unit_ = std::ldexp(1.0, length > 0 ? -std::ilogb(length) : 0);
        normal_drift_ += ((started_ ? std::sqrt(step2) : 0.0) + length * 0x1p-48) * up;
        started_ = true;
        gap_at_m_ = product - 0.5 * (first - second);
        // Computed gaps have an error of at most per_radius_ * |x - m| + constant_.
        const double rounding = 2 * slack.gamma() + double(x_.d + 16) * 0x1p-50;
        per_radius_ = rounding * length + 2 * (slack.underflow(1) - slack.underflow(0));
        constant_ = rounding * (reference_length_ + length) * length +
                    2 * slack.underflow(reference_length_);
        return std::isfinite(normal_drift_) && std::isfinite(constant_) && std::isfinite(gap_at_m_);
    }

    // Labels the rows whose label may have changed, and updates the sums.
    Size assign(std::int32_t* labels) {
        const HeldPanels<R> panels = shared_.layouts.panels(shared_.centres, true, threads_);
        // A row keeps its label if gap_ > radius_ * slope + level of the label.
        const float slope = round_up((normal_drift_ + per_radius_) * unit_ * widen);
        std::array<float, 2> level;
        for (int label = 0; label < 2; ++label) {
            const double own = (constant_ - (label ? -gap_at_m_ : gap_at_m_)) * unit_ * unit_;
            level[std::size_t(label)] = round_up(own + std::abs(own) * (widen - 1));
        }
        threads_.ranges(x_.n, cost::bisection_rows_per_task, [&](Size begin, Size end, int worker) {
            Worker& own = worker_of(worker);
            own.survivors.resize(std::size_t(end - begin));
            Size count = 0;
            for (Size i = begin; i < end; ++i) {
                own.survivors[std::size_t(count)] = i;
                const float least = radius_[std::size_t(i)] * slope + level[labels[i] == 1];
                count += !(gap_[std::size_t(i)] > least);
            }
            for (Size t = 0; t < count; t += tile_rows) {
                const Size past = std::min(t + tile_rows, count);
                for (Size next = past; next < std::min(past + tile_rows, count); ++next)
                    x_.prefetch(own.survivors[std::size_t(next)]);
                score(own, panels, own.survivors.data() + t, past - t, labels);
            }
        });
        Size changed = 0;
        for (Worker& own : workers_) {
            if (own.changed) sums_.add(*own.sums);
            if (own.changed) own.sums->reset();
            changed += std::exchange(own.changed, 0);
        }
        return changed;
    }

    struct alignas(64) Worker {
        AllScores<DenseRows<R>> scores;
        std::vector<Size> survivors;      // rows to score
        std::vector<std::int32_t> picks;  // positions in the data of the rows of a tile
        std::unique_ptr<Sums> sums;       // of the rows whose label changed: the change of the sums
        Size changed = 0;
    };
    Worker& worker_of(int worker) {
        Worker& own = workers_[std::size_t(worker)];
        if (!own.sums)
            own.sums = std::make_unique<Sums>(2, x_.d, sums_.grid(), sums_.weight_grid());
        return own;
    }

    // Labels a tile of rows by canonical scores.
    void score(Worker& own, const HeldPanels<R>& panels, const Size* rows, Size count,
               std::int32_t* labels) {
        const double scale = shared_.centres.frame().scale();
        own.picks.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t)
            own.picks[std::size_t(t)] = x_.picks ? x_.picks[rows[t]] : std::int32_t(rows[t]);
        DenseRows<R> tile = x_;
        tile.picks = own.picks.data();
        own.scores.run(tile, shared_.centres, panels, 0, nullptr, count);
        for (Size t = 0; t < count; ++t) {
            const Size i = rows[t];
            const double gap = double(own.scores.of_row(t)[1]) - double(own.scores.of_row(t)[0]);
            const std::int32_t label = gap < 0, before = labels[i];
            float& radius = radius_[std::size_t(i)];
            if (before < 0) {
                const double step2 = vector_kernels<R>().step2(
                    own.scores.values(t), reference_.data(), nullptr, x_.d, scale);
                radius = round_up(std::sqrt(step2) * unit_ * widen) + tiny;
            }
            const double at = double(radius) / unit_;
            const double least = std::abs(gap) - at * per_radius_ - constant_,
                         moved = at * normal_drift_, offset = label ? -gap_at_m_ : gap_at_m_;
            const double bound =
                least + moved - offset - 0x1p-48 * (std::abs(gap) + moved + std::abs(gap_at_m_));
            gap_[std::size_t(i)] = round_down(bound * unit_ * unit_) - tiny;
            if (label == before) continue;
            if (before >= 0) own.sums->move(x_, i, before, -1.0);
            own.sums->move(x_, i, label, 1.0);
            labels[i] = label;
            ++own.changed;
        }
    }

    void measure_inertia(const std::int32_t* labels) {
        const Centres<R>& centres = shared_.centres;
        const int exponent = centres.frame().exponent;
        std::vector<std::array<ExactSum, 2>> cost(workers_.size());
        for_own_distances(
            x_, Points<R>(centres.master(), 2, x_.d, exponent), labels, threads_,
            [&](Size i, double d2, int worker) {
                if (x_.weight(i) > 0)
                    cost[std::size_t(worker)][std::size_t(labels[i])].add(x_.weight(i) * d2);
            });
        for (std::size_t j = 0; j < 2; ++j) {
            for (std::size_t w = 1; w < cost.size(); ++w) cost[0][j].add(cost[w][j]);
            inertia[j] = std::ldexp(cost[0][j].value(), -2 * exponent);
        }
    }

    static constexpr double up = 1 + 0x1p-40;
    // More than the roundings of a bound in float32.
    static constexpr double widen = 1 + 0x1p-20;
    static constexpr float tiny = std::numeric_limits<float>::min();

    DenseRows<R> x_;
    SharedCentres<R>& shared_;
    Sums& sums_;
    const double* origin_;
    const Threads& threads_;
    std::vector<R> reference_;  // m, shifted like the rows
    double reference_length_ = 0;
    std::vector<float> radius_, gap_;  // times unit_, and its square
    std::vector<double> w_;
    bool started_ = false;  // w_ is known
    double unit_ = 1, normal_drift_ = 0, gap_at_m_ = 0;
    double per_radius_ = 0, constant_ = 0;
    std::vector<Worker> workers_;
};

}  // namespace exactmeans
