// Candidates against CSR rows through their transpose: only rows that share a feature with a
// candidate are touched feature by feature; all others are at |x|^2 + |s|^2, found by one pass over
// numbers.
//
// Rows that are directions keep |x| times the squared distance of the unit vectors, 2|x| - 2 x.s:
// the same additions, and no row has to be divided by its length.
//
// Later, when rows are near their seeds, features that many rows share are left out at first: their
// part of a product is bounded by norms (Cauchy-Schwarz), which rules most rows out, and the few
// that remain are measured one by one. What is shared by many weighs little and costs most.
//
// Products are added up in ascending order of features, as in a row's own norm, so that equal rows
// are at distance exactly 0. Memory: that of data/transposed_rows.hpp and 28 bytes per row.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/data/transposed_rows.hpp"
#include "exactmeans/seed/block.hpp"

namespace exactmeans {

template <class R, class I>
class CsrSeedBlock final : public SeedBlock {
public:
    // passing: rows are not kept in memory, and transposing them at each visit would not pay.
    CsrSeedBlock(const CsrRows<R, I>& x, Measure measure, double scale, const Threads& threads,
                 bool passing = false)
        : SeedBlock(x.n, x.weights, {measure.alpha, measure.metric, x.norms}),
          x_(x),
          norm2_(static_cast<std::size_t>(x.n)) {
        if (!passing) transposed_ = std::make_unique<TransposedRows<R>>(x, threads);
        threads.ranges(x.n, 1024, [&](Size begin, Size end, int) {
            for (Size i = begin; i < end; ++i) norm2_[std::size_t(i)] = norm2(i, scale);
        });
    }

protected:
    void set_rows(const AnyRows& rows) override {
        x_ = same_size(std::get<CsrRows<R, I>>(rows), x_);
    }
    void drop_rows() override {
        x_.data = nullptr;
        scratch_ = {};
    }

    void visit(SeedPoints& points, Size first, Size count, const Threads& threads) override {
        if (!transposed_) return visit_rows(points, first, count, threads);
        scratch_.resize(std::size_t(threads.n_jobs));
        for (Scratch& scratch : scratch_) scratch.prepare(transposed_->slab_rows(), x_.d);
        const bool in_two_steps = promising(points, first, threads);
        threads.run(Size(transposed_->slabs().size()), [&](Size slab, int worker) {
            Scratch& scratch = scratch_[std::size_t(worker)];
            for (Size s = first; s < first + count; ++s) {
                const auto nearer = [&](Size i, double d2) {
                    found(worker, i, s, first, cleared(i, d2));
                };
                if (in_two_steps)
                    sift(transposed_->slabs()[std::size_t(slab)], points.sparse_point(s),
                         points.scale(), scratch, nearer);
                else
                    measure(transposed_->slabs()[std::size_t(slab)], points.sparse_point(s),
                            points.scale(), scratch, nearer);
            }
        });
        Size sifted = 0;
        for (const Scratch& scratch : scratch_) sifted += scratch.sifted;
        this->count(in_two_steps ? sifted : x_.n * count);
    }

    double nearest_seed2(SeedPoints& points, Size i) override {
        double nearest = std::numeric_limits<double>::infinity();
        for (Size j = 0; j < points.seeds(); ++j)
            nearest = std::min(nearest, distance2(i, points.sparse_seed(j), points.scale()));
        return cleared(i, nearest);
    }

private:
    static constexpr Size frequent_share = 16;

    using Slab = typename TransposedRows<R>::Slab;
    struct alignas(64) Scratch {
        std::vector<double> dot, d2;
        std::vector<std::uint32_t> rows;
        std::vector<double> point;  // spread out over all features, else 0
        Size sifted = 0;

        void prepare(Size slab_rows, Size d) {
            dot.resize(std::size_t(slab_rows), 0.0);
            rows.resize(std::size_t(slab_rows + seed_stripes));
            d2.resize(std::size_t(slab_rows + seed_stripes));
            point.resize(std::size_t(d), 0.0);
            sifted = 0;
        }
    };

