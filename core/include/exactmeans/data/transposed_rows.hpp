// CSR rows by feature (CSC), in slabs of consecutive rows. The products of a slab's rows with a
// point, one double per row, stay in L2. Memory: a copy of the entries with 16-bit row numbers, and
// d offsets per slab.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"

namespace exactmeans {

template <class R>
class TransposedRows {
public:
    // Entries of feature f are [offsets[f], offsets[f + 1]), in ascending order of rows.
    struct Slab {
        Size begin, end;
        std::vector<std::uint32_t> offsets;
        std::vector<std::uint16_t> row;
        std::vector<R> value;

        // Calls visit(p, f) for f = features[p], in order. Prefetches offsets and entries, because
        // features are scattered in memory.
        template <class Feature, class Visit>
        void walk(const std::vector<Feature>& features, Visit visit) const {
            const std::size_t count = features.size();
            for (std::size_t p = 0; p < count; ++p) {
                if (p + 2 * ahead < count)
                    __builtin_prefetch(offsets.data() + features[p + 2 * ahead]);
                if (p + ahead < count) prefetch(std::size_t(features[p + ahead]));
                visit(p, std::size_t(features[p]));
            }
        }

    private:
        static constexpr std::size_t ahead = std::size_t(cost::transposed_features_ahead);
        void prefetch(std::size_t f) const {
            __builtin_prefetch(row.data() + offsets[f]);
            __builtin_prefetch(value.data() + offsets[f]);
        }
    };

    // Slabs have the same number of chunks, so that threads finish together. Slabs are doubled, as
    // far as 16-bit row numbers allow, until their offsets take less memory than their entries.
    template <class I>
    TransposedRows(const CsrRows<R, I>& x, const Threads& threads) {
        constexpr Size chunk = row_chunk, least = cost::least_slab_chunks * chunk,
                       usual = cost::slab_chunks * chunk;
        const Size slab_count = std::max<Size>(cost::least_slabs, (x.n + usual - 1) / usual);
        slab_rows_ =
            std::max(least, ((x.n + slab_count - 1) / slab_count + chunk - 1) / chunk * chunk);
        while (slab_rows_ <= usual && x.d * (x.n / slab_rows_) > 2 * x.nonzeros()) slab_rows_ *= 2;
        slabs_.resize(std::size_t((x.n + slab_rows_ - 1) / slab_rows_));
        threads.run(Size(slabs_.size()), [&](Size s, int) {
            const Size begin = s * slab_rows_;
            fill(slabs_[std::size_t(s)], x, begin, std::min(x.n, begin + slab_rows_));
        });
    }

    Size slab_rows() const { return slab_rows_; }
    const std::vector<Slab>& slabs() const { return slabs_; }

private:
    template <class I>
    static void fill(Slab& slab, const CsrRows<R, I>& x, Size begin, Size end) {
        slab.begin = begin;
        slab.end = end;
        const Size entries = x.offsets[end] - x.offsets[begin];
        if (entries > Size(std::numeric_limits<std::uint32_t>::max()))
            throw std::invalid_argument(
                "X must have fewer than 2^32 entries in 65,536 consecutive rows");
        slab.offsets.assign(std::size_t(x.d + 2), 0);
        slab.row.resize(std::size_t(entries));
        slab.value.resize(std::size_t(entries));
        const SparseRow<R, I> all{x.indices + x.offsets[begin], x.data + x.offsets[begin], entries};
        const PrefetchCursor next_entries(all);
        for (Size t = 0; t < entries; ++t) {
            __builtin_prefetch(slab.offsets.data() + next_entries.feature(t) + 2, 1);
            ++slab.offsets[std::size_t(all.index[t]) + 2];
        }
        for (std::size_t f = 2; f < slab.offsets.size(); ++f)
            slab.offsets[f] += slab.offsets[f - 1];
        for (Size i = begin; i < end; ++i) {
            const auto row = x.row(i);
            const PrefetchCursor next(x, row);
            for (Size t = 0; t < row.nonzeros; ++t) {
                __builtin_prefetch(slab.offsets.data() + next.feature(t) + 1, 1);
                // Until the slab is filled, offsets[f + 1] is the position of the next entry of
                // feature f. At the end it is the position after the last one, where feature f + 1
                // begins.
                const std::uint32_t at = slab.offsets[std::size_t(row.index[t]) + 1]++;
                slab.row[at] = std::uint16_t(i - begin);
                slab.value[at] = row.value[t];
            }
        }
    }

    Size slab_rows_ = 0;
    std::vector<Slab> slabs_;
};

}  // namespace exactmeans
