// Sums, counts and means of the clusters. Sums are exact (grid.hpp), so rows may be added and
// removed in any order, by any thread, for ever: the same labels always give the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "exactmeans/compensated.hpp"
#include "exactmeans/grid.hpp"
#include "exactmeans/kernels.hpp"
#include "exactmeans/parallel.hpp"
#include "exactmeans/rows.hpp"

namespace exactmeans {

// Word planes of one vector of sums: plane w starts at words + w * columns.
class SumRow {
public:
    SumRow(double* words, Size columns, const Grid& grid)
        : words_(words), d_(columns), grid_(&grid) {}

    // Adds row i; sign is +1 or -1.
    template <class R>
    void add(const DenseRows<R>& x, Size i, double sign) {
        const Grid& grid = *grid_;
        const R* row = x.data + i * x.row_stride;
        const double factor = sign * x.weight(i);
        // The product is rounded once and the sum not at all, so sign * weight commutes with both.
        if (x.col_stride == 1 && grid.words() == 1 && grid.exponent() == 0)
            kernels<R>().add_row(words_, row, factor, d_);
        else if (x.col_stride == 1 && grid.words() == 2)
            kernels<R>().add_row2(words_, words_ + d_, row, grid.magic_row(0), grid.per_column(),
                                  factor, grid.scale(), d_);
        else
            for (Size f = 0; f < d_; ++f)
                add_value(f, sign * contribution(x, i, x.at(i, f), grid.scale()));
    }

    template <class R, class I>
    void add(const CsrRows<R, I>& x, Size i, double sign) {
        const auto row = x.row(i);
        const double scale = grid_->scale();
        for (Size t = 0; t < row.nonzeros; ++t)
            add_value(Size(row.index[t]), sign * contribution(x, i, double(row.value[t]), scale));
    }

    void add_value(Size f, double value) {
        const int last = grid_->words() - 1;
        const Size column = grid_->per_column() ? f : 0;
        for (int w = 0; w < last; ++w) {
            const double magic = grid_->magic_row(w)[column];
            const double part = (value + magic) - magic;
            words_[w * d_ + f] += part;
            value -= part;
        }
        words_[last * d_ + f] += value;
    }

    // The exact sum as an unevaluated high + low, to twice the precision of a double.
    TwoSum total(Size f) const {
        const int last = grid_->words() - 1;
        TwoSum sum(words_[last * d_ + f], 0.0);
        for (int w = last - 1; w >= 0; --w) {
            const TwoSum next(words_[w * d_ + f], sum.sum);
            sum = TwoSum(next.sum, next.error + sum.error);
        }
        return sum;
    }

private:
    double* words_;
    Size d_;
    const Grid* grid_;
};

class Sums {
public:
    Sums(Size k, Size d, Grid grid, Grid weight_grid)
        : k_(k),
          d_(d),
          grid_(std::move(grid)),
          weight_grid_(std::move(weight_grid)),
          words_(std::size_t(k * d) * std::size_t(grid_.words())),
          weight_words_(std::size_t(k) * std::size_t(weight_grid_.words())),
          members_(std::size_t(k)),
          touched_(std::size_t(k), 1) {}

    Size k() const { return k_; }
    Size d() const { return d_; }
    const Grid& grid() const { return grid_; }
    const std::vector<double>& words() const { return words_; }
    const std::vector<double>& weight_words() const { return weight_words_; }
    // Rows of positive weight in each cluster.
    const std::vector<Size>& members() const { return members_; }
    bool any_empty() const {
        return std::find(members_.begin(), members_.end(), Size(0)) != members_.end();
    }

    void reset() {
        std::fill(words_.begin(), words_.end(), 0.0);
        std::fill(weight_words_.begin(), weight_words_.end(), 0.0);
        std::fill(members_.begin(), members_.end(), Size(0));
        std::fill(touched_.begin(), touched_.end(), char(1));
    }