    // Row by row against a candidate that is spread out.
    void visit_rows(SeedPoints& points, Size first, Size count, const Threads& threads) {
        std::vector<double> spread(static_cast<std::size_t>(x_.d), 0.0);
        for (Size s = first; s < first + count; ++s) {
            const SparsePoint& point = points.sparse_point(s);
            for (std::size_t p = 0; p < point.index.size(); ++p)
                spread[std::size_t(point.index[p])] = point.value[p];
            threads.ranges(x_.n, WeightIndex::chunk, [&](Size begin, Size end, int worker) {
                for (Size i = begin; i < end; ++i) {
                    const double d2 = distance2(i, spread.data(), point.norm2, points.scale());
                    if (d2 < d2_data()[i]) found(worker, i, s, first, cleared(i, d2));
                }
            });
            for (const Size f : point.index) spread[std::size_t(f)] = 0;
        }
        this->count(x_.n * count);
    }

    // What is left of a direction that is a seed's is rounding, since that was divided by its
    // length.
    double cleared(Size i, double d2) const {
        if (!x_.norms) return d2;
        const double rounding = double(x_.row(i).nonzeros + 8) * 0x1p-51;
        return d2 > rounding * norm2_[std::size_t(i)] ? d2 : 0.0;
    }

    // |x|^2; of a direction 2|x|, to which unit vectors add nothing (see SeedPoints).
    double norm2(Size i, double scale) const {
        if (x_.norms) return 2 * x_.norms[i] * scale;
        const auto row = x_.row(i);
        double sum = 0;
        for (Size t = 0; t < row.nonzeros; ++t) {
            const double value = double(row.value[t]) * scale;
            sum += value * value;
        }
        return sum;
    }

    double distance2(Size i, const SparsePoint& point, double scale) const {
        const auto row = x_.row(i);
        double dot = 0;
        std::size_t p = 0;
        for (Size t = 0; t < row.nonzeros; ++t) {
            while (p < point.index.size() && point.index[p] < Size(row.index[t])) ++p;
            if (p == point.index.size()) break;
            if (point.index[p] == Size(row.index[t]))
                dot += double(row.value[t]) * scale * point.value[p];
        }
        return std::max(0.0, (norm2_[std::size_t(i)] + point.norm2) - (dot + dot));
    }

    // The same additions, with the point spread out.
    double distance2(Size i, const double* point, double point_norm2, double scale) const {
        const auto row = x_.row(i);
        double dot = 0;
        for (Size t = 0; t < row.nonzeros; ++t)
            dot += double(row.value[t]) * scale * point[row.index[t]];
        return std::max(0.0, (norm2_[std::size_t(i)] + point_norm2) - (dot + dot));
    }

    template <class Fn>
    void measure(const Slab& slab, const SparsePoint& point, double scale, Scratch& scratch,
                 Fn nearer) const {
        double* dot = scratch.dot.data();
        slab.walk(point.index, [&](std::size_t p, std::size_t f) {
            add_products(slab, f, point.value[p], scale, dot);
        });
        const Size found = seed_kernels().improved(norm2_.data() + slab.begin, point.norm2, dot,
                                                   d2_data() + slab.begin, slab.end - slab.begin,
                                                   scratch.rows.data(), scratch.d2.data());
        for (Size t = 0; t < found; ++t)
            nearer(slab.begin + Size(scratch.rows[std::size_t(t)]), scratch.d2[std::size_t(t)]);
    }

    // Would leaving out frequent features at first rule out most rows? Asked of one slab and one
    // point. A row measured by itself costs some ten times its share of a pass over all.
    bool promising(SeedPoints& points, Size first, const Threads& threads) {
        if (points.seeds() < 64 || !two_steps_.worth_a_try()) return false;
        if (frequent_.empty()) find_frequent(points.scale(), threads);
        const Slab& slab = transposed_->slabs()[0];
        const Size left = reachable(slab, points.sparse_point(first), points.scale(), scratch_[0]);
        const bool paid = 25 * left < slab.end - slab.begin;
        two_steps_.judge(paid);
        return paid;
    }

