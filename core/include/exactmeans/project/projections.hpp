// Shadows of rows and centres (project/axes.hpp): a few coordinates in place of many. Distances of
// shadows are lower bounds, found by the same kernels in fewer dimensions, and rule most groups of
// centres out before a row itself is looked at.
//
// Shadows are float32, whatever the rows are, and in units of the block (kernels/bounds.hpp). What
// rounding does to them is in docs/numerics.md ("Shadows"). Memory: 4 (m + 4) bytes per row.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/centres/groups.hpp"
#include "exactmeans/project/axes.hpp"
#include "exactmeans/scan/scan.hpp"

namespace exactmeans {

template <class R>
class Projections {
public:
    // One thread's buffers for comparisons, and what they say: row ids[t] is at least far[t] away.
    struct Buffers {
        std::vector<const float*> row{};
        std::vector<std::int32_t> label{};
        std::vector<float> score{}, second{}, far{};
    };

    // unit: of the bounds, on the frame's scale
    Projections(const Work<DenseRows<R>>& work, double unit, const Threads& threads)
        : scale_(work.centroids.frame().scale() * unit),
          axes_(sample(work), std::min(sampled, work.x.n), work.x.d),
          m_(axes_.coordinates()) {
        const Size n = work.x.n, d = work.x.d;
        rows_.resize(std::size_t(n * m_));
        norm2_.resize(std::size_t(n));
        norm_.resize(std::size_t(n));
        gamma_.assign(std::size_t(n), round_up(Slack::of<float>(m_, m_, 1, 0).gamma()));
        threads.ranges(n, 256, [&](Size begin, Size end, int) {
            DenseTile<R> tile;
            std::vector<double> seen(static_cast<std::size_t>((end - begin) * d));
            tile.load(work.x, work.centroids.frame().shift_or_null(), begin, nullptr, end - begin);
            for (Size t = 0; t < end - begin; ++t) see(tile.rows()[t], seen.data() + t * d);
            axes_.cast(seen.data(), end - begin, rows_.data() + begin * m_);
            for (Size i = begin; i < end; ++i) {
                const double norm2 = square(rows_.data() + i * m_);
                norm2_[std::size_t(i)] = float(norm2);
                norm_[std::size_t(i)] = round_up(std::sqrt(norm2)) * up32;
            }
        });
    }

    static Size bytes_per_row(Size d) { return 4 * (std::min(Axes::most, d) + 4); }

    // Where the centres are now, in these groups.
    void update(const std::shared_ptr<const Groups<R>>& in, const Centres<R>& centroids,
                const Threads& threads) {
        if (version_ == centroids.version() && in == groups_) return;
        const Groups<R>& groups = *in;
        if (in != groups_) lay_out(groups, centroids.k());
        groups_ = in;
        threads.ranges(centroids.k(), 16, [&](Size begin, Size end, int) {
            for (Size j = begin; j < end; ++j) {
                Place& place = places_[std::size_t(j)];
                if (place.moves != centroids.moves(j)) pack(centroids, j, place);
                start_[std::size_t(place.lane)] =
                    groups.copy(j) ? std::numeric_limits<float>::infinity() : place.start;
            }
        });
        version_ = centroids.version();
    }

    // Rows against a group of centres.
    void compare(Size group, const std::vector<Size>& ids, Buffers& out) const {
        out.row.resize(ids.size());
        out.label.resize(ids.size());
        out.score.resize(ids.size());
        out.second.resize(ids.size());
        out.far.resize(ids.size());
        for (std::size_t t = 0; t < ids.size(); ++t) out.row[t] = rows_.data() + ids[t] * m_;
        score_kernels<float>().panel_dense(out.row.data(), Size(ids.size()),
                                           panels_[std::size_t(group)], 0,
                                           {out.label.data(), out.score.data(), out.second.data()});
        const ScoredRows<float> scored{
            norm2_.data(), nullptr, 1.0f, {norm_.data(), gamma_.data(), underflow, 0.0f}};
        score_kernels<float>().lower_bounds(scored, ids.data(), out.score.data(), Size(ids.size()),
                                            out.far.data());
        // The centre's shadow is off too, by a part of a distance that is at most the sum of the
        // row's and of what is bounded here.
        const float off = round_up(2 * axes_.error()), rest = round_down(1 - axes_.error());
        for (std::size_t t = 0; t < ids.size(); ++t)
            out.far[t] = (out.far[t] - off * norm_[std::size_t(ids[t])]) * rest * down32;
    }

private:
    static constexpr Size sampled = 256;
    static constexpr float underflow = 0x1p-100f;
    static constexpr double horizon = 0x1p40;  // of a centre farther out nothing is said

