// Scores of many pairs of a CSR row and a centre, sorted by centre (the aggregation of the package
// sparsekmeans): the values of a centre are scattered into a dense vector, which is multiplied with
// all rows that are paired with the centre.
//
// Values are float32 and products are summed in lanes, so the scores are not canonical
// (docs/proofs/delta_bounds.md bounds the error).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/rows_by_label.hpp"
#include "exactmeans/filter/float32_rows.hpp"

namespace exactmeans {

template <class R>
class AggregatedScores {
public:
    // out[t]: the score of row rows[t] and centre[t].
    template <class Rows>
    void measure(const Rows& x, const Centres<R>& centroids, const std::vector<Size>& rows,
                 const std::vector<std::int32_t>& centre, std::vector<double>& out,
                 const Threads& threads) {
        out.resize(rows.size());
        buffers_.resize(std::size_t(threads.n_jobs));
        const std::vector<Piece> pieces = sort(centre, centroids.k());
        threads.run(Size(pieces.size()), [&](Size p, int worker) {
            const Piece& piece = pieces[std::size_t(p)];
            Buffers& buffers = buffers_[std::size_t(worker)];
            scatter(centroids, piece.centre, buffers.values);
            const double score_offset = double(centroids.score_offset()[piece.centre]);
            const auto row_of = [&](Size at) { return rows[std::size_t(order_[std::size_t(at)])]; };
            float product[batch];
            for (Size at = piece.begin; at < piece.end; at += batch) {
                const Size some = std::min(batch, piece.end - at);
                for (Size next = at + batch; next < std::min(piece.end, at + 2 * batch); ++next)
                    x.prefetch(row_of(next));
                buffers.rows.load_some(x, some, [&](Size t) { return row_of(at + t); });
                quantized_kernels().reordered_products(buffers.rows.data(), some,
                                                       buffers.values.data(), product);
                for (Size t = 0; t < some; ++t)
                    out[std::size_t(order_[std::size_t(at + t)])] =
                        score_offset + double(product[t]);
            }
            centroids.for_values(piece.centre,
                                 [values = buffers.values.data()](Size f, R) { values[f] = 0; });
        });
    }

private:
    static constexpr Size batch = cost::aggregated_rows;  // the next ones are prefetched
    // Pairs of one centre: order_[begin, end).
    struct Piece {
        Size centre, begin, end;
    };
    // Buffers of one thread.
    struct Buffers {
        std::vector<float> values;  // a centre, by feature
        Float32Rows<R> rows;
    };

    // Sorts the pairs by centre and cuts them into pieces of one centre. The longest pieces come
    // first, which balances the threads.
    std::vector<Piece> sort(const std::vector<std::int32_t>& centre, Size k) {
        constexpr Size most = cost::aggregated_pairs_per_task;
        const Size count = Size(centre.size());
        order_ = by_label(centre.data(), count, k);
        const auto centre_at = [&](Size at) {
            return Size(centre[std::size_t(order_[std::size_t(at)])]);
        };
        std::vector<Piece> pieces;
        for (Size begin = 0, end = 0; begin < count; begin = end) {
            const Size current = centre_at(begin);
            while (end < count && end - begin < most && centre_at(end) == current) ++end;
            pieces.push_back({current, begin, end});
        }
        std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
            return a.end - a.begin > b.end - b.begin;
        });
        return pieces;
    }

    // Writes the packed values of centre j into `to`, which must be zero, by feature.
    static void scatter(const Centres<R>& centroids, Size j, std::vector<float>& to) {
        to.resize(std::size_t(centroids.d()));
        const Frame<R>& frame = centroids.frame();
        float* const values = to.data();
        if (frame.packs_as_is())
            centroids.for_values(j, [&](Size f, R value) { values[f] = -float(value); });
        else
            centroids.for_values(
                j, [&](Size f, R value) { values[f] = float(frame.packed(f, value)); });
    }

    std::vector<Buffers> buffers_;
    std::vector<Size> order_;
};

}  // namespace exactmeans