    // Rows that products with rare features do not rule out, into scratch.rows.
    Size reachable(const Slab& slab, const SparsePoint& point, double scale,
                   Scratch& scratch) const {
        double frequent2 = 0;
        slab.walk(point.index, [&](std::size_t p, std::size_t f) {
            if (is_frequent_[f])
                frequent2 += point.value[p] * point.value[p];
            else
                add_products(slab, f, point.value[p], scale, scratch.dot.data());
        });
        const SparseTest test{norm2_.data() + slab.begin, frequent_.data() + slab.begin,
                              point.norm2, std::sqrt(frequent2) * (1 + 0x1p-40), keep_};
        return seed_kernels().reachable(test, scratch.dot.data(), d2_data() + slab.begin,
                                        slab.end - slab.begin, scratch.rows.data());
    }

    // Rare features first, then whole rows where that does not settle it.
    template <class Fn>
    void sift(const Slab& slab, const SparsePoint& point, double scale, Scratch& scratch,
              Fn nearer) const {
        const Size left = reachable(slab, point, scale, scratch);
        scratch.sifted += left;
        if (!left) return;
        for (std::size_t p = 0; p < point.index.size(); ++p)
            scratch.point[std::size_t(point.index[p])] = point.value[p];
        for (Size t = 0; t < left; ++t) {
            const Size i = slab.begin + Size(scratch.rows[std::size_t(t)]);
            const double d2 = distance2(i, scratch.point.data(), point.norm2, scale);
            if (d2 < d2_data()[i]) nearer(i, d2);
        }
        for (const Size f : point.index) scratch.point[std::size_t(f)] = 0;
    }

    static void add_products(const Slab& slab, std::size_t f, double factor, double scale,
                             double* dot) {
        const std::uint32_t end = slab.offsets[f + 1];
        if (scale == 1)
            for (std::uint32_t t = slab.offsets[f]; t < end; ++t)
                dot[slab.row[t]] += double(slab.value[t]) * factor;
        else
            for (std::uint32_t t = slab.offsets[f]; t < end; ++t)
                dot[slab.row[t]] += double(slab.value[t]) * scale * factor;
    }

    // Features of more than one row in `frequent_share`, and the norm of each row's part of them.
    void find_frequent(double scale, const Threads& threads) {
        is_frequent_.assign(std::size_t(x_.d), 0);
        for (std::size_t f = 0; f < is_frequent_.size(); ++f) {
            Size rows = 0;
            for (const Slab& slab : transposed_->slabs())
                rows += slab.offsets[f + 1] - slab.offsets[f];
            is_frequent_[f] = rows * frequent_share > x_.n;
        }
        frequent_.resize(std::size_t(x_.n));
        std::vector<Size> longest(std::size_t(threads.n_jobs), 0);
        threads.ranges(x_.n, 1024, [&](Size begin, Size end, int worker) {
            for (Size i = begin; i < end; ++i) {
                const auto row = x_.row(i);
                // Squares of directions stay in range when those of rows would not.
                const double norm = x_.norms && x_.norms[i] > 0 ? x_.norms[i] : 1.0;
                double sum = 0;
                for (Size t = 0; t < row.nonzeros; ++t) {
                    const double value = double(row.value[t]) * scale / norm;
                    if (is_frequent_[std::size_t(row.index[t])]) sum += value * value;
                }
                frequent_[std::size_t(i)] =
                    std::sqrt(sum) * norm * (1 + double(row.nonzeros + 6) * 0x1p-52);
                longest[std::size_t(worker)] = std::max(longest[std::size_t(worker)], row.nonzeros);
            }
        });
        // Products of m terms are off by (m + 2) u |x| |s| at most, twice: docs/numerics.md.
        keep_ = 1 - 8 * double(*std::max_element(longest.begin(), longest.end()) + 8) * 0x1p-53;
    }

    CsrRows<R, I> x_;
    std::vector<double> norm2_;
    std::unique_ptr<TransposedRows<R>> transposed_;
    std::vector<double> frequent_;  // norms of the rows' frequent features
    std::vector<char> is_frequent_;
    double keep_ = 1;
    Backoff two_steps_;
    std::vector<Scratch> scratch_;
};

}  // namespace exactmeans
