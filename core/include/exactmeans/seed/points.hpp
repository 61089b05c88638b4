// The seeds so far, and the staged candidates for the next one, in float64 on the frame's scale;
// shared by all blocks. Directions are staged as unit vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/seeding.hpp"

namespace exactmeans {

// Nonzero features, ascending.
struct SparsePoint {
    std::vector<Size> index;
    std::vector<double> value;
    double norm2 = 0;

    void add(Size f, double v) {
        if (v == 0) return;
        index.push_back(f);
        value.push_back(v);
        norm2 += v * v;
    }
};

class SeedPoints {
public:
    SeedPoints(Size d, int exponent, bool sparse, bool directed = false)
        : d_(d),
          pitch_((d + seed_stripes - 1) / seed_stripes * seed_stripes),
          sparse_(sparse),
          directed_(directed),
          scale_(std::ldexp(1.0, exponent)) {}

    Size d() const { return d_; }
    double scale() const { return scale_; }
    Size seeds() const { return seeds_; }
    Size staged() const { return staged_; }

    void unstage() {
        staged_ = 0;
        staged_dense_.clear();
        staged_sparse_.clear();
        distances_known_ = false;
    }

    template <class Rows>
    void stage(const Rows& x, Size i) {
        if (i < 0 || i >= x.n) throw std::invalid_argument("there is no such row");
        if constexpr (is_dense<Rows>) {
            stage_values([&](Size f) { return double(x.at(i, f)) / length_of(x, i); });
        } else {
            const auto row = x.row(i);
            SparsePoint point;
            for (Size t = 0; t < row.nonzeros; ++t)
                point.add(Size(row.index[t]), double(row.value[t]) / length_of(x, i) * scale_);
            stage_sparse(std::move(point));
        }
    }

    // Any point, which need not be a row.
    void stage_point(const double* values) {
        if (!sparse_) return stage_values([&](Size f) { return values[f]; });
        SparsePoint point;
        for (Size f = 0; f < d_; ++f) point.add(f, values[f] * scale_);
        stage_sparse(std::move(point));
    }

    // Candidate s becomes the next seed.
    void accept(Size s) {
        if (s < 0 || s >= staged_) throw std::invalid_argument("there is no such candidate");
        if (sparse_)
            seeds_sparse_.push_back(staged_sparse_[std::size_t(s)]);
        else
            seeds_dense_.insert(seeds_dense_.end(), staged_dense_.data() + s * pitch_,
                                staged_dense_.data() + (s + 1) * pitch_);
        ++seeds_;
        distances_known_ = false;
    }

    // Keeps only the first `seeds` seeds.
    void retract(Size seeds) {
        if (seeds < 0 || seeds > seeds_) throw std::invalid_argument("there are fewer seeds");
        seeds_ = seeds;
        if (sparse_)
            seeds_sparse_.resize(std::size_t(seeds));
        else
            seeds_dense_.resize(std::size_t(seeds * pitch_));
        distances_known_ = false;
    }

    SeedPanel panel(Size first, Size count) const {
        return {staged_dense_.data() + first * pitch_, count, d_, pitch_, scale_};
    }
    SeedPanel seed_panel() const { return {seeds_dense_.data(), seeds_, d_, pitch_, scale_}; }
    const SparsePoint& sparse_point(Size s) const { return staged_sparse_[std::size_t(s)]; }
    const SparsePoint& sparse_seed(Size j) const { return seeds_sparse_[std::size_t(j)]; }

    // Squared distances from every seed to candidates [first, first + count), dense data only.
    // `width` entries per seed; padding is infinite.
    const double* seed_distances2(Size first, Size count, Size width, const Threads& threads) {
        if (distances_known_ && distances_first_ == first && distances_width_ == width)
            return distances2_.data();
        distances2_.assign(std::size_t(seeds_ * width), std::numeric_limits<double>::infinity());
        SeedPanel candidates = panel(first, count);
        candidates.scale = 1;      // both sides are scaled already
        constexpr Size step = 64;  // whose distances fit the stack
        threads.ranges(seeds_, step, [&](Size begin, Size end, int) {
            const double* rows[step];
            double out[step * most_points];
            for (Size j = begin; j < end; ++j) rows[j - begin] = seeds_dense_.data() + j * pitch_;
            seed_kernels().distances2(rows, end - begin, candidates, out);
            for (Size j = begin; j < end; ++j)
                std::copy(out + (j - begin) * count, out + (j - begin + 1) * count,
                          distances2_.data() + j * width);
        });
        distances_known_ = true;
        distances_first_ = first;
        distances_width_ = width;
        return distances2_.data();
    }

private:
    template <class Value>
    void stage_values(Value value) {
        staged_dense_.resize(std::size_t((staged_ + 1) * pitch_), 0.0);
        double* to = staged_dense_.data() + staged_ * pitch_;
        for (Size f = 0; f < d_; ++f) to[f] = value(f) * scale_;
        ++staged_;
        distances_known_ = false;
    }
    template <class Rows>
    double length_of(const Rows& x, Size i) const {
        return directed_ && x.norms && x.norms[i] > 0 ? x.norms[i] : 1.0;
    }
    void stage_sparse(SparsePoint point) {
        // |x| |x/|x| - s|^2 = 2|x| - 2 x.s: the norm of s does not enter.
        if (directed_) point.norm2 = 0;
        staged_sparse_.push_back(std::move(point));
        ++staged_;
    }

    Size d_, pitch_;
    bool sparse_, directed_;
    double scale_;
    Size seeds_ = 0, staged_ = 0;
    std::vector<double> seeds_dense_, staged_dense_, distances2_;
    std::vector<SparsePoint> seeds_sparse_, staged_sparse_;
    bool distances_known_ = false;
    Size distances_first_ = 0, distances_width_ = 0;
};

}  // namespace exactmeans
