// Scores of many pairs of a CSR row and a centre. All rows that meet a centre do so together, while
// its values are spread out by feature; SparseKmeans calls that aggregated.
//
// Values are float32, and products are added up some at a time: scores are not the canonical ones
// (docs/numerics.md, "Centres that moved").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/score_error.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/rows_by_label.hpp"
#include "exactmeans/filter/quantized_filter.hpp"

namespace exactmeans {

template <class R>
class AggregatedScores {
public:
    // out[t] is that of row rows[t] and centre[t].
    template <class Rows>
    void measure(const Rows& x, const Centres<R>& centroids, const std::vector<Size>& rows,
                 const std::vector<std::int32_t>& centre, std::vector<double>& out,
                 const Threads& threads) {
        out.resize(rows.size());
        rooms_.resize(std::size_t(threads.n_jobs));
        const std::vector<Piece> pieces = sort(centre, centroids.k());
        threads.run(Size(pieces.size()), [&](Size p, int worker) {
            const Piece& piece = pieces[std::size_t(p)];
            Room& room = rooms_[std::size_t(worker)];
            spread(centroids, piece.centre, room.values);
            const double start = double(centroids.start()[piece.centre]);
            const auto row_of = [&](Size at) { return rows[std::size_t(order_[std::size_t(at)])]; };
            float product[batch];
            for (Size at = piece.begin; at < piece.end; at += batch) {
                const Size some = std::min(batch, piece.end - at);
                for (Size next = at + batch; next < std::min(piece.end, at + 2 * batch); ++next)
                    x.prefetch(row_of(next));
                room.rows.take_some(x, some, [&](Size t) { return row_of(at + t); });
                quantized_kernels().reordered_products(&room.rows.given(0), some,
                                                       room.values.data(), product);
                for (Size t = 0; t < some; ++t)
                    out[std::size_t(order_[std::size_t(at + t)])] = start + double(product[t]);
            }
            centroids.for_values(piece.centre,
                                 [values = room.values.data()](Size f, R) { values[f] = 0; });
        });
    }

private:
    static constexpr Size batch = 8;
    // Pairs of one centre: those that order_ has from `begin` on.
    struct Piece {
        Size centre, begin, end;
    };
    // One thread's.
    struct Room {
        std::vector<float> values;  // a centre, by feature
        QuantizedFilter<R> rows;
    };

    // Puts pairs of a centre side by side. The longest pieces come first, so that threads finish
    // together.
    std::vector<Piece> sort(const std::vector<std::int32_t>& centre, Size k) {
        constexpr Size most = 4096;
        const Size count = Size(centre.size());
        order_ = by_label(centre.data(), count, k);
        const auto centre_at = [&](Size at) {
            return Size(centre[std::size_t(order_[std::size_t(at)])]);
        };
        std::vector<Piece> pieces;
        for (Size begin = 0, end = 0; begin < count; begin = end) {
            const Size own = centre_at(begin);
            while (end < count && end - begin < most && centre_at(end) == own) ++end;
            pieces.push_back({own, begin, end});
        }
        std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
            return a.end - a.begin > b.end - b.begin;
        });
        return pieces;
    }

    static void spread(const Centres<R>& centroids, Size j, std::vector<float>& to) {
        to.resize(std::size_t(centroids.d()));
        const Frame<R>& frame = centroids.frame();
        float* const values = to.data();
        if (frame.packs_as_is())
            centroids.for_values(j, [&](Size f, R value) { values[f] = -float(value); });
        else
            centroids.for_values(
                j, [&](Size f, R value) { values[f] = float(Layout<R>::packed(frame, f, value)); });
    }

    std::vector<Room> rooms_;
    std::vector<Size> order_;
};

}  // namespace exactmeans
