// Sums, counts and means of the clusters. Sums are exact (numerics/bins.hpp), so rows can be added
// and removed in any order, by any thread, any number of times: the same labels give the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/numerics/binned_sum.hpp"
#include "exactmeans/update/moves.hpp"

namespace exactmeans {

// Dense sums are k x d arrays, for dense and CSR rows. Sparse sums have only the features that
// occur in the cluster, for CSR rows; each thread that adds rows keeps an accumulator of d entries.
class Sums {
public:
    Sums(Size k, Size d, Bins grid, Bins weight_grid, bool sparse = false)
        : k_(k),
          d_(d),
          grid_(std::move(grid)),
          weight_grid_(std::move(weight_grid)),
          bins_(sparse ? 0 : std::size_t(k * d) * std::size_t(grid_.bins())),
          sparse_(sparse ? std::size_t(k) : 0, SparseSum(grid_.bins())),
          weight_bins_(std::size_t(k) * std::size_t(weight_grid_.bins())),
          members_(std::size_t(k)),
          touched_(std::size_t(k), 1) {
        if (sparse && d > largest_sparse_d)
            throw std::invalid_argument("X must have at most 2^31 columns");
    }

    Size k() const { return k_; }
    Size d() const { return d_; }
    bool sparse() const { return !sparse_.empty(); }
    const Bins& grid() const { return grid_; }
    const Bins& weight_grid() const { return weight_grid_; }
    const SparseSum& sparse_sum(Size j) const { return sparse_[std::size_t(j)]; }
    const std::vector<double>& weight_bins() const { return weight_bins_; }
    // k x bins x d
    std::vector<double> bins() const {
        if (!sparse()) return bins_;
        std::vector<double> out(std::size_t(k_ * d_) * std::size_t(grid_.bins()));
        for (Size j = 0; j < k_; ++j)
            for (Size t = 0; t < sparse_sum(j).size(); ++t)
                for (int w = 0; w < grid_.bins(); ++w)
                    out[std::size_t((j * grid_.bins() + w) * d_ +
                                    sparse_sum(j).features()[std::size_t(t)])] =
                        sparse_sum(j).plane(w)[t];
        return out;
    }
    // Rows of positive weight in each cluster.
    const std::vector<Size>& members() const { return members_; }
    bool any_empty() const {
        return std::find(members_.begin(), members_.end(), Size(0)) != members_.end();
    }

    void reset() {
        std::fill(bins_.begin(), bins_.end(), 0.0);
        for (SparseSum& sum : sparse_) sum.clear();
        std::fill(weight_bins_.begin(), weight_bins_.end(), 0.0);
        std::fill(members_.begin(), members_.end(), Size(0));
        std::fill(touched_.begin(), touched_.end(), char(1));
    }

    // Moves rows from the clusters `summed` (-1: in no sum yet) to the clusters `labels`, and sets
    // `summed` to these. Null `labels`: all rows go to cluster 0. After an exception the sums are
    // not valid until reset().
    template <class Rows>
    void relabel(const Rows& x, const std::int32_t* labels, std::int32_t* summed,
                 const Threads& threads) {
        const Moves moves(x.n, k_, labels, summed);
        const std::vector<Moves::Piece> pieces = moves.pieces(piece_length(x, moves.count()));
        accumulators_.resize(std::max(accumulators_.size(), std::size_t(threads.n_jobs)));
        std::mutex mutex;
        const bool alone = moves.count() * values_per_row(x) < cost::values_for_threads;
        const Size pieces_per_task = alone ? std::max<Size>(1, Size(pieces.size())) : 1;
        threads.ranges(Size(pieces.size()), pieces_per_task, [&](Size begin, Size end, int worker) {
            for (Size p = begin; p < end; ++p)
                add_piece(x, moves, pieces[std::size_t(p)], worker, mutex);
        });
    }

    // Adds (sign +1) or removes (-1) one row, to relocate rows to empty clusters and back.
    template <class Rows>
    void move(const Rows& x, Size i, Size cluster, double sign) {
        if (!sparse()) {
            row(cluster).add(x, i, sign);
        } else if constexpr (is_dense<Rows>) {
            throw std::invalid_argument("sparse sums take CSR rows only");
        } else {
            SparseSum row_sum(grid_.bins());
            std::vector<double> bins(std::size_t(grid_.bins()));
            const auto given = x.row(i);
            const double factor = sign * x.factor(i);
            for (Size t = 0; t < given.nonzeros; ++t) {
                const double value = contribution(factor, double(given.value[t]), grid_.scale());
                split_value(grid_, Size(given.index[t]), value,
                            [&](int w, double part) { bins[std::size_t(w)] = part; });
                row_sum.push(Size(given.index[t]), bins.data(), 1);
            }
            sparse_[std::size_t(cluster)].add(row_sum);
        }
        weight_row(cluster).add_value(0, sign * x.weight(i));
        members_[std::size_t(cluster)] += x.weight(i) > 0 ? Size(sign) : 0;
        touched_[std::size_t(cluster)] = 1;
    }

