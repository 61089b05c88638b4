#include "exactmeans/filter/aggregated_scores.hpp"

#include <cmath>
#include <vector>

#include "check.hpp"
#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/centres/score_error.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size n = 300, d = 700, k = 30;

template <class R>
Matrix<R> random_rows(Size rows, Random& random, double scale) {
    return Matrix<R>(rows, d,
                     [&] { return random.below(9) ? 0.0 : scale * random.uniform(-0.5, 1.0); });
}

// The differences from exact scores (long double) and from canonical ones stay within ScoreError,
// and that bound is not vacuous.
template <class R, class I>
void check_scores(double scale, bool sparse, int n_jobs) {
    Random random(7);
    const Threads threads{n_jobs};
    Matrix<R> centres = random_rows<R>(k, random, 0.1 * scale);
    Matrix<R> x = random_rows<R>(n, random, scale);
    for (Size f = 0; f < d; ++f) {
        x(3, f) = 0;  // an empty row
        // One term so large that sequential sums lose all others.
        x(4, f) = centres(4, f) = R(scale * (f ? 0x1p-12 : 1.0));
    }
    const auto made = [&] {
        if (!sparse) return Centres<R>(centres.values.data(), k, d, Frame<R>{}, threads);
        return Centres<R>(sparse_of(centres), d, Frame<R>{}, threads);
    };
    const Centres<R> centroids = made();
    const Csr<R, I> csr(x);
    const auto rows = csr.rows();
    // Every pair, rows ascending; centre 5 has so many pairs that they make several pieces.
    std::vector<Size> row;
    std::vector<std::int32_t> centre;
    for (Size i = 0; i < n; ++i)
        for (Size j = 0; j < k + 20; ++j) {
            row.push_back(i);
            centre.push_back(std::int32_t(j < k ? j : 5));
        }
    std::vector<double> score;
    AggregatedScores<R> aggregated;
    for (int again = 0; again < 2; ++again)  // the buffers are clear after use
        aggregated.measure(rows, centroids, row, centre, score, threads);
    CHECK_EQ(score.size(), row.size());
    const ScoreError error(centroids);
    CanonicalScore<R> canonical;
    double worst = 0;
    for (std::size_t t = 0; t < row.size(); ++t) {
        const auto entries = rows.row(row[t]);
        const Size j = centre[t];
        long double exact = static_cast<long double>(centroids.score_offset()[j]);
        for (Size f = 0; f < d; ++f)
            exact -=
                static_cast<long double>(x(row[t], f)) * static_cast<long double>(centres(j, f));
        const double claimed = error.of(entries),
                     off = double(std::abs(exact - static_cast<long double>(score[t]))),
                     other = std::abs(double(canonical(centroids, entries, j)) - double(exact));
        CHECK(off + other <= claimed);
        worst = std::max(worst, (off + other) / claimed);
    }
    CHECK(worst > (sizeof(R) < sizeof(double) ? 0.05 : 1e-6));
}

template <class R>
bool bounded(R row, R centre, Size nonzeros) {
    const Matrix<R> centres(1, 2, [&] { return centre; });
    const Centres<R> centroids(centres.values.data(), 1, 2, Frame<R>{}, Threads{});
    const std::vector<R> value(static_cast<std::size_t>(nonzeros), row);
    const SparseRow<R, std::int32_t> own{nullptr, value.data(), nonzeros};
    return std::isfinite(ScoreError(centroids).of(own));
}

}  // namespace

TEST(scores_stay_within_their_error_bound) {
    for (const double scale : {1.0, 1e-6, 1e5})
        for (const bool sparse : {false, true}) {
            check_scores<float, std::int32_t>(scale, sparse, 1);
            check_scores<float, std::int64_t>(scale, sparse, 3);
            check_scores<double, std::int32_t>(scale, sparse, 2);
            check_scores<double, std::int64_t>(scale, sparse, 1);
        }
}

TEST(error_is_infinite_beyond_the_range_of_float32) {
    CHECK(bounded<double>(1, 1, 100));
    CHECK(bounded<float>(1e10f, 1e3f, 100));
    CHECK(!bounded<double>(1e20, 1, 100));
    CHECK(!bounded<double>(1, 1e20, 100));
    CHECK(!bounded<double>(1e-20, 1e9, 100));  // |c|^2 / 2 is too large
    CHECK(!bounded<double>(std::nan(""), 1, 100));
    CHECK(!bounded<float>(1e-3f, 1, 100'000));
}
