// Geodesic means on the sphere (H. Karcher, Riemannian center of mass and mollifier smoothing,
// Comm. Pure Appl. Math. 30, 1977).
//
// Gradient descent: a step takes c along the mean v of log_c(x) = angle / sin(angle) (x -
// cos(angle) c) to exp_c(v) = cos|v| c + sin|v| v / |v|. The second derivative of half the squared
// angle to a point is at most 1 along any geodesic, so a full step never increases the sum of
// squared angles. All logs are orthogonal to c, so it suffices to sum T = sum of w angle /
// sin(angle) x and to remove its component along c. Memory: d numbers per cluster.
//
// The log of a point opposite to c is not defined; such points are left out of the mean. Clusters
// are cut into pieces of rows by the data alone, and pieces are added in order, so the result does
// not depend on the threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows_by_label.hpp"
#include "exactmeans/numerics/exact_sum.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"

namespace exactmeans {

template <class Rows>
class Karcher {
public:
    using R = typename Rows::Real;

    Karcher(const Rows& x, const std::int32_t* labels, Size k, const Threads& threads)
        : x_(x), members_(x, labels, k), threads_(threads), active_(std::size_t(k), 1) {
        // Enough rows to outweigh clearing and merging the sums of the piece: estimates. They
        // decide how sums round, so a change of them changes results.
        const Size length = std::max<Size>(1024, 8 * x.d / values_per_row(x));
        for (Size j = 0; j < k; ++j)
            for (Size at = 0; at < members_.count(j); at += length)
                pieces_.push_back({j, at, std::min(at + length, members_.count(j))});
    }

    // Up to `most` steps, each for the clusters whose last step exceeded the tolerance. Returns the
    // sum of w angle^2 at the initial centres.
    double run(R* centres, Size most, double tolerance) {
        const Size k = members_.k(), d = x_.d;
        std::vector<double> positions(centres, centres + k * d);
        for (Size j = 0; j < k; ++j) {  // centres have length 1 up to rounding in R
            const double norm = length(positions.data() + j * d, d);
            for (Size f = 0; f < d; ++f) positions[std::size_t(j * d + f)] /= norm;
        }
        double objective = 0;
        for (Size round = 0; round < most; ++round) {
            const double before = tangents(positions.data());
            if (round == 0) objective = before;
            step(positions.data(), tolerance);
            if (std::find(active_.begin(), active_.end(), char(1)) == active_.end()) break;
        }
        for (Size j = 0; j < k; ++j)
            if (members_.count(j)) direction(positions.data() + j * d, d, 0, centres + j * d);
        return objective;
    }

private:
    struct Piece {
        Size cluster, begin, end;
    };
    struct Partial {
        std::vector<double> sum;  // T of the piece
        double weight = 0;
        ExactSum objective;
    };

    // Sets tangents_ to T of every active cluster; returns the objective.
    double tangents(const double* positions) {
        const Size k = members_.k();
        tangents_.resize(std::size_t(k));
        weights_.assign(std::size_t(k), 0.0);
        ExactSum objective;
        // Computes a batch of pieces in parallel, then adds their sums in order.
        const Size batch = cost::tasks_per_thread * threads_.n_jobs;
        std::vector<Partial> parts(static_cast<std::size_t>(batch));
        for (Size j = 0; j < k; ++j) tangents_[std::size_t(j)].clear();
        for (Size first = 0; first < Size(pieces_.size()); first += batch) {
            const Size count = std::min(batch, Size(pieces_.size()) - first);
            threads_.run(count, [&](Size p, int) {
                add_piece(pieces_[std::size_t(first + p)], positions, parts[std::size_t(p)]);
            });
            for (Size p = 0; p < count; ++p) {
                const Size j = pieces_[std::size_t(first + p)].cluster;
                if (!active_[std::size_t(j)]) continue;
                Partial& part = parts[std::size_t(p)];
                std::vector<double>& sum = tangents_[std::size_t(j)];
                if (sum.empty())
                    sum.swap(part.sum);
                else
                    for (std::size_t f = 0; f < sum.size(); ++f) sum[f] += part.sum[f];
                weights_[std::size_t(j)] += part.weight;
                objective.add(part.objective);
            }
        }
        return objective.value();
    }

    void add_piece(const Piece& piece, const double* positions, Partial& part) const {
        if (!active_[std::size_t(piece.cluster)]) return;
        part.sum.assign(std::size_t(x_.d), 0.0);
        part.weight = 0;
        part.objective = ExactSum();
        const double* c = positions + piece.cluster * x_.d;
        std::vector<R> buffer;
        for (Size t = piece.begin; t < piece.end; ++t) {
            const Size i = members_.of(piece.cluster)[t];
            const auto row = stored(x_, i, buffer);
            const double norm = x_.norms[i], weight = x_.weight(i);
            double dot = 0;
            for (Size e = 0; e < row.nonzeros; ++e)
                dot += double(row.value[e]) / norm * c[row.index ? Size(row.index[e]) : e];
            const double cosine = std::clamp(dot, -1.0, 1.0), angle = std::acos(cosine);
            part.weight += weight;
            part.objective.add(weight * (angle * angle));
            if (1 + cosine < opposite) continue;
            const double sine = std::sqrt((1 - cosine) * (1 + cosine)),
                         factor = weight * (sine > 0x1p-20 ? angle / sine : 1.0);
            for (Size e = 0; e < row.nonzeros; ++e)
                part.sum[row.index ? std::size_t(row.index[e]) : std::size_t(e)] +=
                    factor * (double(row.value[e]) / norm);
        }
    }

    // Moves active centres along their tangents; those that moved by at most the tolerance are no
    // longer active.
    void step(double* positions, double tolerance) {
        threads_.ranges(members_.k(), 1, [&](Size j, Size, int) {
            std::vector<double>& v = tangents_[std::size_t(j)];
            if (!active_[std::size_t(j)] || v.empty()) {
                active_[std::size_t(j)] = 0;
                return;
            }
            double* c = positions + j * x_.d;
            const double c2 = dot(c, c), along = dot(v.data(), c) / c2;
            for (std::size_t f = 0; f < v.size(); ++f)
                v[f] = (v[f] - along * c[f]) / weights_[std::size_t(j)];
            const double size = std::sqrt(dot(v.data(), v.data()));
            active_[std::size_t(j)] = size > tolerance;
            if (!(size > 0)) return;
            const double by_centre = std::cos(size) / std::sqrt(c2),
                         by_tangent = std::sin(size) / size;
            for (std::size_t f = 0; f < v.size(); ++f) c[f] = by_centre * c[f] + by_tangent * v[f];
        });
    }

    double dot(const double* a, const double* b) const {
        double sum = 0;
        for (Size f = 0; f < x_.d; ++f) sum += a[f] * b[f];
        return sum;
    }

    // Points with 1 + cos below this count as opposite: their angles have an error of about 1e-8,
    // their sines have no correct digit.
    static constexpr double opposite = 0x1p-48;

    const Rows& x_;
    Members members_;
    const Threads& threads_;
    std::vector<char> active_;
    std::vector<Piece> pieces_;
    std::vector<std::vector<double>> tangents_;
    std::vector<double> weights_;
};

}  // namespace exactmeans