    // Makes the sums stand for `labels` instead of `summed` (-1: not in any sum yet), which is
    // updated. A null `labels` puts every row into cluster 0.
    template <class Rows>
    void relabel(const Rows& x, const std::int32_t* labels, std::int32_t* summed,
                 const Threads& threads) {
        const Moves moves = collect(x.n, labels, summed);
        const Size step = piece_length(x, Size(moves.rows.size()));
        std::vector<Piece> pieces;
        for (Size j = 0; j < k_; ++j) {
            const Size begin = moves.start[std::size_t(j)], end = moves.start[std::size_t(j + 1)];
            const bool shared = end - begin > step;
            for (Size at = begin; at < end; at += step)
                pieces.push_back({j, at, std::min(at + step, end), shared});
        }
        std::sort(pieces.begin(), pieces.end(),
                  [](const Piece& a, const Piece& b) { return a.end - a.begin > b.end - b.begin; });
        std::mutex mutex;
        // Small pieces go together, so that a thread is woken for a worthwhile amount of work only.
        const Size work = std::max<Size>(1, Size(moves.rows.size()) * values_per_row(x));
        const Size together = std::max<Size>(1, 16384 * Size(pieces.size()) / work);
        threads.ranges(Size(pieces.size()), together, [&](Size begin, Size end, int) {
            for (Size p = begin; p < end; ++p) add_piece(x, moves, pieces[std::size_t(p)], mutex);
        });
    }

    // Adds (sign +1) or removes (-1) one row; used to move rows into empty clusters and back.
    template <class Rows>
    void move(const Rows& x, Size i, Size cluster, double sign) {
        row(cluster).add(x, i, sign);
        weight_row(cluster).add_value(0, sign * x.weight(i));
        members_[std::size_t(cluster)] += x.weight(i) > 0 ? Size(sign) : 0;
        touched_[std::size_t(cluster)] = 1;
    }

    // Adds the sums of other rows, collected elsewhere on the same grid.
    void add(const Sums& other) {
        for (std::size_t t = 0; t < words_.size(); ++t) words_[t] += other.words_[t];
        for (std::size_t t = 0; t < weight_words_.size(); ++t)
            weight_words_[t] += other.weight_words_[t];
        for (std::size_t j = 0; j < members_.size(); ++j) {
            members_[j] += other.members_[j];
            touched_[j] = 1;
        }
    }

    double weight(Size j) const { return weight_row(j).total(0).sum; }

    // Has a row come or gone since settle() was called?
    bool touched(Size j) const { return touched_[std::size_t(j)]; }
    void settle() { std::fill(touched_.begin(), touched_.end(), char(0)); }

    // The lowest of those with the largest weight.
    Size heaviest() const {
        Size best = 0;
        for (Size j = 1; j < k_; ++j)
            if (weight(j) > weight(best)) best = j;
        return best;
    }

    template <class R>
    void mean(Size j, R* out) const {
        const TwoSum weight = weight_row(j).total(0);
        const double back = std::ldexp(1.0, -grid_.exponent());
        if (grid_.words() <= 2) {
            const double* low = grid_.words() == 2 ? plane(j, 1) : nullptr;
            kernels<R>().mean(plane(j, 0), low, weight.sum, weight.error, back, d_, out);
            return;
        }
        std::vector<double> high(static_cast<std::size_t>(d_)), low(static_cast<std::size_t>(d_));
        const SumRow sums = row(j);
        for (Size f = 0; f < d_; ++f) {
            const TwoSum sum = sums.total(f);
            high[std::size_t(f)] = sum.sum;
            low[std::size_t(f)] = sum.error;
        }
        kernels<R>().mean(high.data(), low.data(), weight.sum, weight.error, back, d_, out);
    }

    // The means of all clusters; those without weight get the heaviest one's.
    template <class R>
    void average(R* centres) const {
        for (Size j = 0; j < k_; ++j) mean(weight(j) > 0 ? j : heaviest(), centres + j * d_);
    }

    // 2 (c - origin).(S_j - N_j origin) - N_j |c - origin|^2, times 4^exponent: what cluster j,
    // with centre c, explains of the scatter about origin. The scatter minus the sum of these is
    // the inertia, at a cost that does not depend on n.
    template <class R>
    double explained(Size j, const R* centre, const double* origin, int exponent) const {
        const double* low = grid_.words() > 1 ? plane(j, 1) : nullptr;
        return kernels<R>().explained(centre, plane(j, 0), low, origin, d_, weight(j),
                                      std::ldexp(1.0, exponent),
                                      std::ldexp(1.0, exponent - grid_.exponent()));
    }

private:
    // Rows to add or remove, grouped by centre; an entry is 2 * row + (1 if it is to be removed).
    struct Moves {
        std::vector<Size> rows;
        std::vector<Size> start;
    };
    struct Piece {
        Size centre, begin, end;
        bool shared;  // other pieces have the same centre
    };

