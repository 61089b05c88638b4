// Labels of float64 rows by scores in float32.
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/scan/float32_scores.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size n = 400, d = 600, k = 37, ties = 20;

// Sparse centres. The first two have no feature in common and the same length.
template <class R>
Matrix<R> centres_of(Random& random, bool signs, double scale) {
    Matrix<R> centres(k, d, [&] {
        return random.below(8) ? 0.0 : scale * random.uniform(signs ? -0.5 : 0.0, 1.0);
    });
    for (Size f = 0; f < d; ++f) {
        centres(1, f) = f % 2 ? centres(0, f - 1) : R(0);
        if (f % 2) centres(0, f) = 0;
    }
    return centres;
}
// The first rows are half-way between the first two centres, exactly or up to less than a rounding
// of float32.
Matrix<double> rows_of(Random& random, const Matrix<double>& centres, bool signs, double scale) {
    Matrix<double> x(n, d, [&] {
        return random.below(6) ? 0.0 : scale * random.uniform(signs ? -0.5 : 0.0, 1.0);
    });
    for (Size i = 0; i < ties; ++i)
        for (Size f = 0; f < d; ++f) {
            x(i, f) = centres(0, f) + centres(1, f);
            if (f % 2 == i % 4 / 2) x(i, f) *= 1 + 1e-10 * double(i / 4);
        }
    for (Size f = 0; f < d; ++f) x(ties, f) = 0;
    return x;
}

// score and second must bound exact scores (long double); labels must be those of canonical scores.
template <class I>
void check_labels(bool signs, double scale, bool with_ids) {
    Random random(static_cast<std::uint64_t>(1 + signs));
    const Threads threads{2};
    const Matrix<double> centres = centres_of<double>(random, signs, scale);
    const Matrix<double> x = rows_of(random, centres, signs, scale);
    SharedCentres<double> shared(Centres<double>(sparse_of(centres), d, Frame<double>{}, threads));
    const Centres<double>& centroids = shared.centres;
    shared.layouts.set_rare_below(5);
    const Csr<double, I> csr(x);
    const auto rows = csr.rows();
    RowSlacks<double> slacks;
    Work<CsrRows<double, I>> work(rows, shared, nullptr, slacks);
    CHECK(work.pack_float32(threads));
    std::vector<Size> ids;
    for (Size i = 0; i < n; ++i) ids.push_back(n - 1 - i);
    Scan<CsrRows<double, I>> scan;
    const Size open = scan.nearest_by_float32(work, 0, with_ids ? ids.data() : nullptr, n);
    CHECK(open >= ties && open < n / 8);
    CanonicalScore<double> canonical;
    double widest = 0;
    for (Size t = 0; t < n; ++t) {
        const Size i = with_ids ? ids[std::size_t(t)] : t, own = scan.label[std::size_t(t)];
        const double high = scan.score[std::size_t(t)], low = scan.second[std::size_t(t)];
        std::vector<double> wanted, exact;
        for (Size j = 0; j < k; ++j) {
            wanted.push_back(canonical(centroids, rows.row(i), j));
            long double score = static_cast<long double>(centroids.score_offset()[j]);
            for (Size f = 0; f < d; ++f)
                score -=
                    static_cast<long double>(x(i, f)) * static_cast<long double>(centres(j, f));
            exact.push_back(double(score));
        }
        CHECK_EQ(own, Size(std::min_element(wanted.begin(), wanted.end()) - wanted.begin()));
        const double rounding = 1e-13 * scale * scale;
        for (Size j = 0; j < k; ++j)
            CHECK(j == own ? exact[std::size_t(j)] <= high + rounding
                           : exact[std::size_t(j)] >= low - rounding);
        widest = std::max(widest, high - exact[std::size_t(own)]);
    }
    // The error is far below the differences between scores, and no larger than float32 needs.
    CHECK(widest > 1e-8 * scale * scale && widest < 2e-2 * scale * scale);
}

template <class R>
bool is_taken(double scale, bool sparse, Metric metric, int exponent) {
    Random random(3);
    const Threads threads{1};
    const Matrix<R> centres = centres_of<R>(random, false, scale);
    Frame<R> frame;
    frame.metric = metric;
    frame.exponent = exponent;
    SharedCentres<R> shared(sparse ? Centres<R>(sparse_of(centres), d, frame, threads)
                                   : Centres<R>(centres.values.data(), k, d, frame, threads));
    shared.layouts.set_rare_below(5);
    const Csr<R, std::int32_t> csr(centres);
    const auto rows = csr.rows();
    RowSlacks<R> slacks;
    Work<CsrRows<R, std::int32_t>> work(rows, shared, nullptr, slacks);
    return work.pack_float32(threads);
}

}  // namespace

TEST(labels_are_those_of_canonical_scores) {
    for (const bool signs : {false, true})
        for (const double scale : {1.0, 1e-4, 1e6}) {
            check_labels<std::int32_t>(signs, scale, false);
            check_labels<std::int64_t>(signs, scale, true);
        }
}

TEST(float32_is_used_only_within_its_range) {
    CHECK(is_taken<double>(1, true, Metric::euclidean, 0));
    CHECK(!is_taken<float>(1, true, Metric::euclidean, 0));
    CHECK(!is_taken<double>(1, false, Metric::euclidean, 0));
    CHECK(!is_taken<double>(1, true, Metric::manhattan, 0));
    CHECK(!is_taken<double>(1, true, Metric::euclidean, 3));
    CHECK(!is_taken<double>(1e-12, true, Metric::euclidean, 0));
    CHECK(!is_taken<double>(1e20, true, Metric::euclidean, 0));
}
