// Distances between candidates and dense rows, a chunk of rows at a time.
//
// A pair of a row and a candidate is pruned if the candidate is certain not to be nearer to the row
// than its seed: by the triangle inequality, if the candidate is at least twice as far from the
// seed as the row is (C. Elkan, Using the triangle inequality to accelerate k-means, ICML 2003), or
// by projections (projection.hpp), first along axes and then by features. Distances are computed in
// tiles: of all candidates if most pairs of a chunk of rows survive, else of the surviving pairs
// only. Memory: 12 bytes per row, and those of clusters.hpp and projection.hpp if used.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/seed/block.hpp"
#include "exactmeans/seed/clusters.hpp"
#include "exactmeans/seed/projection.hpp"

namespace exactmeans {

template <class R>
class DenseSeedBlock final : public SeedBlock {
public:
    // streamed: rows are not kept in memory, so they are not listed by seed (clusters.hpp).
    DenseSeedBlock(const DenseRows<R>& x, Measure measure, bool streamed = false)
        : SeedBlock(x.n, x.weights, measure), x_(x), streamed_(streamed) {}

    void project(Projection projection, const Threads& threads) override {
        if (!projection.usable()) return;
        auto& owned = projection.along_axes() ? axes_ : features_;
        owned = std::make_unique<Projection>(std::move(projection));
        owned->project(x_, threads);
        for (Size i = 0; i < x_.n; ++i) owned->set_near(i, d2_data()[i]);
        if (axes_ && features_) features_->lay_by_row(threads);
    }

protected:
    void set_rows(const AnyRows& rows) override {
        x_ = same_size(std::get<DenseRows<R>>(rows), x_);
    }
    void drop_rows() override {
        x_.data = nullptr;
        scratch_ = {};
    }

    void visit(SeedPoints& points, Size first, Size count, const Threads& threads) override {
        // Projections prune all pairs that the triangle inequality prunes, and more.
        const bool triangle =
            !axes_ && !features_ && own_known() && points.seeds() > 1 && triangle_.due();
        Batch batch{points.panel(first, count), first, {}, {}, {}};
        if (triangle) batch.reach = reach_of(points, first, count, threads);
        if (Projection* projection = first_projection())
            batch.first_bounds = projection->candidates(batch.panel);
        if (axes_ && features_) batch.second_bounds = features_->candidates(batch.panel);
        scratch_.resize(std::size_t(threads.n_jobs));
        for (Scratch& scratch : scratch_) scratch.pairs = 0;
        if (!triangle || !evaluating()) clusters_.clear();
        if (clusters_.active())
            visit_clusters(batch, threads);
        else
            visit_all(batch, threads);
        Size pairs = 0;
        for (const Scratch& scratch : scratch_) pairs += scratch.pairs;
        this->count(pairs);
        if (!triangle) return;
        triangle_.record(double(pairs) < cost::triangle_share * double(x_.n) * double(count));
        const bool was_active = clusters_.active();
        if (was_active && cost::unlisted_share * pairs > x_.n) clusters_.clear();
        if (!streamed_ && !was_active && evaluating() &&
            cost::listed_share * pairs < count * x_.n && x_.n >= cost::listed_rows)
            clusters_.build(own_data(), d2_data(), x_.n, points.seeds());
    }
    bool one_worker_per_chunk() const override { return !clusters_.active(); }
    void before_update(Size i, std::int32_t seed, double d2) override {
        if (clusters_.active()) clusters_.move(i, own_data()[i], seed, d2);
        for (Projection* projection : {axes_.get(), features_.get()})
            if (projection) projection->set_near(i, d2);
    }

    double nearest_seed2(SeedPoints& points, Size i) override {
        SeedTile<R> tile;
        std::vector<double> out(static_cast<std::size_t>(points.seeds()));
        tile.distances2(x_, i, nullptr, 1, points.seed_panel(), out.data());
        return out.empty() ? std::numeric_limits<double>::infinity()
                           : *std::min_element(out.begin(), out.end());
    }

private:
    static constexpr Size tile_rows = 24;  // rows or pairs per call of the kernels

