#include "exactmeans/evaluate/nearest_centres.hpp"

#include <algorithm>
#include <limits>

#include "check.hpp"
#include "exactmeans/evaluate/distance_sums.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// The m lowest by a full sort.
template <class R>
Labels sorted(const std::vector<R>& scores, Size m) {
    const auto value = [&](std::int32_t j) {
        const R score = scores[std::size_t(j)];
        return std::isnan(score) ? std::numeric_limits<R>::infinity() : score;
    };
    Labels order(scores.size());
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = std::int32_t(j);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return value(a) < value(b); });
    order.resize(std::size_t(m));
    return order;
}

template <class R>
void check_selection() {
    constexpr R infinity = std::numeric_limits<R>::infinity();
    Random random(5);
    LowestScores<R> lowest;
    for (int round = 0; round < 400; ++round) {
        const Size k = random.between(1, 40);
        std::vector<R> scores(static_cast<std::size_t>(k));
        // Few values, so that there are ties, and some that are no finite numbers.
        for (R& score : scores) score = R(random.below(5)) - R(2);
        if (round % 3 == 0)
            for (R& score : scores)
                if (random.below(3) == 0)
                    score = random.coin() ? infinity : std::numeric_limits<R>::quiet_NaN();
        for (Size m = 1; m <= k; ++m) {
            Labels got(static_cast<std::size_t>(m));
            lowest.select(scores.data(), k, m, got.data());
            CHECK(got == sorted(scores, m));
        }
    }
}

template <class R>
struct Sample {
    Matrix<R> x, centres;
    Frame<R> frame;

    Sample(Metric metric, int exponent, bool shifted)
        : x(200, 11,
            [random = Random(1)]() mutable { return random.unit() < 0.3 ? 0.0 : random.normal(); }),
          centres(13, 11, [random = Random(2)]() mutable { return random.normal(); }) {
        frame.metric = metric;
        if (metric == Metric::euclidean) frame.exponent = exponent;
        for (R& v : x.values) v = R(std::ldexp(double(v), -frame.exponent));
        for (R& v : centres.values) v = R(std::ldexp(double(v), -frame.exponent));
        if (shifted) frame.shift.assign(11, R(std::ldexp(0.25, -frame.exponent)));
    }
};

template <class Rows, class R>
void check_nearest(const Rows& x, const Sample<R>& s) {
    SharedCentres<R> shared(Centres<R>(s.centres.values.data(), 13, 11, s.frame, Threads{}));
    const Points<R> points(s.centres.values.data(), 13, 11, s.frame.exponent, s.frame.metric);
    std::vector<R> all(200 * 13);
    transform(x, points, s.frame.shift_or_null(), all.data(), Threads{});
    for (const Size m : {1, 2, 3, 13}) {
        Labels labels(std::size_t(200 * m)), again(labels.size());
        std::vector<R> distances(labels.size()), same(labels.size());
        nearest_centres(NearestQuery(x, shared, points, m, Threads{}), labels.data(),
                        distances.data(), Threads{});
        nearest_centres(NearestQuery(x, shared, points, m, Threads{3}), again.data(), same.data(),
                        Threads{3});
        CHECK(again == labels && same_bits(same, distances));
        for (Size i = 0; i < 200; ++i)
            for (Size r = i * m; r < (i + 1) * m; ++r) {
                const R distance = distances[std::size_t(r)];
                CHECK(same_bits(distance, all[std::size_t(i * 13 + labels[std::size_t(r)])]));
                CHECK(r == i * m || distances[std::size_t(r - 1)] <= distance * R(1 + 1e-5));
            }
    }
}

template <class R>
void check_metrics() {
    for (const Metric metric : {Metric::euclidean, Metric::manhattan})
        for (const int exponent : {0, 60, -60}) {
            const Sample<R> s(metric, exponent, false);
            const Csr<R, std::int32_t> csr(s.x);
            check_nearest(s.x.rows(), s);
            check_nearest(csr.rows(), s);
            const Sample<R> far(metric, exponent, metric == Metric::euclidean);
            check_nearest(far.x.rows(), far);
        }
}

}  // namespace

TEST(lowest_scores_are_those_of_a_sort) {
    check_selection<float>();
    check_selection<double>();
}

TEST(nearest_centres_have_the_distances_of_transform) {
    check_metrics<float>();
    check_metrics<double>();
}

// Rows in pieces that are too short for the 8-bit filter are compared with all centres.
template <class R>
void check_filtered(double spread, double offset) {
    Random random(3);
    constexpr Size n = 2100, d = 256, k = 512;
    Matrix<R> c(k, d, [&] { return offset + spread * random.normal(); }), x(n, d);
    for (Size i = 0; i < n; ++i) {
        const Size a = random.below(k), b = random.below(k);
        for (Size f = 0; f < d; ++f)
            x(i, f) = i % 5 == 0 ? R((double(c(a, f)) + double(c(b, f))) / 2)
                                 : R(double(c(a, f)) + (i % 5 == 1 ? 0 : random.normal()));
    }
    for (Size f = 0; f < d; ++f) c(k - 1, f) = c(2, f);
    for (Size f = 0; f < d; ++f) x(9, f) = R(0);
    SharedCentres<R> shared(Centres<R>(c.values.data(), k, d, {}, Threads{}));
    const Points<R> points(c.values.data(), k, d, 0, Metric::euclidean);
    for (const Size m : {1, 2, 7}) {
        Labels labels(std::size_t(n * m)), wanted(labels.size());
        std::vector<R> distances(labels.size()), same(labels.size());
        const DenseRows<R> rows = x.rows();
        const NearestQuery<DenseRows<R>> query(rows, shared, points, m, Threads{});
        if (offset == 0) CHECK_EQ(query.filter.used(), integer_products().speed > 1);
        nearest_centres(query, labels.data(), distances.data(), Threads{3});
        for (Size begin = 0; begin < n; begin += 700) {
            DenseRows<R> piece = rows;
            piece.n = 700;
            piece.data += begin * piece.row_stride;
            const NearestQuery<DenseRows<R>> part(piece, shared, points, m, Threads{});
            CHECK(!part.filter.used());
            nearest_centres(part, wanted.data() + begin * m, same.data() + begin * m, Threads{});
        }
        CHECK(labels == wanted);
        CHECK(distances == same);
    }
}

TEST(the_filter_changes_no_nearest_centre) {
    check_filtered<float>(1.5, 0);
    check_filtered<double>(1.5, 0);
    check_filtered<float>(1e-3, 50);
}

TEST(distance_sums_add_up_transform) {
    const Sample<double> s(Metric::euclidean, 0, true);
    const Points<double> points(s.centres.values.data(), 13, 11, 0);
    Labels labels(13);
    for (std::size_t j = 0; j < 13; ++j) labels[j] = std::int32_t(j * j % 4);
    std::vector<double> all(200 * 13);
    transform(s.x.rows(), points, s.frame.shift_or_null(), all.data(), Threads{});
    std::vector<double> wanted(200 * 4);
    for (std::size_t i = 0; i < 200; ++i)
        for (std::size_t j = 0; j < 13; ++j)
            wanted[i * 4 + std::size_t(labels[j])] += all[i * 13 + j];
    for (const int n_jobs : {1, 3}) {
        std::vector<double> got(200 * 4);
        add_distances(s.x.rows(), points, s.frame.shift_or_null(), labels.data(), 4, got.data(),
                      Threads{n_jobs});
        CHECK(same_bits(got, wanted));
    }
}
