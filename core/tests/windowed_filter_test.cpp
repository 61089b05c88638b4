// Labels by 8-bit scores of one window of centres at a time.
#include "exactmeans/filter/windowed_filter.hpp"

#include <limits>
#include <vector>

#include "check.hpp"
#include "exact_score.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size d = 60, n = 700;

// Labels are those of canonical scores, with copies of centres in other windows, rows between two
// centres and a row without bounds; high and low bound the exact scores.
template <class R, class I>
void check_labels(Size k, bool signs, bool with_ids, bool sparse) {
    Random random(static_cast<std::uint64_t>(2 * k + signs));
    const Threads threads{2};
    const auto value = [&] {
        const double own = random.below(4) ? 0.0 : random.uniform(0.1, 1.0);
        return signs && random.coin() ? -own : own;
    };
    Matrix<R> centres(k, d, value), x(n, d, value);
    for (Size f = 0; f < d; ++f) {
        centres(k - 1, f) = centres(3, f);
        x(0, f) = centres(3, f);
        x(1, f) = R(0.5) * (centres(5, f) + centres(k - 2, f));
        x(2, f) = 0;
        x(3, f) = x(3, f) > 0 ? R(2e37) : R(0);
    }
    const Centres<R> centroids = sparse
                                     ? Centres<R>(sparse_of(centres), d, Frame<R>{}, threads)
                                     : Centres<R>(centres.values.data(), k, d, Frame<R>{}, threads);
    const Csr<R, I> csr(x);
    std::vector<Size> ids;
    for (Size i = 0; i < n; i += 1 + i % 3) ids.push_back(i);
    WindowedFilter<R> filter;
    const Size count = with_ids ? Size(ids.size()) : n;
    CHECK(
        filter.label_rows(csr.rows(), centroids, with_ids ? ids.data() : nullptr, count, threads));
    CanonicalScore<R> score_of;
    Size certain = 0;
    for (Size t = 0; t < count; ++t) {
        const Size i = with_ids ? ids[std::size_t(t)] : t, own = filter.label[std::size_t(t)];
        Size wanted = 0;
        R least = std::numeric_limits<R>::infinity();
        for (Size j = 0; j < k; ++j) {
            const R score = score_of(centroids, csr.rows().row(i), j);
            if (score < least) {
                least = score;
                wanted = j;
            }
            const double exact = double(exact_score(centroids, x, i, j));
            if (j == own)
                CHECK(exact <= filter.high[std::size_t(t)]);
            else
                CHECK(exact >= filter.low[std::size_t(t)]);
        }
        CHECK_EQ(own, wanted);
        certain += filter.high[std::size_t(t)] < filter.low[std::size_t(t)];
    }
    CHECK(certain > count - count / 16);  // bounds that are not vacuous
    CHECK_EQ(filter.label[0], 3);
}

}  // namespace

TEST(labels_and_bounds) {
    for (const Size k : {449, 768, 833})
        for (const bool signs : {false, true}) {
            check_labels<float, std::int32_t>(k, signs, false, true);
            check_labels<double, std::int64_t>(k, signs, true, true);
        }
    check_labels<float, std::int64_t>(600, true, true, false);
    check_labels<double, std::int32_t>(600, false, false, false);
}

TEST(too_many_candidates_give_no_labels) {
    constexpr Size k = 500;
    const Threads threads{1};
    Random random(1);
    // All centres are within rounding of each other.
    const Matrix<float> centres(k, d, [&] { return 1 + 1e-6 * random.unit(); });
    const Matrix<float> x(n, d, [&] { return random.unit(); });
    const Centres<float> centroids(centres.values.data(), k, d, Frame<float>{}, threads);
    const Csr<float, std::int32_t> csr(x);
    WindowedFilter<float> filter;
    CHECK(!filter.label_rows(csr.rows(), centroids, nullptr, n, threads));
}

TEST(fits_many_centres_of_few_features) {
    const Threads threads{1};
    const auto fits = [&](Size k, Size columns, Metric metric, Size rare_below,
                          double scratch_limit, Size nonzeros) {
        Frame<float> frame;
        frame.metric = metric;
        std::vector<SparseVector<float>> centres(static_cast<std::size_t>(k));
        for (auto& centre : centres) centre.push(0, 1.0f);
        LayoutSettings settings;
        settings.rare_below = rare_below;
        settings.scratch_limit = scratch_limit;
        return WindowedFilter<float>::fits(Centres<float>(centres, columns, frame, threads),
                                           settings, nonzeros);
    };
    CHECK(fits(449, 1000, Metric::euclidean, -1, 1e9, 8000));
    CHECK(!fits(448, 1000, Metric::euclidean, -1, 1e9, 8000));
    CHECK(!fits(449, 1000, Metric::manhattan, -1, 1e9, 8000));
    CHECK(!fits(449, 1000, Metric::euclidean, 4, 1e9, 8000));
    CHECK(!fits(449, 1000, Metric::euclidean, -1, 1e5, 8000));
    CHECK(!fits(449, 1000, Metric::euclidean, -1, 1e9, 7999));
    CHECK(!fits(449, 100000, Metric::euclidean, -1, 1e9, 800000));
}
