// L1 distances between rows and candidates, computed for all pairs. d2 is the distance itself, the
// term of the objective. Memory: 12 bytes per row, and for CSR rows d numbers per thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "exactmeans/numerics/compensated.hpp"
#include "exactmeans/seed/block.hpp"

namespace exactmeans {

template <class Rows>
class ManhattanSeedBlock final : public SeedBlock {
public:
    ManhattanSeedBlock(const Rows& x, Measure measure)
        : SeedBlock(x.n, x.weights, measure), x_(x) {}

protected:
    void set_rows(const AnyRows& rows) override { x_ = same_size(std::get<Rows>(rows), x_); }
    void drop_rows() override { x_.data = nullptr; }

    void visit(SeedPoints& points, Size first, Size count, const Threads& threads) override {
        scattered_.resize(std::size_t(threads.n_jobs));
        for (auto& point : scattered_) point.resize(std::size_t(x_.d), 0.0);
        threads.ranges(x_.n, WeightIndex::chunk, [&](Size begin, Size end, int worker) {
            for (Size s = first; s < first + count; ++s)
                with_point(points, s, false, worker, [&](const double* point, double norm) {
                    for (Size i = begin; i < end; ++i) {
                        const double distance = measure(i, point, norm);
                        if (distance < d2_data()[i]) report_nearer(worker, i, s, first, distance);
                    }
                });
        });
        this->count(x_.n * count);
    }

    double nearest_seed2(SeedPoints& points, Size i) override {
        scattered_.resize(std::max<std::size_t>(1, scattered_.size()));
        scattered_[0].resize(std::size_t(x_.d), 0.0);
        double nearest = std::numeric_limits<double>::infinity();
        for (Size j = 0; j < points.seeds(); ++j)
            with_point(points, j, true, 0, [&](const double* point, double norm) {
                nearest = std::min(nearest, measure(i, point, norm));
            });
        return nearest;
    }

private:
    // Calls use(values, L1 norm) with a candidate or a seed. A sparse one is scattered into a dense
    // buffer during the call.
    template <class Fn>
    void with_point(const SeedPoints& points, Size s, bool seed, int worker, Fn use) {
        if constexpr (is_dense<Rows>) {
            const SeedPanel panel = seed ? points.seed_panel() : points.panel(0, points.staged());
            use(panel.points + s * panel.pitch, 0.0);
        } else {
            const SparsePoint& point = seed ? points.sparse_seed(s) : points.sparse_point(s);
            double* scattered = scattered_[std::size_t(worker)].data();
            for (std::size_t p = 0; p < point.index.size(); ++p)
                scattered[point.index[p]] = point.value[p];
            use(scattered, norm1(point.value.data(), Size(point.value.size())).value());
            for (const Size f : point.index) scattered[f] = 0;
        }
    }

    double measure(Size i, const double* point, double norm) const {
        if constexpr (is_dense<Rows>) {
            double part[4] = {};
            Size f = 0;
            for (; f + 4 <= x_.d; f += 4)
                for (Size l = 0; l < 4; ++l)
                    part[l] += std::fabs(double(x_.at(i, f + l)) - point[f + l]);
            for (; f < x_.d; ++f) part[0] += std::fabs(double(x_.at(i, f)) - point[f]);
            return (part[0] + part[2]) + (part[1] + part[3]);
        } else {
            const auto row = x_.row(i);
            double sum = norm, total = norm;
            for (Size t = 0; t < row.nonzeros; ++t) {
                const double value = double(row.value[t]), other = point[row.index[t]];
                sum += std::fabs(value - other) - std::fabs(other);
                total += std::fabs(value);
            }
            // A row equal to the point leaves only rounding errors.
            return sum > double(row.nonzeros + 8) * 0x1p-51 * total ? sum : 0.0;
        }
    }

    Rows x_;
    std::vector<std::vector<double>> scattered_;
};

}  // namespace exactmeans
