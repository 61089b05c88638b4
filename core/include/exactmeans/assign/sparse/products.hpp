// Products of all rows with all centres, kept from pass to pass and updated when the centres move.
// There is no paper; docs/proofs/kept_products.md has the proof.
//
// Late in a fit few rows change cluster. A centre b then changes by a factor, and otherwise only in
// the features of those rows: c = a b + e with a sparse e (assign/sparse/centre_change.hpp). So x.c
// is a x.b + x.e, and x.e is nonzero only for rows that share a feature with e. A transposed copy
// of the rows lists them. The triangle inequality is not used, so rows may be far from all centres,
// as texts are. Memory: four bytes per row and centre, and a copy of the rows.
//
// The products are float32. Their roundings are added up to an error bound per centre. If the error
// could change the label of a row, the row is compared by canonical scores with the centres that
// may be nearest.
//
//   symbol in docs/proofs/kept_products.md        here
//   p, the kept product of a row and a centre     product(i, j)
//   σ, the product of all factors                 factor_[j]
//   E, the error of x.c in units of |x|           error_[j]
//   C, C₀, the longest centre now and at restart  longest_, longest_at_restart_
//   off, the error of a score by products         computed in apart()
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/assign/sparse/centre_change.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/transposed_rows.hpp"
#include "exactmeans/filter/verify_candidates.hpp"

namespace exactmeans {

template <class R>
class Products {
public:
    using Real = R;
    static constexpr Traits traits{"products", "products with all centres, updated with them",
                                   false, true};
    static Size bytes_per_row(Size k, Size, bool) {
        return 4 * k + 4 + RowSlacks<R>::bytes_per_row;
    }

    Products(Size n, Size k)
        : n_(n),
          k_(k),
          factor_(std::size_t(k)),
          error_(std::size_t(k)),
          score_offset_(std::size_t(k)),
          scale_(std::size_t(k)),
          moved_in_(std::size_t(k)) {}

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        work.measure_rows(threads);
        unit_ = work.slacks.unit();
        longest_ = 0;
        for (Size j = 0; j < k_; ++j)
            longest_ = std::max(longest_, std::sqrt(work.centroids.norm2(j)) * unit_ * Slack::up);
        // Conversions between scales beyond these would overflow or underflow.
        const double scale = unit_ * work.centroids.frame().scale();
        if (!(scale > 0x1p-900 && scale < 0x1p900))
            longest_ = std::numeric_limits<double>::infinity();
        fresh_ = products_.empty() || longest_ > largest || !update(work, threads);
        if (fresh_) {
            work.pack_centres(threads);
            restart(work.centroids);
            return;
        }
        decide(work, threads);
        // Many uncertain rows are compared with all centres by the kernels, a few with their
        // candidates one by one.
        if (Size(uncertain_.size()) > n_ / cost::uncertain_share + cost::uncertain_rows)
            work.pack_centres(threads);
    }

    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>& scan, Size begin, Size end) {
        AssignStats stats;
        const auto put = [&](Size i, std::int32_t label) {
            stats.changed += work.labels[i] != label;
            work.labels[i] = label;
        };
        if (fresh_) {
            scan.nearest_with_scores(work, begin, end - begin,
                                     [&](Size t, Size some, const R* scores) {
                                         if (!products_.empty())
                                             store(work, begin + t, some, scores);
                                     });
            for (Size i = begin; i < end; ++i) put(i, scan.label[std::size_t(i - begin)]);
            stats.distances = (end - begin) * k_;
            return stats;
        }
        const auto from = std::lower_bound(uncertain_.begin(), uncertain_.end(), begin),
                   to = std::lower_bound(from, uncertain_.end(), end);
        const Size count = Size(to - from);
        if (count > 0 && work.panels.count > 0) {
            scan.nearest(work, 0, &*from, count, false);
            stats.distances = count * k_;
            for (Size t = 0; t < count; ++t)
                next_[std::size_t(from[t])] = scan.label[std::size_t(t)];
        } else {
            CanonicalScore<R> score_of;
            std::vector<std::int32_t> candidates;
            for (auto i = from; i != to; ++i) {
                list_candidates(work, *i, candidates);
                stats.distances += Size(candidates.size());
                next_[std::size_t(*i)] =
                    verify_candidates<R>(score_of, work.centroids, work.x.row(*i), candidates)
                        .label;
            }
        }
        for (Size i = begin; i < end; ++i) put(i, next_[std::size_t(i)]);
        stats.skipped = end - begin - count;
        return stats;
    }

    void moved(const Movement&) {}

