// Dense rows in 8 bits, for the filter of dense_filter.hpp.
//
// A row x, shifted as in scores, is origin + s q up to a residual: the codes q are whole numbers
// from -127 to 127, each row has its own scale s, and the origin is near the mean of all rows.
// Bounds hold for any origin and are tightest near the mean, so a sample of rows determines it.
// Memory: one byte per value and 20 per row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/integer_products.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/numerics/frame.hpp"
#include "exactmeans/numerics/slack.hpp"

namespace exactmeans {

// Scales of rows and centres lie between these, so that float32 bounds neither overflow nor
// underflow. Vectors near the origin get the least scale.
inline constexpr float least_scale = 0x1p-60f, largest_scale = 0x1p60f;

// The mean of those of `count` vectors, row_of(t), whose largest magnitude is at most 8 times the
// median. A single far vector would move the mean away from all others, and their scales would
// grow.
template <class R, class RowOf>
std::vector<R> typical_mean(Size count, Size d, RowOf row_of) {
    std::vector<double> largest;
    for (Size t = 0; t < count; ++t) {
        double most = 0;
        const R* const row = row_of(t);
        for (Size f = 0; f < d; ++f) most = std::max(most, std::abs(double(row[f])));
        largest.push_back(most);
    }
    std::vector<double> sorted = largest;
    const auto middle = sorted.begin() + Size(sorted.size()) / 2;
    std::nth_element(sorted.begin(), middle, sorted.end());
    std::vector<double> sum(static_cast<std::size_t>(d));
    double taken = 0;
    for (Size t = 0; t < count; ++t) {
        if (!(largest[std::size_t(t)] <= 8 * *middle)) continue;
        const R* const row = row_of(t);
        for (Size f = 0; f < d; ++f) sum[std::size_t(f)] += double(row[f]);
        ++taken;
    }
    std::vector<R> mean;
    for (const double total : sum) {
        const R value = R(total / taken);
        mean.push_back(std::isfinite(value) ? value : R(0));
    }
    return mean;
}

// Quantises vectors; buffers of one thread.
template <class R>
class Quantizer {
public:
    // Quantises x - origin; `codes` gets d codes, and zeros up to `pitch`.
    void operator()(const R* x, const R* origin, Size d, Size pitch, std::int8_t* codes,
                    CodedVector& out) {
        const std::size_t padded = std::size_t((d + 15) / 16 * 16);  // whole vectors
        values_.resize(padded);
        codes_.resize(padded);
        vector_kernels<R>().centred(x, origin, d, values_.data());
        std::fill(values_.begin() + d, values_.end(), 0.0f);
        filter_kernels().quantize(values_.data(), Size(padded), least_scale, codes_.data(), out);
        std::memcpy(codes, codes_.data(), std::size_t(std::min(pitch, Size(padded))));
        if (!(out.inverse >= 1 / largest_scale))
            out.rounding = std::numeric_limits<float>::infinity();
    }

private:
    AlignedVector<float> values_;
    AlignedVector<std::int8_t> codes_;
};

template <class R>
class DenseCodes {
public:
    // Sums of products of more codes could overflow 32 bits, and sums of their squares would round
    // in float32.
    static constexpr Size most_features = Size(1) << 14;
    static constexpr Size pitch(Size d) { return (d + 3) / 4 * 4; }
    static Size bytes_per_row(Size d) { return pitch(d) + Size(sizeof(CodedVector)); }

    // Are codes possible for these rows in this frame?
    static bool possible(const DenseRows<R>& x, const Frame<R>& frame) {
        return x.col_stride == 1 && x.d <= most_features && frame.exponent == 0 &&
               frame.packing == 0 && scores_are_products(frame.metric) && slack(x.d).holds();
    }
    // The relative error of a canonical score (numerics/slack.hpp).
    static double gamma(Size d) { return slack(d).gamma(); }
    static Slack slack(Size d) { return Slack::of<R>(d, d, 1, 0); }

