// The m nearest centres of each row, with their distances, without a matrix of rows by centres.
//
// Canonical scores decide which centres are nearest and in which order, so the first one is the
// row's label. The distances have the bits that transform gives for the same pairs: they come from
// float64 scores of these pairs. For dense rows the 8-bit filter lists the centres that may be
// among the nearest, and only these get canonical scores.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/evaluate/distances.hpp"
#include "exactmeans/evaluate/nearest_filter.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/scan/all_scores.hpp"

namespace exactmeans {

// Writes the m lowest of k scores, lowest first; of equal scores, the lowest index. Scores that are
// not numbers count as infinite.
template <class R>
class LowestScores {
public:
    void select(const R* scores, Size k, Size m, std::int32_t* out) {
        if (m <= 2 && select_two(scores, k, m, out)) return;
        constexpr R infinity = std::numeric_limits<R>::infinity();
        order_.resize(std::size_t(k));
        std::iota(order_.begin(), order_.end(), 0);
        const auto value = [&](std::int32_t j) {
            return scores[j] < infinity ? scores[j] : infinity;
        };
        std::partial_sort(order_.begin(), order_.begin() + m, order_.end(),
                          [&](std::int32_t a, std::int32_t b) {
                              return value(a) < value(b) || (!(value(b) < value(a)) && a < b);
                          });
        std::copy_n(order_.begin(), m, out);
    }

private:
    // Returns false if one of the two lowest is not finite: the kernel ignores such scores.
    static bool select_two(const R* scores, Size k, Size m, std::int32_t* out) {
        R low, second;
        score_kernels<R>().lowest_two(scores, 1, k, {out, &low, &second});
        if (!(std::abs(low) < std::numeric_limits<R>::infinity())) return false;
        if (m == 1) return true;
        if (!(second < std::numeric_limits<R>::infinity())) return false;
        constexpr Size step = 16;  // one branch for 16 scores, so that the loop vectorises
        for (Size begin = 0; begin < k; begin += step) {
            const Size end = std::min(k, begin + step);
            int equal = 0;
            for (Size j = begin; j < end; ++j) equal += scores[j] == second;
            for (Size j = begin; equal && j < end; ++j)
                if (scores[j] == second && j != out[0]) {
                    out[1] = std::int32_t(j);
                    return true;
                }
        }
        return false;
    }

    std::vector<std::int32_t> order_;
};

// The centres in float64, for the scores that distances come from.
template <class R>
struct PairCentres {
    Centres<double> scaled;
    double scale;
    std::vector<double> packed;  // for dense rows: k x d, as kernels read them

    PairCentres(const Points<R>& points, const R* shift, bool dense, const Threads& threads)
        : scaled(scaled_centroids(points, distance_frame(points, shift), threads)),
          scale(points.scale) {
        packed.resize(std::size_t(dense ? points.k * points.d : 0));
        for (Size j = 0; dense && j < points.k; ++j)
            scaled.for_values(j, [&](Size f, double c) {
                packed[std::size_t(j * points.d + f)] = scaled.frame().packed(f, c);
            });
    }
};

// float64 scores of the chosen pairs of a batch of rows, as transform computes them for all pairs.
// One for each thread.
template <class Rows>
class PairScores {
public:
    using R = typename Rows::Real;

