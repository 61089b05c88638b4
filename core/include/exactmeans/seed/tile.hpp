// A few dense rows against points: the rows where they lie, or, if they are directions, as unit
// vectors in a buffer that holds no more than these few.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/data/rows.hpp"
#include "exactmeans/kernels/seeding.hpp"

namespace exactmeans {

template <class R>
class SeedTile {
public:
    // fn(pointers to `count` rows): ids[t], or begin + t when ids is null.
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

    // out[t * points + s] = |x - s|^2 of these rows. Directions that are equal up to rounding are
    // at 0, and so are rows of length 0, which can be no seed.
    void distances2(const DenseRows<R>& x, Size begin, const Size* ids, Size count,
                    const SeedPanel& panel, double* out) {
        rows(x, begin, ids, count, [&](const auto* const* found) {
            seed_kernels().distances2(found, count, panel, out);
        });
        for (Size t = 0; t < count; ++t)
            settle_directions(x, ids ? ids[t] : begin + t, out + t * panel.count, panel.count);
    }

    // out[t] = |x - s|^2 of row ids[t] and point of_point[t].
    void pairs2(const DenseRows<R>& x, const Size* ids, const Size* of_point, Size count,
                const SeedPanel& panel, double* out) {
        rows(x, 0, ids, count, [&](const auto* const* found) {
            seed_kernels().pairs2(found, of_point, count, panel, out);
        });
        for (Size t = 0; t < count; ++t) settle_directions(x, ids[t], out + t, 1);
    }

private:
    static void settle_directions(const DenseRows<R>& x, Size i, double* d2, Size count) {
        if (!x.norms) return;
        for (double* own = d2; own != d2 + count; ++own)
            if (!(x.norms[i] > 0) || *own < 0x1p-100) *own = 0;
    }

    DenseTile<R> tile_;
    std::vector<double> values_;
    std::vector<const double*> rows_;
};

}  // namespace exactmeans