    // Chooses the origin, once: the mean of equally spaced rows.
    void choose_origin(const DenseRows<R>& x, const Frame<R>& frame) {
        if (!origin_.empty()) return;
        const std::vector<Size> ids = spaced_rows(x.n, cost::origin_rows);
        DenseTile<R> tile;
        std::vector<R> origin = typical_mean<R>(Size(ids.size()), x.d, [&](Size t) {
            tile.load(x, frame.shift_or_null(), 0, ids.data() + t, 1);
            return tile.rows()[0];
        });
        double norm2 = 0;
        for (const R value : origin) norm2 += double(value) * double(value);
        origin_norm_ = std::sqrt(norm2);
        spherical_ = is_spherical(frame.metric);
        origin_ = std::move(origin);
    }
    const std::vector<R>& origin() const { return origin_; }
    double origin_norm() const { return origin_norm_; }
    bool spherical() const { return spherical_; }

    // One thread's buffers.
    struct Buffers {
        DenseTile<R> tile;
        Quantizer<R> quantize;
    };
    // Quantises rows ids[t], or begin + t if ids is null.
    void quantize(const DenseRows<R>& x, const R* shift, Size begin, const Size* ids, Size count,
                  Buffers& buffers, std::int8_t* codes, CodedVector* rows) const {
        constexpr Size batch = cost::shifted_code_rows;
        for (Size t = 0; t < count; t += batch) {
            const Size some = std::min(batch, count - t);
            buffers.tile.load(x, shift, begin + t, ids ? ids + t : nullptr, some);
            for (Size r = 0; r < some; ++r) {
                CodedVector& out = rows[t + r];
                buffers.quantize(buffers.tile.rows()[r], origin_.data(), x.d, pitch(x.d),
                                 codes + (t + r) * pitch(x.d), out);
                out.rounding = std::max(out.rounding, rounding(out, x.d));
            }
        }
    }

    // Quantises all rows, once.
    void store(const DenseRows<R>& x, const Frame<R>& frame, const Threads& threads) {
        if (stored()) return;
        const Size bytes = pitch(x.d);
        codes_ = std::make_unique_for_overwrite<std::int8_t[]>(
            std::size_t(x.n * bytes + CodesByCentre::padding));
        std::vector<CodedVector> rows(static_cast<std::size_t>(x.n));
        std::vector<Buffers> buffers(static_cast<std::size_t>(threads.n_jobs));
        threads.ranges(x.n, cost::measured_rows_per_task, [&](Size begin, Size end, int worker) {
            quantize(x, frame.shift_or_null(), begin, nullptr, end - begin,
                     buffers[std::size_t(worker)], codes_.get() + begin * bytes,
                     rows.data() + begin);
        });
        rows_ = std::move(rows);
    }
    // May the codes of all rows be stored? It takes memory and pays only if several passes follow,
    // as in a fit. Otherwise every pass quantises the rows anew.
    bool may_store() const { return may_store_; }
    void set_may_store(bool may) { may_store_ = may; }
    bool stored() const { return !rows_.empty(); }
    const std::int8_t* codes(Size i, Size d) const { return codes_.get() + i * pitch(d); }
    const CodedVector* row(Size i) const { return rows_.data() + i; }

private:
    // The rounding of a canonical score, in units of the scale, is at most this for the row and
    // DenseCentreCodes::rounding for the centre. |x| <= |s q| + |residual| + |origin|, and centres
    // of spherical metrics have norm 1. The factors 0.501 and 1.01 cover the rounding of the norms,
    // the last term underflow of float32.
    float rounding(const CodedVector& row, Size d) const {
        const double scale = 1 / double(row.inverse),
                     norm = scale * (double(row.norm) + double(row.residual)) + origin_norm_,
                     error = gamma(d) * (spherical_ ? 1.01 * norm : 0.501 * norm * norm) +
                             4 * double(d + 4) * double(std::numeric_limits<R>::denorm_min());
        // The limit, which is this plus a bound below 2^122, must be finite: places without a
        // centre have infinite lower bounds.
        const double in_units = error * double(row.inverse) * (1 + 0x1p-20);
        return in_units < 0x1p120 ? float(in_units) + std::numeric_limits<float>::min()
                                  : std::numeric_limits<float>::infinity();
    }

    std::vector<R> origin_;
    double origin_norm_ = 0;
    bool spherical_ = false, may_store_ = false;
    std::unique_ptr<std::int8_t[]> codes_;
    std::vector<CodedVector> rows_;
};

}  // namespace exactmeans
