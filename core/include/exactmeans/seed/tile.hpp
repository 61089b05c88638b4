// Distances between a few dense rows and points. Rows are read in place, but directions are copied
// as unit vectors into a buffer.
#pragma once

#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/seeding.hpp"

namespace exactmeans {

template <class R>
class SeedTile {
public:
    // Calls fn with pointers to `count` rows: ids[t], or begin + t if ids is null.
    template <class Fn>
    void rows(const DenseRows<R>& x, Size begin, const Size* ids, Size count, Fn fn) {
        if (!x.norms) {
            tile_.load(x, nullptr, begin, ids, count);
            return fn(tile_.rows());
        }
        values_.resize(std::size_t(count * x.d));
        rows_.resize(std::size_t(count));
        for (Size t = 0; t < count; ++t) {
            const Size i = ids ? ids[t] : begin + t;
            double* to = values_.data() + t * x.d;
            rows_[std::size_t(t)] = to;
            for (Size f = 0; f < x.d; ++f)
                to[f] = x.norms[i] > 0 ? double(x.at(i, f)) / x.norms[i] : 0.0;
        }
        fn(static_cast<const double* const*>(rows_.data()));
    }

    // out[t * points + s] = |x - s|^2 of these rows. For directions it is 0 if they are equal up to
    // rounding, and for rows of length 0, so that these cannot become seeds.
    void distances2(const DenseRows<R>& x, Size begin, const Size* ids, Size count,
                    const SeedPanel& panel, double* out) {
        rows(x, begin, ids, count, [&](const auto* const* found) {
            seed_kernels().distances2(found, count, panel, out);
        });
        for (Size t = 0; t < count; ++t)
            clear_rounding(x, ids ? ids[t] : begin + t, out + t * panel.count, panel.count);
    }

    // out[t] = |x - s|^2 of row ids[t] and point of_point[t].
    void pairs2(const DenseRows<R>& x, const Size* ids, const Size* of_point, Size count,
                const SeedPanel& panel, double* out) {
        rows(x, 0, ids, count, [&](const auto* const* found) {
            seed_kernels().pairs2(found, of_point, count, panel, out);
        });
        for (Size t = 0; t < count; ++t) clear_rounding(x, ids[t], out + t, 1);
    }

private:
    static void clear_rounding(const DenseRows<R>& x, Size i, double* d2, Size count) {
        if (!x.norms) return;
        for (double* value = d2; value != d2 + count; ++value)
            if (!(x.norms[i] > 0) || *value < 0x1p-100) *value = 0;
    }

    DenseTile<R> tile_;
    std::vector<double> values_;
    std::vector<const double*> rows_;
};

}  // namespace exactmeans
