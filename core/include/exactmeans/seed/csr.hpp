// Distances between candidates and CSR rows, by the transposed rows: products are computed only for
// rows that share a feature with the candidate. All others have squared distance |x|^2 + |s|^2,
// from one pass over the norms.
//
// For directions, d2 is |x| times the squared distance of the unit vectors, 2|x| - 2 x.s: the same
// operations, without dividing each row by its length.
//
// Frequent features have small values and cost the most. Once rows are near their seeds, a
// prefilter leaves these features out and bounds their part of the product by norms
// (Cauchy-Schwarz), which prunes most rows. Distances of the few survivors are computed row by row.
//
// Products are summed in ascending order of features, like the norm of the row, so that equal rows
// have distance exactly 0. Memory: that of data/transposed_rows.hpp, and 28 bytes per row.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/transposed_rows.hpp"
#include "exactmeans/seed/block.hpp"

namespace exactmeans {

template <class R, class I>
class CsrSeedBlock final : public SeedBlock {
public:
    // row_by_row: rows are not transposed, but compared one by one. For few seeds, and for rows
    // that are not kept in memory, which would have to be transposed in each visit.
    CsrSeedBlock(const CsrRows<R, I>& x, Measure measure, double scale, const Threads& threads,
                 bool row_by_row = false)
        : SeedBlock(x.n, x.weights, {measure.alpha, measure.metric, x.norms}),
          x_(x),
          norm2_(static_cast<std::size_t>(x.n)) {
        if (!row_by_row) transposed_ = std::make_unique<TransposedRows<R>>(x, threads);
        threads.ranges(x.n, cost::read_rows_per_task, [&](Size begin, Size end, int) {
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
        const bool prefilter = prefilter_pays(points, first, threads);
        threads.run(Size(transposed_->slabs().size()), [&](Size slab, int worker) {
            Scratch& scratch = scratch_[std::size_t(worker)];
            for (Size s = first; s < first + count; ++s) {
                const auto nearer = [&](Size i, double d2) {
                    report_nearer(worker, i, s, first, without_rounding(i, d2));
                };
                if (prefilter)
                    measure_survivors(transposed_->slabs()[std::size_t(slab)],
                                      points.sparse_point(s), points.scale(), scratch, nearer);
                else
                    measure(transposed_->slabs()[std::size_t(slab)], points.sparse_point(s),
                            points.scale(), scratch, nearer);
            }
        });
        Size survivors = 0;
        for (const Scratch& scratch : scratch_) survivors += scratch.survivors;
        this->count(prefilter ? survivors : x_.n * count);
    }

    double nearest_seed2(SeedPoints& points, Size i) override {
        double nearest = std::numeric_limits<double>::infinity();
        for (Size j = 0; j < points.seeds(); ++j)
            nearest = std::min(nearest, distance2(i, points.sparse_seed(j), points.scale()));
        return without_rounding(i, nearest);
    }

private:
    using Slab = typename TransposedRows<R>::Slab;
    struct alignas(64) Scratch {
        std::vector<double> dot, d2;
        std::vector<std::uint32_t> rows;
        std::vector<double> point;  // a scattered candidate; zero between calls
        Size survivors = 0;

        void prepare(Size slab_rows, Size d) {
            dot.resize(std::size_t(slab_rows), 0.0);
            rows.resize(std::size_t(slab_rows + seed_stripes));
            d2.resize(std::size_t(slab_rows + seed_stripes));
            point.resize(std::size_t(d), 0.0);
            survivors = 0;
        }
    };

    // Compares row by row with a candidate that is scattered into a dense vector.
    void visit_rows(SeedPoints& points, Size first, Size count, const Threads& threads) {
        std::vector<double> scattered(static_cast<std::size_t>(x_.d), 0.0);
        for (Size s = first; s < first + count; ++s) {
            const SparsePoint& point = points.sparse_point(s);
            for (std::size_t p = 0; p < point.index.size(); ++p)
                scattered[std::size_t(point.index[p])] = point.value[p];
            threads.ranges(x_.n, WeightIndex::chunk, [&](Size begin, Size end, int worker) {
                for (Size i = begin; i < end; ++i) {
                    const double d2 = distance2(i, scattered.data(), point.norm2, points.scale());
                    if (d2 < d2_data()[i])
                        report_nearer(worker, i, s, first, without_rounding(i, d2));
                }
            });
            for (const Size f : point.index) scattered[std::size_t(f)] = 0;
        }
        this->count(x_.n * count);
    }

    // d2, but 0 if it is only rounding: a seed is divided by its length, so the d2 of a row with
    // the same direction is not exactly 0.
    double without_rounding(Size i, double d2) const {
        if (!x_.norms) return d2;
        const double rounding = double(x_.row(i).nonzeros + 8) * 0x1p-51;
        return d2 > rounding * norm2_[std::size_t(i)] ? d2 : 0.0;
    }

    // |x|^2; of a direction 2|x| (SeedPoints::stage_sparse).
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

    // The same operations, for a scattered point.
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

    // Does the prefilter prune enough rows? Tests one slab with one point.
    bool prefilter_pays(SeedPoints& points, Size first, const Threads& threads) {
        if (points.seeds() < cost::prefilter_seeds || !prefilter_backoff_.due()) return false;
        if (frequent_.empty()) find_frequent(points.scale(), threads);
        const Slab& slab = transposed_->slabs()[0];
        const Size survivors =
            reachable(slab, points.sparse_point(first), points.scale(), scratch_[0]);
        const bool paid = cost::prefilter_share * survivors < slab.end - slab.begin;
        prefilter_backoff_.record(paid);
        return paid;
    }

    // The prefilter: sets scratch.rows to the rows that survive, and returns their number.
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

    // Computes the distances of the rows that survive the prefilter.
    template <class Fn>
    void measure_survivors(const Slab& slab, const SparsePoint& point, double scale,
                           Scratch& scratch, Fn nearer) const {
        const Size survivors = reachable(slab, point, scale, scratch);
        scratch.survivors += survivors;
        if (!survivors) return;
        for (std::size_t p = 0; p < point.index.size(); ++p)
            scratch.point[std::size_t(point.index[p])] = point.value[p];
        for (Size t = 0; t < survivors; ++t) {
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

    // Finds the features that more than 1 in `cost::frequent_share` rows have, and the norm of each
    // row over these.
    void find_frequent(double scale, const Threads& threads) {
        is_frequent_.assign(std::size_t(x_.d), 0);
        for (std::size_t f = 0; f < is_frequent_.size(); ++f) {
            Size rows = 0;
            for (const Slab& slab : transposed_->slabs())
                rows += slab.offsets[f + 1] - slab.offsets[f];
            is_frequent_[f] = rows * cost::frequent_share > x_.n;
        }
        frequent_.resize(std::size_t(x_.n));
        std::vector<Size> longest(std::size_t(threads.n_jobs), 0);
        threads.ranges(x_.n, cost::read_rows_per_task, [&](Size begin, Size end, int worker) {
            for (Size i = begin; i < end; ++i) {
                const auto row = x_.row(i);
                // Divide directions by their norm first: squares of the row may leave the range.
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
        // Products of m terms are off by at most (m + 2) u |x| |s|, twice (docs/proofs/seeding.md).
        keep_ = 1 - 8 * double(*std::max_element(longest.begin(), longest.end()) + 8) * 0x1p-53;
    }

    CsrRows<R, I> x_;
    std::vector<double> norm2_;
    std::unique_ptr<TransposedRows<R>> transposed_;
    std::vector<double> frequent_;  // norms of the rows over their frequent features
    std::vector<char> is_frequent_;
    double keep_ = 1;
    Backoff prefilter_backoff_{cost::seed_wait, cost::seed_longest_wait};
    std::vector<Scratch> scratch_;
};

}  // namespace exactmeans
