// Dense centres in 8 bits, with bounds of their scores, for the filter of dense_filter.hpp.
//
// With x = origin + y a row and c = mean + z a centre, the score h - x.c is h - origin.z - y.z up
// to a constant of the row, which no comparison of centres needs. y and z have codes; h - origin.z
// is computed in float64. docs/proofs/dense_integer_filter.md derives the bounds.
//
// Centres have places. Place j is centre j, unless the caller gives another order, in which places
// may be empty: that of groups of centres, for example, each in whole units.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/filter/dense_codes.hpp"
#include "exactmeans/kernels/bounds.hpp"
#include "exactmeans/kernels/integer_products.hpp"

namespace exactmeans {

template <class R>
class DenseCentreCodes {
public:
    // Quantises the centres for rows with the origin of `rows`. `order` gives the centre of each
    // place, or -1. Returns false if bounds would leave the range of float32.
    bool update(const Centres<R>& centroids, const DenseCodes<R>& rows, const Threads& threads,
                const std::vector<std::int32_t>* order = nullptr) {
        order_.resize(std::size_t(centroids.k()));
        std::iota(order_.begin(), order_.end(), 0);
        if (order) order_ = *order;
        resize(Size(order_.size()), centroids.d());
        find_mean(centroids);
        threads.ranges(places_, std::max<Size>(1, cost::centre_values_per_task / d_),
                       [&](Size begin, Size end, int) {
                           Quantizer<R> quantize;
                           for (Size place = begin; place < end; ++place)
                               if (order_[std::size_t(place)] >= 0)
                                   derive(centroids, rows, place, quantize);
                       });
        bound(centroids, rows);
        store_mean(rows);
        threads.run(view_.units(), [&](Size u, int) { pack(u); });
        return usable_;
    }

    const CodedCentres& panels() const { return view_; }
    const CodesByCentre& by_centre() const { return by_centre_; }
    // The margin (CandidateLists) of a row whose codes have norm 1.
    float margin() const { return margin_; }
    // The places, and the centre of a place.
    Size places() const { return places_; }
    Size padded_places() const { return view_.units() * CodedCentres::unit; }
    std::int32_t centre(Size place) const { return order_[std::size_t(place)]; }
    // By place: minus the values of a centre, as canonical scores use them, and its score offset.
    const R* packed(Size place) const { return packed_.data() + place * d_; }
    const R* packed() const { return packed_.data(); }
    const R* score_offset() const { return score_offset_.data(); }
    // The part of the rounding of a canonical score that depends on the centre.
    double rounding(Size place) const { return rounding_[std::size_t(place)]; }
    // Bounds by codes leave out the parts of a score that all centres share. The score of a centre
    // is its bound by codes, in units of the row's scale, plus base() plus the score of the mean of
    // the centres. The mean comes after the last place, with score offset 0.
    Size mean_place() const { return places_; }
    double base() const { return base_; }

private:
    // Allocates `k` places.
    void resize(Size k, Size d) {
        const Size places = (k + CodedCentres::unit - 1) / CodedCentres::unit * CodedCentres::unit;
        if (k == places_ && d == d_) return;
        places_ = 0;  // until everything is allocated
        packed_.assign(std::size_t((k + 1) * d), R(0));
        score_offset_.assign(std::size_t(k + 1), R(0));
        coded_.resize(std::size_t(k));
        sum_.resize(std::size_t(k));
        exact_offset_.resize(std::size_t(k));
        rounding_.resize(std::size_t(k + 1));
        offset_.assign(std::size_t(places), std::numeric_limits<float>::infinity());
        for (auto* all : {&minus_scale_, &length_, &width_}) all->assign(std::size_t(places), 0.0f);
        const Size depth = (d + 3) / 4;
        constexpr Size padding = CodesByCentre::padding;
        by_centre_.pitch = (d + padding - 1) / padding * padding;
        rows_of_codes_.assign(std::size_t(k * by_centre_.pitch), 0);
        unit_codes_.resize(std::size_t(places * depth * 4));
        by_centre_.codes = rows_of_codes_.data();
        by_centre_.sum = sum_.data();
        view_ = {unit_codes_.data(),
                 offset_.data(),
                 minus_scale_.data(),
                 length_.data(),
                 width_.data(),
                 k,
                 depth};
        places_ = k;
        d_ = d;
    }

    void find_mean(const Centres<R>& centroids) {
        mean_ = typical_mean<R>(centroids.k(), d_, [&](Size j) { return centroids.master(j); });
        const R* const shift = centroids.frame().shift_or_null();
        for (Size f = 0; shift && f < d_; ++f) mean_[std::size_t(f)] -= shift[f];
    }

