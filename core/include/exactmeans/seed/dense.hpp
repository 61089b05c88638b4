// Candidates against dense rows, a chunk of rows at a time.
//
// A pair is skipped when its distance is certain not to be below the row's: by the triangle inequality if the
// candidate is at least twice as far from the row's seed as the row is (C. Elkan, Using the triangle inequality to
// accelerate k-means, ICML 2003). What is left is measured in tiles: all candidates at once while most pairs survive,
// else one candidate against the rows it is left with. Memory: 12 bytes per row.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "exactmeans/seed/block.hpp"
#include "exactmeans/seed/patience.hpp"

namespace exactmeans {

template <class R>
class DenseSeedBlock final : public SeedBlock {
  public:
    DenseSeedBlock(const DenseRows<R>& x, double alpha) : SeedBlock(x.n, x.weights, alpha), x_(x) {}

  protected:
    void visit(SeedPoints& points, Size first, Size count, const Threads& threads) override {
        const bool triangle = points.seeds() > 1 && own_data()[0] >= 0 && triangle_.worth_a_try();
        SeedReach reach{};
        if (triangle) {
            reach.width = (count + seed_stripes - 1) / seed_stripes * seed_stripes;
            reach.gaps = points.gaps(first, count, reach.width, threads);
            // Squared distances are off by less than e = (d + 16) u, relatively; docs/numerics.md shows that 2 e are
            // enough, and what squares may lose to underflow.
            reach.factor = 4 * (1 + 4 * double(x_.d + 16) * 0x1p-53);
            reach.absolute = double(x_.d + 16) * 0x1p-1070;
        }
        scratch_.resize(std::size_t(threads.n_jobs));
        for (Scratch& scratch : scratch_) scratch.pairs = 0;
        const SeedPanel panel = points.panel(first, count);
        threads.ranges(x_.n, MassIndex::chunk, [&](Size begin, Size end, int worker) {
            Scratch& scratch = scratch_[std::size_t(worker)];
            scratch.survives.assign(std::size_t(end - begin), all(count));
            if (triangle)
                seed_kernels().reach(reach, own_data() + begin, d2_data() + begin, end - begin,
                                     scratch.survives.data());
            measure(scratch, panel, begin, end, first, worker);
        });
        if (triangle) {
            Size pairs = 0;
            for (const Scratch& scratch : scratch_) pairs += scratch.pairs;
            triangle_.judge(double(pairs) < 0.7 * double(x_.n) * double(count));
        }
    }

    double nearest_seed2(SeedPoints& points, Size i, Size from) override {
        DenseTile<R> tile;
        tile.load(x_, nullptr, i, nullptr, 1);
        double nearest = std::numeric_limits<double>::infinity();
        std::vector<double> out(static_cast<std::size_t>(points.seeds() - from));
        seed_kernels().distances2(tile.rows(), 1, points.seed_panel(from, points.seeds() - from), out.data());
        for (const double d2 : out) nearest = std::min(nearest, d2);
        return nearest;
    }

  private:
    static constexpr Size tile_rows = 64;

    struct alignas(64) Scratch {
        std::vector<std::uint32_t> survives;
        std::vector<Size> ids;
        DenseTile<R> tile;
        double out[tile_rows * most_points];
        Size pairs = 0;
    };

    static std::uint32_t all(Size count) { return ~std::uint32_t(0) >> (32 - count); }

    // Chunk [begin, end): pairs with their bit set.
    void measure(Scratch& scratch, const SeedPanel& panel, Size begin, Size end, Size first, int worker) {
        const std::uint32_t* survives = scratch.survives.data();
        scratch.ids.clear();
        Size pairs = 0;
        for (Size i = begin; i < end; ++i) {
            pairs += std::popcount(survives[i - begin]);
            if (survives[i - begin]) scratch.ids.push_back(i);
        }
        scratch.pairs += pairs;
        if (2 * pairs >= Size(scratch.ids.size()) * panel.count) {
            tiles(scratch, panel, [&](Size i, Size s, double d2) { found(worker, i, first + s, first, d2); });
            return;
        }
        for (Size s = 0; s < panel.count; ++s) {
            scratch.ids.clear();
            for (Size i = begin; i < end; ++i)
                if ((survives[i - begin] >> s) & 1) scratch.ids.push_back(i);
            SeedPanel one = panel;
            one.points += s * panel.pitch;
            one.count = 1;
            tiles(scratch, one, [&](Size i, Size, double d2) { found(worker, i, first + s, first, d2); });
        }
    }

    // The rows of scratch.ids against the panel; nearer(row, point, d2) for those that come nearer.
    template <class Fn>
    void tiles(Scratch& scratch, const SeedPanel& panel, Fn nearer) {
        const Size n = Size(scratch.ids.size());
        for (Size begin = 0; begin < n; begin += tile_rows) {
            const Size rows = std::min(tile_rows, n - begin);
            const Size* ids = scratch.ids.data() + begin;
            scratch.tile.load(x_, nullptr, 0, ids, rows);
            seed_kernels().distances2(scratch.tile.rows(), rows, panel, scratch.out);
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
    std::vector<Scratch> scratch_;
    Patience triangle_;
};

}  // namespace exactmeans
