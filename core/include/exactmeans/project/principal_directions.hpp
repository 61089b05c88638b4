// Approximate leading principal directions of a few rows, by subspace iteration on the Gram matrix
// of the rows, or of the columns if these are fewer. The directions must be orthonormal but need
// not be exact: bounds hold for any axes. LAPACK is not used, because on a busy machine its threads
// spin for seconds over a task of milliseconds.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/data/rows.hpp"

namespace exactmeans {

class Directions {
public:
    // rows: n x d, centred. Returns up to m directions of d values, the leading one first.
    static std::vector<double> leading(const double* rows, Size n, Size d, Size m) {
        if (d < n) {
            std::vector<double> columns(std::size_t(d * n));
            for (Size i = 0; i < n; ++i)
                for (Size f = 0; f < d; ++f) columns[std::size_t(f * n + i)] = rows[i * d + f];
            return iterated(columns.data(), d, n, m);
        }
        return orthonormal(times(iterated(rows, n, d, m), rows, n, d), d);
    }

private:
    // Up to m leading eigenvectors, of n entries each, of the Gram matrix of the rows.
    static std::vector<double> iterated(const double* rows, Size n, Size d, Size m) {
        std::vector<double> gram(std::size_t(n * n));
        for (Size i = 0; i < n; ++i)
            for (Size j = 0; j <= i; ++j)
                gram[std::size_t(i * n + j)] = gram[std::size_t(j * n + i)] =
                    dot(rows + i * d, rows + j * d, d);
        std::vector<double> basis = start_vectors(m, n);
        for (int round = 0; round < cost::subspace_iterations; ++round)
            basis = orthonormal(times(basis, gram.data(), n, n), n);
        return basis;
    }

    static double dot(const double* a, const double* b, Size d) {
        double part[4] = {};
        Size f = 0;
        for (; f + 4 <= d; f += 4)
            for (Size l = 0; l < 4; ++l) part[l] += a[f + l] * b[f + l];
        for (; f < d; ++f) part[0] += a[f] * b[f];
        return (part[0] + part[2]) + (part[1] + part[3]);
    }

    // Pseudo-random entries in [-0.5, 0.5), the same in every run.
    static std::vector<double> start_vectors(Size m, Size n) {
        std::vector<double> vectors(std::size_t(m * n));
        std::uint64_t state = 1;
        for (double& value : vectors) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            value = double(state >> 11) * 0x1p-53 - 0.5;
        }
        return vectors;
    }

    // Vectors of n entries times an n x d matrix.
    static std::vector<double> times(const std::vector<double>& vectors, const double* matrix,
                                     Size n, Size d) {
        const Size m = Size(vectors.size()) / n;
        std::vector<double> out(std::size_t(m * d), 0.0);
        for (Size v = 0; v < m; ++v)
            for (Size i = 0; i < n; ++i) {
                const double factor = vectors[std::size_t(v * n + i)];
                double* to = out.data() + v * d;
                for (Size f = 0; f < d; ++f) to[f] += factor * matrix[i * d + f];
            }
        return out;
    }

    // Gram-Schmidt, two rounds per vector. Drops vectors that depend on the previous ones.
    static std::vector<double> orthonormal(std::vector<double> vectors, Size d) {
        Size kept = 0;
        for (Size v = 0; v < Size(vectors.size()) / d; ++v) {
            double* vector = vectors.data() + v * d;
            const double before = std::sqrt(dot(vector, vector, d));
            for (int again = 0; again < 2; ++again)
                for (Size w = 0; w < kept; ++w) {
                    const double* other = vectors.data() + w * d;
                    const double component = dot(vector, other, d);
                    for (Size f = 0; f < d; ++f) vector[f] -= component * other[f];
                }
            const double length = std::sqrt(dot(vector, vector, d));
            if (!(length > 1e-6 * before)) continue;
            double* to = vectors.data() + kept++ * d;
            for (Size f = 0; f < d; ++f) to[f] = vector[f] / length;
        }
        vectors.resize(std::size_t(kept * d));
        return vectors;
    }
};

}  // namespace exactmeans
