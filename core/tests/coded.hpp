// Dense rows and centres with their 8-bit codes. Include check.hpp first.
#pragma once

#include <utility>
#include <vector>

#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/filter/coded_rows.hpp"
#include "samples.hpp"

namespace samples {

using namespace exactmeans;

// Rows and centres with their codes.
template <class R>
struct Coded {
    Matrix<R> x, c;
    DenseRows<R> rows = x.rows();
    SharedCentres<R> shared;
    const Centres<R>& centroids = shared.centres;
    bool usable = false;
    DenseCodes<R> codes{};
    DenseCentreCodes<R> centres{};

    Coded(Matrix<R> of_rows, Matrix<R> of_centres, Frame<R> frame = {},
          const double* norms = nullptr)
        : x(std::move(of_rows)),
          c(std::move(of_centres)),
          shared(Centres<R>(c.values.data(), c.n, c.d, std::move(frame), Threads{})) {
        rows.norms = norms;
        CHECK(DenseCodes<R>::possible(rows, centroids.frame()));
        codes.choose_origin(rows, centroids.frame());
        usable = centres.update(centroids, codes, Threads{});
    }
    DenseFilterInput<R> input() const { return {rows, centroids, codes, centres}; }
};

template <class R>
Matrix<R> normal(Size n, Size d, Random& random, double spread = 1) {
    return Matrix<R>(n, d, [&] { return spread * random.normal(); });
}

template <class R>
std::vector<CodedVector> stored_rows(Coded<R>& coded) {
    coded.codes.store(coded.rows, coded.centroids.frame(), Threads{});
    return {coded.codes.row(0), coded.codes.row(0) + coded.rows.n};
}

// The exact score of row i and centre j.
template <class R>
long double exact_score(const Coded<R>& coded, Size i, Size j) {
    const R* const shift = coded.centroids.frame().shift_or_null();
    const auto value = [&](R v, Size f) {
        return static_cast<long double>(shift ? v - shift[f] : v);
    };
    long double score = coded.centroids.score_offset()[j];
    for (Size f = 0; f < coded.c.d; ++f) score -= value(coded.x(i, f), f) * value(coded.c(j, f), f);
    return score;
}

}  // namespace samples