private:
    static constexpr double single = 0x1p-24;  // one rounding of a stored product
    // The length of centres, in units, up to which products stay in the range of float32.
    static constexpr double largest = 0x1p40;

    // Updates the products if that is cheaper than computing all scores; else returns false.
    template <class Rows>
    bool update(const Work<Rows>& work, const Threads& threads) {
        if (!rows_) rows_ = std::make_unique<TransposedRows<R>>(work.x, threads);
        std::vector<Change> changes(static_cast<std::size_t>(k_));
        std::vector<double> product_updates(changes.size());
        const double scale = unit_ * work.centroids.frame().scale();
        threads.ranges(k_, 1, [&](Size j, Size, int) {
            if (moved_in_[std::size_t(j)] == work.centroids.moved_in(j)) return;
            SparseVector<R> buffer;
            const SparseVector<R>& now = work.centroids.nonzeros(j, buffer);
            SparseVector<R>& before = centres_[std::size_t(j)];
            Change& change = changes[std::size_t(j)];
            change = change_of(before, now, scale);
            for (const auto& slab : rows_->slabs())
                for (const std::size_t f : change.feature)
                    product_updates[std::size_t(j)] +=
                        double(slab.offsets[f + 1] - slab.offsets[f]);
            before = now;
            moved_in_[std::size_t(j)] = work.centroids.moved_in(j);
        });
        // An update of one product costs as much as several terms of a score, which kernels compute
        // with SIMD. Posting lists, used for large centres, make these terms more expensive.
        const bool lists =
            double(k_) * double(work.x.d) * double(sizeof(R)) > cost::cached_layout_bytes;
        const double terms =
            double(k_) * (double(work.x.nonzeros()) + cost::csr_score_cost * double(n_));
        const double updates = std::accumulate(product_updates.begin(), product_updates.end(), 0.0);
        const double update =
            lists ? cost::product_update_cost_postings : cost::product_update_cost;
        if (updates * update / double(sizeof(R)) > terms) return false;
        apply(changes, work.x.d, scale, threads);
        return true;
    }

    void apply(const std::vector<Change>& changes, Size d, double scale, const Threads& threads) {
        for (std::size_t j = 0; j < changes.size(); ++j) {
            const Change& change = changes[j];
            if (!change.any) continue;
            factor_[j] *= change.factor;
            // Rounding of the change and of its sums in float64, and of the product in float32.
            const double rounded = double(d + 16) * 0x1p-52 * (change.length + 5 * longest_);
            error_[j] =
                (error_[j] * change.factor + change.lost + 2 * single * longest_ + rounded) *
                Slack::up;
        }
        std::vector<std::vector<double>> sums(static_cast<std::size_t>(threads.n_jobs));
        threads.run(Size(rows_->slabs().size()), [&](Size s, int worker) {
            const auto& slab = rows_->slabs()[std::size_t(s)];
            std::vector<double>& sum = sums[std::size_t(worker)];
            for (std::size_t j = 0; j < changes.size(); ++j) {
                const Change& change = changes[j];
                if (change.feature.empty()) continue;
                sum.assign(std::size_t(slab.end - slab.begin), 0.0);
                slab.walk(change.feature, [&](std::size_t c, std::size_t f) {
                    const double value = change.value[c];
                    for (std::uint32_t t = slab.offsets[f]; t < slab.offsets[f + 1]; ++t)
                        sum[slab.row[t]] += double(slab.value[t]) * value;
                });
                const double by = scale / factor_[j];
                for (Size i = slab.begin; i < slab.end; ++i) {
                    float& stored = product(i, Size(j));
                    stored = float(double(stored) + sum[std::size_t(i - slab.begin)] * by);
                }
            }
        });
    }

    // Prepares a pass that computes all products. It keeps none if they could leave the range of
    // float32.
    void restart(const Centres<R>& centroids) {
        const Size rows = (n_ + bound_tile - 1) / bound_tile * bound_tile;
        products_.resize(longest_ > largest ? 0 : std::size_t(rows * k_));
        next_.resize(std::size_t(n_));
        centres_.resize(std::size_t(k_));
        for (Size j = 0; j < k_; ++j) {
            centres_[std::size_t(j)] = centroids.nonzeros(j);
            moved_in_[std::size_t(j)] = centroids.moved_in(j);
        }
        std::fill(factor_.begin(), factor_.end(), 1.0);
        std::fill(error_.begin(), error_.end(), 2 * single * longest_);
        longest_at_restart_ = longest_;
    }
    template <class Rows>
    void store(const Work<Rows>& work, Size first, Size count, const R* scores) {
        const R* score_offset = work.centroids.score_offset();
        const double unit2 = unit_ * unit_;
        for (Size j = 0; j < k_; ++j)
            for (Size t = 0; t < count; ++t)
                product(first + t, j) =
                    float((double(score_offset[j]) - double(scores[t * k_ + j])) * unit2);
    }

    // Finds the nearest centre of each row by the stored products, and the rows for which it is
    // uncertain.
    template <class Rows>
    void decide(const Work<Rows>& work, const Threads& threads) {
        const double unit2 = unit_ * unit_;
        largest_factor_ = *std::max_element(factor_.begin(), factor_.end());
        largest_error_ = *std::max_element(error_.begin(), error_.end());
        for (Size j = 0; j < k_; ++j) {
            score_offset_[std::size_t(j)] = float(double(work.centroids.score_offset()[j]) * unit2);
            scale_[std::size_t(j)] = float(factor_[std::size_t(j)]);
        }
        const ScoredRows<R> scored = work.slacks.scored();
        const Size tiles = (n_ + bound_tile - 1) / bound_tile, step = cost::product_tiles_per_task;
        std::vector<std::vector<Size>> uncertain(
            static_cast<std::size_t>((tiles + step - 1) / step));
        threads.ranges(tiles, step, [&](Size begin, Size end, int) {
            float low[bound_tile], second[bound_tile], label[bound_tile];
            for (Size tile = begin; tile < end; ++tile) {
                bound_kernels().lowest_in_tile(products_.data() + tile * bound_tile * k_,
                                               score_offset_.data(), scale_.data(), k_, low, second,
                                               label);
                const Size first = tile * bound_tile, count = std::min(bound_tile, n_ - first);
                for (Size t = 0; t < count; ++t) {
                    next_[std::size_t(first + t)] = std::int32_t(label[t]);
                    if (!apart(scored, first + t, low[t], second[t]))
                        uncertain[std::size_t(begin / step)].push_back(first + t);
                }
            }
        });
        uncertain_.clear();
        for (const auto& rows : uncertain)
            uncertain_.insert(uncertain_.end(), rows.begin(), rows.end());
    }

    // Is a centre of score `far` certain to have a higher canonical score than one of score `low`?
    // Both scores come from stored products.
    bool apart(const ScoredRows<R>& rows, Size i, double low, double far) const {
        const double norm = double(rows.margins.norm[i]), gamma = double(rows.margins.gamma[i]);
        const double underflow = double(rows.margins.absolute) + double(rows.margins.lost) * norm;
        const auto terms = [&](double length) { return (0.5 * length + norm) * length; };
        const double off = gamma * largest_factor_ * terms(longest_at_restart_) +
                           norm * largest_error_ + 8 * single * (terms(longest_) + norm * norm) +
                           largest_factor_ * underflow + 0x1p-100;
        const double norm2 = double(rows.norm2[i]) * double(rows.unit2);
        const double high2 = std::max(0.0, norm2 + 2 * (low + off)), low2 = norm2 + 2 * (far - off);
        const double both = norm + std::sqrt(high2);
        return low2 * Slack::down > (high2 + 7 * gamma * both * both + 2 * underflow) * Slack::up;
    }

    // The centres that are not certain to lose on canonical scores.
    template <class Rows>
    void list_candidates(const Work<Rows>& work, Size i,
                         std::vector<std::int32_t>& candidates) const {
        const ScoredRows<R> scored = work.slacks.scored();
        const auto score_by_product = [&](Size j) {
            return double(score_offset_[std::size_t(j)]) -
                   double(scale_[std::size_t(j)]) * double(products_[position(i, j)]);
        };
        const double low = score_by_product(next_[std::size_t(i)]);
        candidates.clear();
        for (Size j = 0; j < k_; ++j)
            if (!apart(scored, i, low, score_by_product(j))) candidates.push_back(std::int32_t(j));
    }

    // Position of a product. Rows form tiles of bound_tile rows; within a tile, the products of one
    // centre are contiguous.
    std::size_t position(Size i, Size j) const {
        return std::size_t((i / bound_tile * k_ + j) * bound_tile + i % bound_tile);
    }
    float& product(Size i, Size j) { return products_[position(i, j)]; }

    Size n_, k_;
    bool fresh_ = true;
    double unit_ = 1;
    double longest_ = 0, longest_at_restart_ = 0;  // length of the longest centre
    double largest_factor_ = 1, largest_error_ = 0;
    // x.c = factor * product, off by at most error |x| plus the error of the first scores.
    std::vector<double> factor_, error_;
    std::vector<float> products_, score_offset_, scale_;
    std::vector<SparseVector<R>> centres_;  // of the stored products
    std::vector<Size> moved_in_;            // Centres::moved_in of these
    std::unique_ptr<TransposedRows<R>> rows_;
    std::vector<std::int32_t> next_;
    std::vector<Size> uncertain_;
};

}  // namespace exactmeans