    // Values, codes and exact offset of the centre at a place.
    void derive(const Centres<R>& centroids, const DenseCodes<R>& rows, Size place,
                Quantizer<R>& quantize) {
        const std::size_t at = std::size_t(place);
        const R* const shift = centroids.frame().shift_or_null();
        const Size j = centre(place);
        const R* const master = centroids.master(j);
        R* const own = packed_.data() + place * d_;
        score_offset_[at] = centroids.score_offset()[j];
        // Negated only at the end, because the quantiser and the sum read the values themselves.
        for (Size f = 0; f < d_; ++f) own[f] = shift ? master[f] - shift[f] : master[f];
        quantize(own, mean_.data(), d_, by_centre_.pitch,
                 rows_of_codes_.data() + place * by_centre_.pitch, coded_[at]);
        sum_[at] = coded_[at].sum;
        double sum[8] = {};
        const R* const origin = rows.origin().data();
        const auto term = [&](Size f) {
            return double(origin[f]) * (double(own[f]) - double(mean_[std::size_t(f)]));
        };
        Size f = 0;
        for (; f + 8 <= d_; f += 8)
            for (int s = 0; s < 8; ++s) sum[s] += term(f + s);
        for (; f < d_; ++f) sum[0] += term(f);
        exact_offset_[at] =
            double(centroids.score_offset()[j]) -
            (((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])));
        for (f = 0; f < d_; ++f) own[f] = -own[f];
    }

    // Subtracts the lowest offset from all of them, so that float32 rounds their differences only,
    // and computes the errors.
    void bound(const Centres<R>& centroids, const DenseCodes<R>& rows) {
        const double gamma = DenseCodes<R>::gamma(d_);
        double origin = std::numeric_limits<double>::infinity();
        for (std::size_t at = 0; at < order_.size(); ++at)
            if (order_[at] >= 0) origin = std::min(origin, exact_offset_[at]);
        base_ = origin;
        const bool spherical = is_spherical(centroids.frame().metric);
        double residual = 0;
        usable_ = true;
        for (Size place = 0; place < places_; ++place) {
            const std::size_t at = std::size_t(place);
            const Size j = centre(place);
            if (j < 0) {
                leave_empty(at);
                continue;
            }
            const CodedVector& own = coded_[at];
            const double scale = 1 / double(own.inverse), h = double(centroids.score_offset()[j]),
                         length = scale * (double(own.norm) + double(own.residual)),
                         offset = exact_offset_[at] - origin;
            rounding_[at] = spherical ? 0.0 : gamma * (h + 0.501 * centroids.norm2(j));
            // 2^-20 of the offset, which is at least 0, covers float32 arithmetic with it; the last
            // term covers the float64 sums.
            const double error =
                rounding_[at] + offset * 0x1p-20 +
                (std::abs(h) + double(d_ + 8) * rows.origin_norm() * length) * 0x1p-50;
            offset_[at] = round_down(offset - error);
            width_[at] = round_up(2 * (offset - double(offset_[at])));
            minus_scale_[at] = -float(scale);
            length_[at] = round_up(length) * up32;
            // 0x1p-21 times the norm covers float32 arithmetic with the products.
            residual = std::max(residual, double(own.residual) + 0x1p-21 * double(own.norm));
            usable_ = usable_ && own.rounding < 1 && offset + error < double(largest_scale) &&
                      length < double(largest_scale);
        }
        margin_ = float(residual * (1 + 0x1p-18));
    }

    void leave_empty(std::size_t at) {
        offset_[at] = std::numeric_limits<float>::infinity();
        minus_scale_[at] = length_[at] = width_[at] = 0;
    }

    void store_mean(const DenseCodes<R>& rows) {
        double norm2 = 0;
        for (Size f = 0; f < d_; ++f) {
            const R value = mean_[std::size_t(f)];
            packed_[std::size_t(places_ * d_ + f)] = -value;
            norm2 += double(value) * double(value);
        }
        // As for a centre: 0 for spherical metrics, because the row's part of the rounding allows
        // for norm 1.
        rounding_[std::size_t(places_)] =
            DenseCodes<R>::gamma(d_) * (rows.spherical() ? 0.0 : 0.501 * norm2);
    }

    void pack(Size u) {
        constexpr Size unit = CodedCentres::unit;
        const std::int8_t bias = std::int8_t(std::uint8_t(integer_products().bias));
        std::int8_t* to = unit_codes_.data() + u * view_.depth * unit * 4;
        for (Size l = 0; l < unit; ++l) {
            const Size j = u * unit + l;
            const std::int8_t* const from = j < places_ && order_[std::size_t(j)] >= 0
                                                ? rows_of_codes_.data() + j * by_centre_.pitch
                                                : nullptr;
            for (Size t = 0; t < view_.depth; ++t)
                for (Size b = 0; b < 4; ++b)
                    to[(t * unit + l) * 4 + b] =
                        std::int8_t(std::uint8_t((from ? from[4 * t + b] : 0) + bias));
        }
    }

    Size places_ = 0, d_ = 0;
    bool usable_ = false;
    float margin_ = 0;
    double base_ = 0;
    std::vector<std::int32_t> order_;
    std::vector<R> packed_, mean_, score_offset_;
    std::vector<CodedVector> coded_;
    std::vector<std::int32_t> sum_;
    std::vector<double> exact_offset_, rounding_;
    AlignedVector<float> offset_, minus_scale_, length_, width_;
    AlignedVector<std::int8_t> rows_of_codes_, unit_codes_;
    CodedCentres view_;
    CodesByCentre by_centre_;
};

}  // namespace exactmeans
