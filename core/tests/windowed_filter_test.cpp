// Labels by 8-bit scores of one window of centres at a time.
#include "exactmeans/filter/windowed_filter.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "check.hpp"
#include "exact_score.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size d = 60, n = 700;

// high bounds the score of the label, and low those of all other centres, with room for the
// rounding of canonical scores. Row t of the filter is row_of(t) of x.
template <class R, class RowOf>
void check_bounds(const WindowedFilter<R>& filter, const Centres<R>& centroids, const Matrix<R>& x,
                  RowOf row_of) {
    for (Size j = 0; j < centroids.k(); ++j) {
        const ExactCentre<R> centre(centroids, j);
        for (std::size_t t = 0; t < filter.label.size(); ++t) {
            const auto [score, rounding] = centre(x, row_of(Size(t)));
            if (filter.label[t] == j)
                CHECK(filter.high[t] >= score + rounding);
            else
                CHECK(filter.low[t] <= score - rounding);
        }
    }
}

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
    const auto row_of = [&](Size t) { return with_ids ? ids[std::size_t(t)] : t; };
    check_bounds(filter, centroids, x, row_of);
    CanonicalScore<R> score_of;
    Size certain = 0;
    for (Size t = 0; t < count; ++t) {
        const Size i = row_of(t), own = filter.label[std::size_t(t)];
        Size wanted = 0;
        R least = std::numeric_limits<R>::infinity();
        for (Size j = 0; j < k; ++j) {
            const R score = score_of(centroids, csr.rows().row(i), j);
            if (score < least) {
                least = score;
                wanted = j;
            }
        }
        CHECK_EQ(own, wanted);
        certain += filter.high[std::size_t(t)] < filter.low[std::size_t(t)];
    }
    CHECK(certain > count - count / 16);  // bounds that are not vacuous
    CHECK_EQ(filter.label[0], 3);
}

// The centre with the lowest score but one is not a candidate: its 8-bit score is too high, and
// that of the second candidate is too low. So the lower bound is that of the scores of all other
// places, in the panels of the candidates and elsewhere. `side` is the sign of all values.
template <class R>
void check_rest(int side) {
    constexpr Size k = 500, features = 40, last = features;  // rows do not have the last feature
    constexpr double x_value = 2, scale = 1 / 16.0, unit = x_value * scale, base = 60;
    const Threads threads{2};
    Random random(static_cast<std::uint64_t>(10 + side));
    // Places whose 8-bit codes are low bytes of words: they are the integers nearest to the values.
    std::vector<Size> places;
    for (Size j = 0; j < k; ++j)
        if (j % QuantizedPanels::unit < QuantizedPanels::unit / 2) places.push_back(j);
    const auto pick = [&] {
        std::swap(places[std::size_t(random.below(Size(places.size())))], places.back());
        const Size j = places.back();
        places.pop_back();
        return j;
    };
    Matrix<R> centres(k, features + 1), x(features, features + 1);
    for (Size j = 0; j < k; ++j) centres(j, last) = 15;
    // Gives a centre this value of feature f, and this score with row f.
    const auto set = [&](Size f, double value, double score) {
        const Size j = pick();
        centres(j, f) = R(side * value);
        centres(j, last) = R(std::sqrt(2 * (score + value * x_value) - value * value));
        return j;
    };
    std::vector<Size> candidate, rest;
    for (Size f = 0; f < features; ++f) {
        x(f, f) = R(side * x_value);
        // The largest value determines the scale. The zero point is 127 if no packed value is
        // positive.
        set(f, scale * (side > 0 ? 254 : 127) / cost::scale_headroom, base + 40);
        const double code = double(random.between(20, 60));
        // The 8-bit score is `above` the lowest one, and the exact score `off` above that.
        const auto place = [&](double above, double off) {
            const double v = code + off * side;
            return set(f, scale * (side > 0 ? 127 - v : v), base + unit * (above + off));
        };
        place(0, 0);
        candidate.push_back(place(1.02, 0.47));
        rest.push_back(place(1.08, -0.47));
    }
    const Centres<R> centroids(centres.values.data(), k, features + 1, Frame<R>{}, threads);
    const Csr<R, std::int32_t> csr(x);
    WindowedFilter<R> filter;
    CHECK(filter.label_rows(csr.rows(), centroids, nullptr, features, threads));
    check_bounds(filter, centroids, x, [](Size t) { return t; });
    for (Size f = 0; f < features; ++f) {
        const auto exact = [&](const std::vector<Size>& of) {
            return double(exact_score(centroids, x, f, of[std::size_t(f)]));
        };
        // The bounds are those of the case above.
        CHECK(exact(rest) < exact(candidate) - 0.5 * unit);
        CHECK(filter.high[std::size_t(f)] < base + 0.05 * unit);
        CHECK(filter.low[std::size_t(f)] > base + 0.4 * unit);
    }
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

TEST(lower_bounds_of_centres_that_are_no_candidates) {
    for (const int side : {1, -1}) {
        check_rest<float>(side);
        check_rest<double>(side);
    }
}

// Score offsets are stored too low, by more than products with the rows and their errors.
TEST(bounds_of_score_offsets) {
    constexpr Size k = 500, rows = 20;
    const Threads threads{1};
    Random random(3);
    const auto run = [&]<class R>(R) {
        Matrix<R> centres(k, 2), x(rows, 2, [&] { return 1e-9 * random.unit(); });
        for (Size j = 0; j < k; ++j) centres(j, 0) = R(1 + 0x1p-10 * double((j * 77 + 200) % k));
        const Centres<R> centroids(centres.values.data(), k, 2, Frame<R>{}, threads);
        const Csr<R, std::int32_t> csr(x);
        WindowedFilter<R> filter;
        CHECK(filter.label_rows(csr.rows(), centroids, nullptr, rows, threads));
        check_bounds(filter, centroids, x, [](Size t) { return t; });
        for (Size i = 0; i < rows; ++i)
            CHECK(filter.high[std::size_t(i)] < filter.low[std::size_t(i)]);
    };
    run(float());
    run(double());
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
