// Codes of a few dense rows at a time: taken from the stored ones, or quantised here. Buffers of
// one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "exactmeans/base/aligned_vector.hpp"
#include "exactmeans/filter/dense_verifier.hpp"

namespace exactmeans {

template <class R>
class CodedRows {
public:
    using Input = DenseFilterInput<R>;

    // Loads rows ids[t], or begin + t if ids is null.
    void load(const Input& in, Size begin, const Size* ids, Size count) {
        const Size pitch = DenseCodes<R>::pitch(in.x.d);
        if (in.rows.stored() && !ids) {
            codes_ = {in.rows.codes(begin, in.x.d), pitch, count};
            rows_ = in.rows.row(begin);
        } else {
            own_codes_.resize(
                std::max(own_codes_.size(), std::size_t(count * pitch + CodesByCentre::padding)));
            own_rows_.resize(std::max(own_rows_.size(), std::size_t(count)));
            gather(in, begin, ids, count, pitch);
            codes_ = {own_codes_.data(), pitch, count};
            rows_ = own_rows_.data();
        }
        margin_.resize(std::size_t(count));
        start_.resize(std::size_t(count));
        const int bias = integer_products().bias;
        for (Size t = 0; t < count; ++t) {
            const std::size_t at = std::size_t(t);
            margin_[at] = std::int32_t(rows_[t].norm * in.centres.margin()) + 1;
            start_[at] = margin_[at] - bias * rows_[t].sum;
        }
    }

    const CodeRows& codes() const { return codes_; }
    const CodedVector* rows() const { return rows_; }
    const std::int32_t* margin() const { return margin_.data(); }

    // Computes products tile by tile and calls fn(first row, rows, first unit, units, products):
    // for each group of units, all tiles of rows.
    template <class Fn>
    void for_products(const CodedCentres& centres, Fn fn) {
        constexpr Size most_units = CodedCentres::most_units, tile = CandidateLists::tile;
        const Size units = centres.units(), groups = (units + most_units - 1) / most_units;
        products_.resize(std::size_t(tile * most_units * CodedCentres::unit));
        for (Size g = 0; g < groups; ++g) {
            const Size unit = g * units / groups, past = (g + 1) * units / groups;
            for (Size t = 0; t < codes_.n; t += tile) {
                const Size some = std::min(tile, codes_.n - t);
                integer_products().products({codes_.codes + t * codes_.pitch, codes_.pitch, some},
                                            start_.data() + t, centres, unit, past - unit,
                                            products_.data());
                fn(t, some, unit, past - unit, products_.data());
            }
        }
    }

private:
    void gather(const Input& in, Size begin, const Size* ids, Size count, Size pitch) {
        if (!in.rows.stored()) {
            in.rows.quantize(in.x, in.centroids.frame().shift_or_null(), begin, ids, count,
                             buffers_, own_codes_.data(), own_rows_.data());
            return;
        }
        for (Size t = 0; t < count; ++t) {
            std::copy_n(in.rows.codes(ids[t], in.x.d), pitch, own_codes_.data() + t * pitch);
            own_rows_[std::size_t(t)] = *in.rows.row(ids[t]);
        }
    }

    CodeRows codes_{};
    const CodedVector* rows_ = nullptr;
    AlignedVector<std::int8_t> own_codes_;
    std::vector<CodedVector> own_rows_;
    typename DenseCodes<R>::Buffers buffers_;
    std::vector<std::int32_t> margin_, start_;
    AlignedVector<std::int32_t> products_;
};

}  // namespace exactmeans