    // Of centre j: where its shadow stands, what it starts at, and how often it had moved then.
    struct Place {
        Size lane = 0, value = 0, width = 0, moves = -1;
        float start = 0;
    };

    double square(const float* shadow) const {
        return vector_kernels<float>().square_sum(shadow, nullptr, m_, 1.0).value();
    }

    std::vector<double> sample(const Work<DenseRows<R>>& work) const {
        const Size n = work.x.n, count = std::min(sampled, n);
        std::vector<Size> ids;
        for (Size t = 0; t < count; ++t) ids.push_back(t * n / count);
        DenseTile<R> tile;
        tile.load(work.x, work.centroids.frame().shift_or_null(), 0, ids.data(), count);
        std::vector<double> points;
        points.reserve(std::size_t(count * work.x.d));
        for (Size t = 0; t < count; ++t)
            for (Size f = 0; f < work.x.d; ++f)
                points.push_back(double(tile.rows()[t][f]) * scale_);
        return points;
    }

    // A point as seen from the origin, in units.
    void see(const R* x, double* out) const {
        for (Size f = 0; f < axes_.d(); ++f) out[f] = double(x[f]) * scale_ - axes_.origin()[f];
    }

    // Each group is a layout of one panel.
    void lay_out(const Groups<R>& groups, Size k) {
        groups_ = nullptr;
        panels_.clear();
        places_.resize(std::size_t(k));
        std::vector<Size> widths;
        Size lanes = 0;
        for (Size g = 0; g < groups.count(); ++g) {
            widths.push_back(padded<float>(groups.size(g)));
            for (Size t = 0; t < groups.size(g); ++t)
                places_[std::size_t(groups.centre(groups.first(g) + t))] = {
                    lanes + t, lanes * m_ + t, widths.back()};
            lanes += widths.back();
        }
        values_.assign(std::size_t(lanes * m_), 0.0f);
        start_.assign(std::size_t(lanes), std::numeric_limits<float>::infinity());
        Size first = 0;
        for (const Size width : widths) {
            panels_.push_back({values_.data() + first * m_, start_.data() + first, width, m_, 1});
            first += width;
        }
    }

    void pack(const Centres<R>& centroids, Size j, Place& place) {
        std::vector<R> centre(static_cast<std::size_t>(centroids.d()));
        std::vector<double> seen(centre.size());
        std::vector<float> shadow(static_cast<std::size_t>(m_));
        for (Size f = 0; f < centroids.d(); ++f) centre[std::size_t(f)] = centroids.derived(j, f);
        see(centre.data(), seen.data());
        axes_.cast(seen.data(), 1, shadow.data());
        const double norm2 = square(shadow.data());
        const bool near = norm2 < horizon * horizon;
        for (Size a = 0; a < m_; ++a)
            values_[std::size_t(place.value + a * place.width)] =
                near ? -shadow[std::size_t(a)] : 0.0f;
        place.start = near ? float(0.5 * norm2) : -float(horizon);
        place.moves = centroids.moves(j);
    }

    double scale_;
    Axes axes_;
    Size m_;
    std::vector<float> rows_, norm2_, norm_, gamma_;
    Size version_ = -1;
    std::shared_ptr<const Groups<R>> groups_;  // that the panels are laid out for
    std::vector<Place> places_;
    std::vector<Panels<float>> panels_;  // of each group
    std::vector<float> values_, start_;
};

}  // namespace exactmeans