    struct alignas(64) Scratch {
        std::vector<std::uint32_t> survives;
        std::vector<Size> rows, ids, of_point;
        SeedTile<R> tile;
        double out[tile_rows * most_points];
        Size pairs = 0;
    };
    // Candidates from number `first` on, with their distances to the seeds and their projections,
    // if these are used.
    struct Batch {
        SeedPanel panel;
        Size first;
        std::optional<SeedReach> reach;
        std::optional<SeedBounds> first_bounds, second_bounds;
    };

    // std::popcount is a function call if the target may lack the instruction.
    static Size bits_in(std::uint32_t bits) {
        bits -= (bits >> 1) & 0x55555555u;
        bits = (bits & 0x33333333u) + ((bits >> 2) & 0x33333333u);
        return Size((((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24);
    }
    static std::uint32_t low_bits(Size count) { return ~std::uint32_t(0) >> (32 - count); }

    // Squared distances have a relative error below e = (d + 16) u. docs/proofs/seeding.md proves
    // that a margin of 2 e suffices, and bounds underflow.
    SeedReach reach_of(SeedPoints& points, Size first, Size count, const Threads& threads) const {
        const Size width = (count + seed_stripes - 1) / seed_stripes * seed_stripes;
        return {points.seed_distances2(first, count, width, threads), width,
                4 * (1 + 4 * double(x_.d + 16) * 0x1p-53), double(x_.d + 16) * 0x1p-1070};
    }

    void visit_clusters(const Batch& batch, const Threads& threads) {
        clusters_.visit(*batch.reach, batch.panel.count, own_data(), threads,
                        [&](const Size* ids, Size n, Size s, int worker) {
                            Scratch& scratch = scratch_[std::size_t(worker)];
                            scratch.pairs += n;
                            tiles(scratch, ids, n, one(batch.panel, s),
                                  [&](Size i, Size, double d2) {
                                      report_nearer(worker, i, batch.first + s, batch.first, d2);
                                  });
                        });
    }

    void visit_all(const Batch& batch, const Threads& threads) {
        threads.ranges(x_.n, WeightIndex::chunk, [&](Size begin, Size end, int worker) {
            Scratch& scratch = scratch_[std::size_t(worker)];
            scratch.survives.assign(std::size_t(WeightIndex::chunk),
                                    batch.first_bounds ? 0 : low_bits(batch.panel.count));
            if (batch.reach)
                seed_kernels().reach(*batch.reach, own_data() + begin, d2_data() + begin,
                                     end - begin, scratch.survives.data());
            if (batch.first_bounds) prune_tiles(scratch, *batch.first_bounds, begin, end);
            list_rows(scratch, begin, end);
            if (batch.second_bounds) prune_rows(scratch, *batch.second_bounds, begin);
            measure(scratch, batch, begin, worker);
        });
    }

    // Lists the rows of chunk [begin, end) with a surviving pair.
    static void list_rows(Scratch& scratch, Size begin, Size end) {
        scratch.rows.clear();
        for (Size i = begin; i < end; ++i)
            if (scratch.survives[std::size_t(i - begin)]) scratch.rows.push_back(i);
    }

    // The projection that bounds all rows.
    Projection* first_projection() const { return axes_ ? axes_.get() : features_.get(); }

    void prune_tiles(Scratch& scratch, const SeedBounds& bounds, Size begin, Size end) const {
        static_assert(WeightIndex::chunk % bound_rows == 0);
        const Projection& projection = *first_projection();
        for (Size i = begin; i < end; i += bound_rows)
            seed_kernels().bounds(bounds, projection.tile(i / bound_rows),
                                  scratch.survives.data() + (i - begin));
    }

    // Keeps in the list the rows with a pair that survives the second projection.
    void prune_rows(Scratch& scratch, const SeedBounds& bounds, Size begin) const {
        constexpr std::size_t ahead = std::size_t(cost::seed_rows_ahead);
        std::vector<Size>& rows = scratch.rows;
        std::size_t kept = 0;
        for (std::size_t t = 0; t < rows.size(); ++t) {
            if (t + ahead < rows.size()) features_->prefetch(rows[t + ahead]);
            std::uint32_t& bits = scratch.survives[std::size_t(rows[t] - begin)];
            bits = seed_kernels().row_bounds(bounds, features_->row(rows[t]), bits);
            if (bits) rows[kept++] = rows[t];
        }
        rows.resize(kept);
    }

    // Computes the distances of the surviving pairs.
    void measure(Scratch& scratch, const Batch& batch, Size begin, int worker) {
        const std::vector<Size>& rows = scratch.rows;
        const auto bits_of = [&](Size i) { return scratch.survives[std::size_t(i - begin)]; };
        Size pairs = 0;
        for (const Size i : rows) pairs += bits_in(bits_of(i));
        scratch.pairs += pairs;
        const auto report = [&](Size i, Size s, double d2) {
            report_nearer(worker, i, batch.first + s, batch.first, d2);
        };
        if (2 * pairs >= Size(rows.size()) * batch.panel.count)
            return tiles(scratch, rows.data(), Size(rows.size()), batch.panel, report);
        std::vector<Size>&ids = scratch.ids, &of_point = scratch.of_point;
        ids.clear();
        of_point.clear();
        for (const Size i : rows)
            for (std::uint32_t bits = bits_of(i); bits; bits &= bits - 1) {
                ids.push_back(i);
                of_point.push_back(std::countr_zero(bits));
            }
        for (Size t = 0; t < pairs; t += tile_rows) {
            const Size n = std::min(tile_rows, pairs - t);
            prefetch(ids.data(), t + n, pairs);
            scratch.tile.pairs2(x_, ids.data() + t, of_point.data() + t, n, batch.panel,
                                scratch.out);
            for (Size p = 0; p < n; ++p)
                if (scratch.out[p] < d2_data()[ids[std::size_t(t + p)]])
                    report(ids[std::size_t(t + p)], of_point[std::size_t(t + p)], scratch.out[p]);
        }
    }

    // Prefetches the beginnings of the rows of the next tile, which are not contiguous in memory.
    void prefetch(const Size* ids, Size begin, Size end) const {
        for (Size t = begin; t < std::min(end, begin + tile_rows); ++t) {
            const char* row = reinterpret_cast<const char*>(x_.row(ids[t]));
            for (Size at = 0;
                 at < std::min<Size>(cost::seed_prefetch_bytes, x_.d * Size(sizeof(R))); at += 64)
                __builtin_prefetch(row + at);
        }
    }

    static SeedPanel one(SeedPanel panel, Size s) {
        panel.points += s * panel.pitch;
        panel.count = 1;
        return panel;
    }

    // Compares rows `all` with the panel; calls nearer(row, point, d2) for points nearer than the
    // seed.
    template <class Fn>
    void tiles(Scratch& scratch, const Size* all, Size n, const SeedPanel& panel, Fn nearer) {
        for (Size begin = 0; begin < n; begin += tile_rows) {
            const Size rows = std::min(tile_rows, n - begin);
            const Size* ids = all + begin;
            prefetch(all, begin + rows, n);
            scratch.tile.distances2(x_, 0, ids, rows, panel, scratch.out);
            for (Size t = 0; t < rows; ++t) {
                const double d2 = d2_data()[ids[t]];
                for (Size s = 0; s < panel.count; ++s) {
                    const double other = scratch.out[t * panel.count + s];
                    if (other < d2) nearer(ids[t], s, other);
                }
            }
        }
    }

    DenseRows<R> x_;
    bool streamed_;
    std::vector<Scratch> scratch_;
    Backoff triangle_{cost::seed_wait, cost::seed_longest_wait};
    SeedClusters clusters_;
    std::unique_ptr<Projection> axes_, features_;
};

}  // namespace exactmeans
