#include "exactmeans/filter/verify_candidates.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size n = 30, k = 12, d = 40;

// One chain of fused multiply-adds over ascending features; the score offset is added last.
template <class R>
R chain(const Centres<R>& centroids, const R* row, Size j) {
    R sum = 0;
    for (Size f = 0; f < d; ++f)
        sum = std::fma(
            row[f], R(-std::ldexp(centroids.derived(j, f), 2 * centroids.frame().exponent)), sum);
    return sum + centroids.score_offset()[j];
}

template <class R>
void check_labels(bool dense, bool shifted) {
    Random random(static_cast<std::uint64_t>(dense + 2 * shifted));
    const auto value = [&] { return dense || random.below(3) ? random.normal() : 0.0; };
    const Matrix<R> x(n, d, value);
    Matrix<R> centres(k, d, value);
    // Centre 7 equals centre 3: the lower index wins.
    for (Size f = 0; f < d; ++f) centres(7, f) = centres(3, f);
    Frame<R> frame;
    frame.exponent = 3;
    if (shifted) frame.shift.assign(std::size_t(d), R(0.25));
    const Centres<R> centroids(centres.values.data(), k, d, frame, Threads{1});
    const Csr<R, std::int32_t> csr(x);
    const auto rows = csr.rows();
    CanonicalScore<R> score_of;
    const std::vector<std::int32_t> candidates{9, 7, 3, 11, 0};
    Size doubles = 0;
    for (Size i = 0; i < n; ++i) {
        std::vector<R> row(x.row(i), x.row(i) + d);
        for (R& v : row) v -= shifted ? R(0.25) : R(0);
        if (i < n / 2)
            for (Size f = 0; f < d; ++f) row[std::size_t(f)] = centroids.derived(3, f);
        Verified<R> wanted{0, std::numeric_limits<R>::infinity()};
        for (const std::int32_t j : {0, 3, 7, 9, 11})
            if (chain(centroids, row.data(), j) < wanted.score)
                wanted = {j, chain(centroids, row.data(), j)};
        const R* const values = row.data();
        Verified<R> got = verify_candidates<R>(score_of, centroids, values, candidates);
        CHECK_EQ(got.label, wanted.label);
        CHECK(same_bits(got.score, wanted.score));
        doubles += got.label == 3;
        if (shifted || i < n / 2) continue;
        got = verify_candidates<R>(score_of, centroids, rows.row(i), candidates);
        CHECK_EQ(got.label, wanted.label);
        CHECK(same_bits(got.score, wanted.score));
    }
    CHECK(doubles >= n / 2);
}

}  // namespace

TEST(labels_are_the_lowest_canonical_scores) {
    for (const bool shifted : {false, true}) {
        check_labels<float>(true, shifted);
        check_labels<double>(true, shifted);
    }
    check_labels<float>(false, false);
    check_labels<double>(false, false);
}

TEST(no_candidate_below_infinity_gives_label_0) {
    const Matrix<double> centres(1, d, [] { return 1e300; });
    const Centres<double> centroids(centres.values.data(), 1, d, Frame<double>{}, Threads{1});
    CanonicalScore<double> score_of;
    const std::vector<double> row(static_cast<std::size_t>(d));
    const double* const values = row.data();
    const std::vector<std::int32_t> all{0};
    CHECK_EQ(verify_candidates<double>(score_of, centroids, values, all).label, 0);
    CHECK_EQ(verify_candidates<double>(score_of, centroids, values, {}).label, 0);
}