    SumRow row(Size j) const {
        return SumRow(const_cast<double*>(words_.data()) + j * d_ * grid_.words(), d_, grid_);
    }
    SumRow weight_row(Size j) const {
        return SumRow(const_cast<double*>(weight_words_.data()) + j * weight_grid_.words(), 1,
                      weight_grid_);
    }

    Moves collect(Size n, const std::int32_t* labels, std::int32_t* summed) const {
        Moves moves;
        moves.start.assign(std::size_t(k_ + 2), 0);
        const auto label = [&](Size i) { return labels ? labels[i] : 0; };
        // Counted two places ahead, so that filling turns starts into the next centre's starts.
        for (Size i = 0; i < n; ++i) {
            if (label(i) == summed[i]) continue;
            if (summed[i] >= 0) ++moves.start[std::size_t(summed[i]) + 2];
            ++moves.start[std::size_t(label(i)) + 2];
        }
        for (std::size_t j = 2; j < moves.start.size(); ++j) moves.start[j] += moves.start[j - 1];
        moves.rows.resize(std::size_t(moves.start.back()));
        for (Size i = 0; i < n; ++i) {
            if (label(i) == summed[i]) continue;
            if (summed[i] >= 0)
                moves.rows[std::size_t(moves.start[std::size_t(summed[i]) + 1]++)] = 2 * i + 1;
            moves.rows[std::size_t(moves.start[std::size_t(label(i)) + 1]++)] = 2 * i;
            summed[i] = label(i);
        }
        return moves;
    }

    template <class Rows>
    static Size values_per_row(const Rows& x) {
        if constexpr (is_dense<Rows>)
            return std::max<Size>(1, x.d);
        else
            return std::max<Size>(1, x.n ? x.nonzeros() / x.n : 1);
    }

    // Long enough that a piece outweighs clearing and merging its own vector of sums.
    template <class Rows>
    Size piece_length(const Rows& x, Size moves) const {
        return std::clamp<Size>(8 * d_ / values_per_row(x), 1024, std::max<Size>(1024, moves));
    }

    template <class Rows>
    void add_piece(const Rows& x, const Moves& moves, const Piece& piece, std::mutex& mutex) {
        const std::size_t size = std::size_t(d_ * grid_.words());
        std::vector<double> own(piece.shared ? size : 0);
        SumRow sums = piece.shared ? SumRow(own.data(), d_, grid_) : row(piece.centre);
        std::vector<double> own_weight(std::size_t(weight_grid_.words()));
        SumRow weights(own_weight.data(), 1, weight_grid_);
        Size members = 0;
        for (Size at = piece.begin; at < piece.end; ++at) {
            const Size entry = moves.rows[std::size_t(at)], i = entry >> 1;
            const double sign = entry & 1 ? -1.0 : 1.0;
            sums.add(x, i, sign);
            weights.add_value(0, sign * x.weight(i));
            members += x.weight(i) > 0 ? Size(sign) : 0;
        }
        const std::lock_guard lock(mutex);
        double* to = words_.data() + piece.centre * d_ * grid_.words();
        for (std::size_t t = 0; t < own.size(); ++t) to[t] += own[t];
        double* to_weight = weight_words_.data() + piece.centre * weight_grid_.words();
        for (std::size_t w = 0; w < own_weight.size(); ++w) to_weight[w] += own_weight[w];
        members_[std::size_t(piece.centre)] += members;
        touched_[std::size_t(piece.centre)] = 1;
    }

    const double* plane(Size j, int w) const {
        return words_.data() + (j * grid_.words() + w) * d_;
    }

    Size k_, d_;
    Grid grid_, weight_grid_;
    std::vector<double> words_;         // k x words x d
    std::vector<double> weight_words_;  // k x words
    std::vector<Size> members_;
    std::vector<char> touched_;
};

}  // namespace exactmeans