    // Computes the squared lengths of the rows, and out[t * m + r]: the score of row begin + t and
    // centre labels[t * m + r].
    void run(const Rows& x, Size begin, Size count, const PairCentres<R>& centres, Size m,
             const std::int32_t* labels, double* out) {
        const Centres<double>& centroids = centres.scaled;
        const bool l1 = centroids.frame().metric == Metric::manhattan;
        if constexpr (is_dense<Rows>) {
            rows_.load(x, begin, count, centres.scale, centroids.frame().shift_or_null(), {});
            if (!l1) return dense_scores(count, centres, m, labels, out);
        } else {
            rows_.measure(x, begin, count, centres.scale);
        }
        for (Size t = 0; t < count; ++t)
            for (Size p = t * m; p < (t + 1) * m; ++p) {
                const Size j = labels[p];
                if constexpr (is_dense<Rows>)
                    out[p] = dense_l1(rows_.row(t), centres.packed.data() + j * x.d, x.d);
                else
                    out[p] = l1 ? stored_l1(x.row(begin + t), centroids, j)
                                : stored_score(x.row(begin + t), centres, j);
            }
    }
    double norm2(Size t) const { return rows_.norm2(t); }

private:
    void dense_scores(Size count, const PairCentres<R>& centres, Size m, const std::int32_t* labels,
                      double* out) {
        const Size pairs = count * m, d = centres.scaled.d();
        row_.resize(std::size_t(pairs));
        centre_.resize(std::size_t(pairs));
        value_.resize(std::size_t(pairs));
        std::size_t p = 0;
        for (Size t = 0; t < count; ++t)
            for (Size r = 0; r < m; ++r, ++p) {
                row_[p] = rows_.row(t);
                centre_[p] = centres.packed.data() + labels[p] * d;
                value_[p] = centres.scaled.score_offset()[labels[p]];
            }
        score_kernels<double>().pairs_dense(row_.data(), centre_.data(), value_.data(), pairs, d,
                                            out);
    }
    static double dense_l1(const double* row, const double* centre, Size d) {
        double score = 0;
        for (Size f = 0; f < d; ++f) score += std::fabs(row[f] + centre[f]);
        return score;
    }
    template <class Row>
    double stored_score(const Row& row, const PairCentres<R>& centres, Size j) {
        value_.assign(row.value, row.value + row.nonzeros);
        for (double& value : value_) value *= centres.scale;
        const SparseRow own{row.index, static_cast<const double*>(value_.data()), row.nonzeros};
        return score_of_(centres.scaled, own, j);
    }
    template <class Row>
    double stored_l1(const Row& row, const Centres<double>& centroids, Size j) {
        value_.resize(std::size_t(row.nonzeros));
        centroids.values_at(j, row.index, row.nonzeros, value_.data());
        double score = 0;
        for (Size t = 0; t < row.nonzeros; ++t) {
            const double c = value_[std::size_t(t)];
            score += std::fabs(double(row.value[t]) - c) - std::fabs(c);
        }
        return score + centroids.score_offset()[j];
    }

    DoubleRows rows_;
    std::vector<const double*> row_, centre_;
    std::vector<double> value_;
    CanonicalScore<double> score_of_;
};

// Are canonical scores of these centres the float64 scores that distances come from?
template <class R>
bool scores_are_distances(const Centres<R>& centroids, const Points<R>& points) {
    const Frame<R>& frame = centroids.frame();
    return std::is_same_v<R, double> && points.scale == 1 && !centroids.norms_given() &&
           (frame.metric == Metric::manhattan || (frame.exponent == 0 && frame.packing == 0));
}

// Rows whose scores are computed at a time: at most two register tiles of dense rows. CSR rows come
// in larger batches, because each batch reads the panels once.
template <class Rows>
Size nearest_batch(Size k) {
    const Size rows = cost::nearest_score_bytes / (k * Size(sizeof(typename Rows::Real)));
    return is_dense<Rows>
               ? std::clamp<Size>(rows / dense_tile_rows * dense_tile_rows, 16, 2 * dense_tile_rows)
               : std::clamp<Size>(rows, 64, cost::nearest_csr_rows);
}

// A call, shared by all its batches. `points` are the same centres as `centroids`, without scaling.
template <class Rows>
struct NearestQuery {
    using R = typename Rows::Real;

    const Rows& x;
    const Centres<R>& centroids;
    const Points<R>& points;
    Size m;
    HeldPanels<R> panels;
    PairCentres<R> pairs;
    NearestFilter<Rows> filter;

