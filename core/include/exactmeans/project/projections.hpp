// Projections of rows and centres onto a few axes (project/axes.hpp). The score kernels compute
// distances between projections in few dimensions. These are lower bounds, which prune most groups
// of centres before the row itself is compared.
//
// Projections are float32 for every dtype of the rows, in units of the block (kernels/bounds.hpp);
// docs/proofs/projections.md bounds their rounding. Memory: 4 (m + 4) bytes per row, with m
// coordinates.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/groups.hpp"
#include "exactmeans/project/axes.hpp"
#include "exactmeans/scan/scan.hpp"

namespace exactmeans {

template <class R>
class Projections {
public:
    // Buffers of one thread for compare(), whose result is far[t]: a lower bound of the distance
    // between row ids[t] and the group.
    struct Buffers {
        std::vector<const float*> row{};
        std::vector<std::int32_t> label{};
        std::vector<float> score{}, second{}, far{};
    };

    // unit: that of the bounds, on the frame's scale (RowSlacks::unit)
    Projections(const Work<DenseRows<R>>& work, double unit, const Threads& threads)
        : scale_(work.centroids.frame().scale() * unit),
          axes_(sample(work), std::min(sampled, work.x.n), work.x.d),
          m_(axes_.coordinates()) {
        const Size n = work.x.n, d = work.x.d;
        rows_.resize(std::size_t(n * m_));
        norm2_.resize(std::size_t(n));
        norm_.resize(std::size_t(n));
        gamma_.assign(std::size_t(n), round_up(Slack::of<float>(m_, m_, 1, 0).gamma()));
        threads.ranges(n, cost::measured_rows_per_task, [&](Size begin, Size end, int) {
            DenseTile<R> tile;
            std::vector<double> centred(static_cast<std::size_t>((end - begin) * d));
            tile.load(work.x, work.centroids.frame().shift_or_null(), begin, nullptr, end - begin);
            for (Size t = 0; t < end - begin; ++t)
                centre_point(tile.rows()[t], centred.data() + t * d);
            axes_.project(centred.data(), end - begin, rows_.data() + begin * m_);
            for (Size i = begin; i < end; ++i) {
                const double norm2 = square(rows_.data() + i * m_);
                norm2_[std::size_t(i)] = float(norm2);
                norm_[std::size_t(i)] = round_up(std::sqrt(norm2)) * up32;
            }
        });
    }

    static Size bytes_per_row(Size d) { return 4 * (std::min(Axes::most, d) + 4); }

    // Projects the centres that moved since the last call, in one panel per group.
    void update(const Groups<R>& groups, const Centres<R>& centroids, const Threads& threads) {
        const bool arranged = groups.partition() == partition_;
        if (version_ == centroids.version() && arranged) return;
        version_ = -1;
        if (!arranged) lay_out(groups, centroids.k());
        partition_ = groups.partition();
        threads.ranges(centroids.k(), cost::projected_centres_per_task,
                       [&](Size begin, Size end, int) {
                           for (Size j = begin; j < end; ++j) {
                               Place& place = places_[std::size_t(j)];
                               if (place.moved_in != centroids.moved_in(j))
                                   pack(centroids, j, place);
                               score_offset_[std::size_t(place.lane)] =
                                   groups.copy(j) ? std::numeric_limits<float>::infinity()
                                                  : place.score_offset;
                           }
                       });
        version_ = centroids.version();
    }

    // Bounds the distances between rows and the centres of a group.
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
        // Both projections have an error. That of the centre is relative to |c|, which is at most
        // |x| plus the distance to be bounded.
        const float off = round_up(2 * axes_.error()), rest = round_down(1 - axes_.error());
        for (std::size_t t = 0; t < ids.size(); ++t)
            out.far[t] = (out.far[t] - off * norm_[std::size_t(ids[t])]) * rest * down32;
    }

private:
    static constexpr Size sampled = cost::projection_sampled_rows;  // they determine the axes
    static constexpr float underflow = 0x1p-100f;
    // In units. Centres with a longer projection get lower bounds that prune nothing.
    static constexpr double longest_projection = 0x1p40;

    // The position of a centre in the panels, and the version that is projected there.
    struct Place {
        Size lane = 0;       // index of its score offset
        Size value = 0;      // index of its first coordinate
        Size width = 0;      // distance between its coordinates
        Size moved_in = -1;  // Centres::moved_in when it was projected
        float score_offset = 0;
    };

    double square(const float* projection) const {
        return vector_kernels<float>().square_sum(projection, nullptr, m_, 1.0).value();
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

    // A point in units, minus the origin.
    void centre_point(const R* x, double* out) const {
        for (Size f = 0; f < axes_.d(); ++f) out[f] = double(x[f]) * scale_ - axes_.origin()[f];
    }

    // Arranges the centres in one panel per group.
    void lay_out(const Groups<R>& groups, Size k) {
        partition_ = nullptr;
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
        score_offset_.assign(std::size_t(lanes), std::numeric_limits<float>::infinity());
        Size first = 0;
        for (const Size width : widths) {
            panels_.push_back(
                {values_.data() + first * m_, score_offset_.data() + first, width, m_, 1});
            first += width;
        }
    }

    // Projects centre j into its lane.
    void pack(const Centres<R>& centroids, Size j, Place& place) {
        std::vector<R> centre(static_cast<std::size_t>(centroids.d()));
        std::vector<double> centred(centre.size());
        std::vector<float> projection(static_cast<std::size_t>(m_));
        for (Size f = 0; f < centroids.d(); ++f) centre[std::size_t(f)] = centroids.derived(j, f);
        centre_point(centre.data(), centred.data());
        axes_.project(centred.data(), 1, projection.data());
        const double norm2 = square(projection.data());
        const bool near = norm2 < longest_projection * longest_projection;
        for (Size a = 0; a < m_; ++a)
            values_[std::size_t(place.value + a * place.width)] =
                near ? -projection[std::size_t(a)] : 0.0f;
        place.score_offset = near ? float(0.5 * norm2) : -float(longest_projection);
        place.moved_in = centroids.moved_in(j);
    }

    double scale_;
    Axes axes_;
    Size m_;
    std::vector<float> rows_, norm2_, norm_, gamma_;
    Size version_ = -1;
    std::shared_ptr<const Partition<R>> partition_;  // of the current panels
    std::vector<Place> places_;
    std::vector<Panels<float>> panels_;  // one per group
    std::vector<float> values_, score_offset_;
};

}  // namespace exactmeans