    // Adds the sums of other rows, which must have the same bins.
    void add(const Sums& other) {
        for (std::size_t t = 0; t < bins_.size(); ++t) bins_[t] += other.bins_[t];
        for (std::size_t j = 0; j < sparse_.size(); ++j) sparse_[j].add(other.sparse_[j]);
        for (std::size_t t = 0; t < weight_bins_.size(); ++t)
            weight_bins_[t] += other.weight_bins_[t];
        for (std::size_t j = 0; j < members_.size(); ++j) {
            members_[j] += other.members_[j];
            touched_[j] = 1;
        }
    }

    // Adds the sum, the weight and the number of other rows to cluster j: `sum` if sums are sparse,
    // else `bins`, an array of bins x d.
    void absorb(Size j, const SparseSum& sum, const double* bins, const double* weight_bins,
                Size members) {
        if (sparse()) sparse_[std::size_t(j)].add(sum);
        for (Size t = 0; !sparse() && t < d_ * grid_.bins(); ++t)
            bins_[std::size_t(j * d_ * grid_.bins() + t)] += bins[t];
        for (int w = 0; w < weight_grid_.bins(); ++w)
            weight_bins_[std::size_t(j * weight_grid_.bins() + w)] += weight_bins[w];
        members_[std::size_t(j)] += members;
        touched_[std::size_t(j)] = 1;
    }

    TwoSum total_weight(Size j) const { return weight_row(j).total(0); }
    double weight(Size j) const { return total_weight(j).sum; }

    // Has a row joined or left since clear_touched()?
    bool touched(Size j) const { return touched_[std::size_t(j)]; }
    void clear_touched() { std::fill(touched_.begin(), touched_.end(), char(0)); }

    // The cluster with the largest weight; the lowest index among equals.
    Size heaviest() const {
        Size best = 0;
        for (Size j = 1; j < k_; ++j)
            if (weight(j) > weight(best)) best = j;
        return best;
    }

    template <class R>
    void mean(Size j, R* out) const {
        if (sparse()) {
            SparseVector<R> sparse_mean;
            mean(j, sparse_mean);
            std::fill(out, out + d_, R(0));
            for (Size t = 0; t < sparse_mean.size(); ++t)
                out[sparse_mean.feature[std::size_t(t)]] = sparse_mean.value[std::size_t(t)];
        } else {
            means(
                j, plane(j, 0), grid_.bins() > 1 ? plane(j, 1) : nullptr, d_,
                [&](Size f) { return row(j).total(f); }, out);
        }
    }
    template <class R>
    void mean(Size j, SparseVector<R>& out) const {
        const SparseSum& sum = sparse_sum(j);
        out.feature = sum.features();
        out.value.resize(out.feature.size());
        const auto total_of = [&](Size t) {
            double bins[Bins::most];
            for (int w = 0; w < grid_.bins(); ++w) bins[w] = sum.plane(w)[t];
            return total(grid_, bins, 1);
        };
        means(j, sum.plane(0), grid_.bins() > 1 ? sum.plane(1) : nullptr, sum.size(), total_of,
              out.value.data());
        // Drop zeros: sums may cancel and means may underflow.
        if (std::find(out.value.begin(), out.value.end(), R(0)) == out.value.end()) return;
        std::size_t kept = 0;
        for (std::size_t t = 0; t < out.feature.size(); ++t) {
            out.feature[kept] = out.feature[t];
            out.value[kept] = out.value[t];
            kept += out.value[t] != 0;
        }
        out.feature.resize(kept);
        out.value.resize(kept);
    }

    // The means of all clusters; clusters without weight get the mean of the heaviest.
    template <class R>
    void average(R* centres) const {
        for (Size j = 0; j < k_; ++j) mean(weight(j) > 0 ? j : heaviest(), centres + j * d_);
    }

    // The scatter about the origin that cluster j with centre c explains: 2 (c - origin).(S_j - N_j
    // origin) - N_j |c - origin|^2, times 4^exponent. The total scatter minus the sum over all
    // clusters is the inertia, at a cost independent of n.
    template <class R>
    double explained(Size j, const R* centre, const double* origin, int exponent) const {
        const double* low = grid_.bins() > 1 ? plane(j, 1) : nullptr;
        return vector_kernels<R>().explained(centre, plane(j, 0), low, origin, d_, weight(j),
                                             std::ldexp(1.0, exponent),
                                             std::ldexp(1.0, exponent - grid_.exponent()));
    }
    // For origin 0: only the features of the centre contribute.
    template <class R>
    double explained(Size j, const SparseVector<R>& centre, int exponent) const {
        const SparseSum& sum = sparse_sum(j);
        const bool two = grid_.bins() > 1;
        const double *high = sum.plane(0), *low = two ? sum.plane(1) : nullptr;
        std::unique_ptr<double[]> own;
        if (centre.feature != sum.features()) {
            const Size n = centre.size();
            own = std::make_unique_for_overwrite<double[]>(std::size_t(two ? 2 * n : n));
            double *const own_high = own.get(), *const own_low = own_high + n;
            for_either(centre.feature, sum.features(), [&](std::uint32_t, Size c, Size s) {
                if (c < 0) return;
                own_high[c] = s < 0 ? 0.0 : high[s];
                if (two) own_low[c] = s < 0 ? 0.0 : low[s];
            });
            high = own_high;
            if (two) low = own_low;
        }
        return vector_kernels<R>().sparse_explained(
            centre.feature.data(), centre.value.data(), high, low, centre.size(), weight(j),
            std::ldexp(1.0, exponent), std::ldexp(1.0, exponent - grid_.exponent()));
    }

private:
    // One accumulator per worker. Copies of Sums start without accumulators.
    struct Accumulators : std::vector<std::unique_ptr<SparseAccumulator>> {
        Accumulators() = default;
        Accumulators(const Accumulators&) : Accumulators() {}
        Accumulators& operator=(const Accumulators&) { return *this; }
    };