    NearestQuery(const Rows& rows, SharedCentres<R>& shared, const Points<R>& same, Size count,
                 const Threads& threads)
        : x(rows),
          centroids(shared.centres),
          points(same),
          m(count),
          panels(shared.layouts.panels(centroids, is_dense<Rows>, threads)),
          pairs(same, centroids.frame().shift_or_null(), is_dense<Rows>, threads),
          filter(rows, centroids, count, threads) {}
};

// Finds the nearest centres of a batch of rows. Buffers of one thread.
template <class Rows>
class NearestBatch {
public:
    using R = typename Rows::Real;

    // Writes labels and distances of rows [begin, begin + count): count x m.
    void run(const NearestQuery<Rows>& query, Size begin, Size count, std::int32_t* labels,
             R* distances) {
        const Size m = query.m;
        const bool known = scores_are_distances(query.centroids, query.points);
        chosen_.resize(std::size_t(count * m));
        if (query.filter.used())
            choose_filtered(query, begin, count, labels);
        else
            choose(query, begin, count, labels, chosen_.data());
        if (!known) pair_scores_.run(query.x, begin, count, query.pairs, m, labels, chosen_.data());
        for (Size t = 0; t < count; ++t) {
            const double norm2 =
                known ? scores_.norm2(query.x, begin + t, t, 1.0) : pair_scores_.norm2(t);
            for (Size p = t * m; p < (t + 1) * m; ++p)
                distances[p] =
                    R(distance_by_score(query.x, begin + t, norm2, query.pairs.scaled, query.points,
                                        labels[p], chosen_[std::size_t(p)]));
        }
    }

private:
    // The m nearest centres of each row, and their canonical scores in `chosen`.
    void choose(const NearestQuery<Rows>& query, Size begin, Size count, std::int32_t* labels,
                double* chosen) {
        const Size k = query.centroids.k(), m = query.m;
        scores_.run(query.x, query.centroids, query.panels, begin, nullptr, count);
        for (Size t = 0; t < count; ++t) {
            const R* const scores = scores_.of_row(t);
            lowest_.select(scores, k, m, labels + t * m);
            for (Size p = t * m; p < (t + 1) * m; ++p) chosen[p] = double(scores[labels[p]]);
        }
    }

    // The same among the candidates of the filter. Rows with too many of these are compared with
    // all centres.
    void choose_filtered(const NearestQuery<Rows>& query, Size begin, Size count,
                         std::int32_t* labels) {
        if constexpr (is_dense<Rows>) {
            const Size m = query.m;
            const bool known = scores_are_distances(query.centroids, query.points);
            candidates_.compute(query.filter.input(), begin, nullptr, count);
            undecided_.clear();
            for (Size t = 0; t < count; ++t)
                if (!candidates_.nearest(query.filter.input(), begin + t, t, m, labels + t * m,
                                         known ? chosen_.data() + t * m : nullptr))
                    undecided_.push_back(t);
            for (const Size t : undecided_)
                choose(query, begin + t, 1, labels + t * m, chosen_.data() + t * m);
            if (known)  // for AllScores::norm2
                scores_.load(query.x, query.centroids, begin, nullptr, count);
        }
    }

    AllScores<Rows> scores_;
    std::vector<double> chosen_;
    LowestScores<R> lowest_;
    PairScores<Rows> pair_scores_;
    NearestCandidates<R> candidates_;  // dense rows
    std::vector<Size> undecided_;      // rows that are compared with all centres
};

// labels and distances: n x m, nearest first.
template <class Rows>
void nearest_centres(const NearestQuery<Rows>& query, std::int32_t* labels,
                     typename Rows::Real* distances, const Threads& threads) {
    std::vector<NearestBatch<Rows>> batches(static_cast<std::size_t>(threads.n_jobs));
    Size batch = nearest_batch<Rows>(query.centroids.k());
    if constexpr (is_dense<Rows>)
        if (query.filter.used()) batch = query.filter.rows_per_call();
    threads.ranges(query.x.n, batch, [&](Size begin, Size end, int worker) {
        const Size at = begin * query.m;
        batches[std::size_t(worker)].run(query, begin, end - begin, labels + at, distances + at);
    });
}

}  // namespace exactmeans