    SumRow row(Size j) const {
        return SumRow(const_cast<double*>(bins_.data()) + j * d_ * grid_.bins(), d_, grid_);
    }
    SumRow weight_row(Size j) const {
        return SumRow(const_cast<double*>(weight_bins_.data()) + j * weight_grid_.bins(), 1,
                      weight_grid_);
    }

    // Rows per piece.
    template <class Rows>
    Size piece_length(const Rows& x, Size moves) const {
        constexpr Size least = cost::dense_piece_rows;
        if (sparse()) return cost::sparse_piece_rows;
        return std::clamp<Size>(cost::piece_values_per_feature * d_ / values_per_row(x), least,
                                std::max(least, moves));
    }

    // Means of `count` sums of cluster j: from the planes of one or two bins, or from total_of if
    // there are more.
    template <class R, class Total>
    void means(Size j, const double* high, const double* low, Size count, Total total_of,
               R* out) const {
        const TwoSum weight = total_weight(j);
        const double unscale = std::ldexp(1.0, -grid_.exponent());
        std::vector<double> highs, lows;
        for (Size t = 0; grid_.bins() > 2 && t < count; ++t) {
            const TwoSum sum = total_of(t);
            highs.push_back(sum.sum);
            lows.push_back(sum.error);
        }
        if (grid_.bins() > 2) high = highs.data(), low = lows.data();
        vector_kernels<R>().mean(high, low, weight.sum, weight.error, unscale, count, out);
    }

    template <class Rows>
    void add_piece(const Rows& x, const Moves& moves, const Moves::Piece& piece, int worker,
                   std::mutex& mutex) {
        const bool own_sum = !sparse() && piece.shared;
        std::vector<double> own(own_sum ? std::size_t(d_ * grid_.bins()) : 0);
        SumRow sums = own_sum ? SumRow(own.data(), d_, grid_) : row(sparse() ? 0 : piece.centre);
        std::vector<double> own_weight(std::size_t(weight_grid_.bins()));
        SumRow weights(own_weight.data(), 1, weight_grid_);
        std::unique_ptr<SparseAccumulator>& accumulator = accumulators_[std::size_t(worker)];
        if (sparse() && !accumulator)
            accumulator = std::make_unique<SparseAccumulator>(d_, grid_.bins());
        Size members = 0, entries = 0;
        for (Size at = piece.begin; at < piece.end; ++at) {
            const Size entry = moves.rows[std::size_t(at)], i = entry >> 1;
            x.prefetch(moves.rows[std::size_t(std::min(at + cost::prefetch_rows, piece.end - 1))] >>
                       1);
            const double sign = entry & 1 ? -1.0 : 1.0;
            if (!sparse())
                sums.add(x, i, sign);
            else if constexpr (!is_dense<Rows>)
                entries += accumulate_row(*accumulator, grid_, x, i, sign);
            else
                throw std::invalid_argument("sparse sums take CSR rows only");
            weights.add_value(0, sign * x.weight(i));
            members += x.weight(i) > 0 ? Size(sign) : 0;
        }
        SparseSum part(grid_.bins());
        if (sparse() && piece.shared) part.take(*accumulator);
        if (sparse() && !piece.shared)
            sparse_[std::size_t(piece.centre)].add(*accumulator, entries);
        const std::lock_guard lock(mutex);
        if (sparse() && piece.shared) sparse_[std::size_t(piece.centre)].add(std::move(part));
        double* to = bins_.data() + piece.centre * d_ * grid_.bins();
        for (std::size_t t = 0; t < own.size(); ++t) to[t] += own[t];
        double* to_weight = weight_bins_.data() + piece.centre * weight_grid_.bins();
        for (std::size_t w = 0; w < own_weight.size(); ++w) to_weight[w] += own_weight[w];
        members_[std::size_t(piece.centre)] += members;
        touched_[std::size_t(piece.centre)] = 1;
    }

    const double* plane(Size j, int w) const { return bins_.data() + (j * grid_.bins() + w) * d_; }

    Size k_, d_;
    Bins grid_, weight_grid_;
    std::vector<double> bins_;         // dense sums: k x bins x d
    std::vector<SparseSum> sparse_;    // sparse sums
    std::vector<double> weight_bins_;  // k x bins
    std::vector<Size> members_;
    std::vector<char> touched_;
    Accumulators accumulators_;
};

}  // namespace exactmeans
