#include "exactmeans/evaluate/distances.hpp"
#include "exactmeans/evaluate/own_distances.hpp"

#include <limits>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R, class C>
long double distance2(const Matrix<R>& x, Size i, const Matrix<C>& points, Size j) {
    long double sum = 0;
    for (Size f = 0; f < x.d; ++f) {
        const long double step = static_cast<long double>(x(i, f)) - points(j, f);
        sum += step * step;
    }
    return sum;
}

template <class R>
long double norm2(const Matrix<R>& points, Size j) {
    return distance2(Matrix<R>(1, points.d), 0, points, j);
}

// Merging normalises, so equal totals have equal words.
std::array<std::int64_t, ExactSum::digits> canonical(const ExactSum& sum) {
    ExactSum out;
    out.add(sum);
    return out.words();
}

template <class R, class C>
struct Sample {
    Matrix<R> x;
    Matrix<C> points;
    std::vector<double> weights;
    Labels labels;

    Sample(Size n, Size d, Size k, double offset)
        : x(n, d), points(k, d), weights(static_cast<std::size_t>(n)), labels(weights.size()) {
        Random random(std::uint64_t(n + d + k));
        for (R& v : x.values) v = R(random.unit() < 0.4 ? 0.0 : offset + random.normal());
        for (C& v : points.values) v = C(offset + random.normal());
        for (double& w : weights) w = random.unit();
        for (std::int32_t& label : labels) label = std::int32_t(random.below(k));
    }
};

template <class Rows, class R, class C>
void check_distances(const Rows& rows, const Sample<R, C>& s, bool exact) {
    const Points<C> points(s.points.values.data(), s.points.n, s.points.d, 0);
    for (Size i = 0; i < s.x.n; ++i) {
        for (Size j = 0; j < s.points.n; ++j) {
            const double got = pair_cost(rows, i, points, j);
            const long double wanted = distance2(s.x, i, s.points, j);
            CHECK(got >= 0);
            // CSR distances cancel against |c|^2, which has twice the precision of a double; the
            // long double reference has less.
            const long double lost = exact ? 0 : 0x1p-60L * norm2(s.points, j);
            CHECK(std::fabs(got - wanted) <= 0x1p-51L * wanted + lost);
        }
    }
}

template <class Rows, class R, class C>
void check_scatter(const Rows& rows, const Sample<R, C>& s, bool labelled) {
    const Points<C> points(s.points.values.data(), s.points.n, s.points.d, 0);
    const std::int32_t* labels = labelled ? s.labels.data() : nullptr;
    long double plain = 0, weighted = 0;
    for (Size i = 0; i < s.x.n; ++i) {
        const long double d2 = distance2(s.x, i, s.points, labelled ? s.labels[i] : 0);
        plain += d2;
        weighted += d2 * rows.weight(i);
    }
    const Scatter first = scatter(rows, points, labels, Threads{});
    CHECK(std::fabs(first.plain.value() - plain) <= 0x1p-49L * plain);
    CHECK(std::fabs(first.weighted.value() - weighted) <= 0x1p-49L * weighted);
    for (int n_jobs = 2; n_jobs <= 7; ++n_jobs) {
        const Scatter all = scatter(rows, points, labels, Threads{n_jobs});
        CHECK(same_bits(all.plain.value(), first.plain.value()));
        CHECK(same_bits(all.weighted.value(), first.weighted.value()));
        CHECK(canonical(all.plain) == canonical(first.plain));
    }
}

template <class R>
void check_transform(int exponent) {
    Sample<R, R> s(700, 9, 6, 0.5);
    for (R& v : s.x.values) v = R(std::ldexp(double(v), -exponent));
    for (R& v : s.points.values) v = R(std::ldexp(double(v), -exponent));
    const Points<R> points(s.points.values.data(), 6, 9, exponent);
    const Csr<R, std::int64_t> sparse(s.x);
    std::vector<R> first(700 * 6), csr(700 * 6);
    transform(s.x.rows(), points, nullptr, first.data(), Threads{});
    transform(sparse.rows(), points, nullptr, csr.data(), Threads{3});
    const long double unit = 0.5L * std::numeric_limits<R>::epsilon();
    const long double back = std::ldexp(1.0L, -exponent);
    for (Size i = 0; i < 700; ++i) {
        for (Size j = 0; j < 6; ++j) {
            // The exponent range of long double suffices.
            const long double wanted = std::sqrt(distance2(s.x, i, s.points, j));
            const R got = first[std::size_t(i * 6 + j)], other = csr[std::size_t(i * 6 + j)];
            // Scores lose at most six bits to cancellation, and have few roundings.
            CHECK(std::fabs(got - wanted) <= (unit + 0x1p-44L) * wanted);
            CHECK(std::fabs(other - wanted) <= (unit + 0x1p-44L) * wanted);
            CHECK(std::isfinite(got) && got > 1e-3L * back);
        }
    }
    for (int n_jobs = 2; n_jobs <= 7; ++n_jobs) {
        std::vector<R> again(700 * 6);
        transform(s.x.rows(), points, nullptr, again.data(), Threads{n_jobs});
        CHECK(same_bits(again, first));
    }
}

template <class R, class C>
void check_sample(Size n, Size d, Size k, double offset) {
    const Sample<R, C> s(n, d, k, offset);
    const Csr<R, std::int32_t> narrow(s.x);
    const Csr<R, std::int64_t> wide(s.x);
    check_distances(s.x.rows(), s, true);
    check_distances(narrow.rows(), s, false);
    check_distances(wide.rows(), s, false);
    for (const double* weights : {static_cast<const double*>(nullptr), s.weights.data()}) {
        for (const bool labelled : {false, true}) {
            check_scatter(s.x.rows(weights), s, labelled);
            check_scatter(narrow.rows(weights), s, labelled);
        }
    }
}

}  // namespace

TEST(distances_and_scatter_are_as_accurate_as_float64) {
    for (const double offset : {0.0, 1000.0}) {
        check_sample<float, float>(600, 5, 4, offset);
        check_sample<float, double>(600, 5, 4, offset);
        check_sample<double, double>(600, 5, 4, offset);
        check_sample<double, double>(3, 1, 2, offset);
        check_sample<double, double>(50, 1000, 3, offset);
    }
}

TEST(distances_of_rows_to_themselves) {
    Random random(3);
    const Matrix<double> x(50, 20, [&] { return random.unit() < 0.5 ? 0.0 : random.normal(); });
    const Csr<double, std::int32_t> sparse(x);
    const Points<double> points(x.values.data(), 50, 20, 0);
    for (Size i = 0; i < 50; ++i) {
        CHECK_EQ(pair_cost(x.rows(), i, points, i), 0.0);
        CHECK_EQ(pair_cost(sparse.rows(), i, points, i), 0.0);
    }
}

TEST(points_know_their_norms) {
    Random random(4);
    const Matrix<float> p(10, 30, [&] { return random.normal(); });
    const Points<float> points(p.values.data(), 10, 30, 3);
    CHECK_EQ(points.scale, 8.0);
    for (Size j = 0; j < 10; ++j) {
        CHECK(std::fabs(points.norms[std::size_t(j)].value() - 64 * norm2(p, j)) <=
              0x1p-52L * 64 * norm2(p, j));
    }
}

TEST(every_row_is_visited_once_with_its_own_point) {
    const Sample<float, float> s(1000, 3, 7, 0);
    const Points<float> points(s.points.values.data(), 7, 3, 0);
    for (int n_jobs = 1; n_jobs <= 7; ++n_jobs) {
        std::vector<int> visits(1000);
        for_own_distances(s.x.rows(), points, s.labels.data(), Threads{n_jobs},
                          [&](Size i, double d2, int worker) {
                              ++visits[std::size_t(i)];
                              CHECK(worker >= 0 && worker < n_jobs);
                              CHECK_EQ(d2, pair_cost(s.x.rows(), i, points, s.labels[i]));
                          });
        CHECK(visits == std::vector<int>(1000, 1));
    }
}

TEST(transform_gives_distances_in_the_units_of_the_data) {
    check_transform<float>(0);
    check_transform<double>(0);
    check_transform<double>(-700);
    check_transform<double>(900);
    check_transform<float>(100);
    check_transform<float>(-100);
}

// Squares of these distances overflow; the distances do not.
TEST(rows_far_beyond_the_centres) {
    const Matrix<double> points(2, 3, [] { return 1.0; });
    Matrix<double> x(3, 3, [] { return 0.0; });
    x(0, 1) = 3e160;
    x(0, 2) = 4e160;
    x(1, 0) = -1e308;
    const Csr<double, std::int32_t> csr(x);
    const Points<double> own(points.values.data(), 2, 3, 0);
    const Labels labels(3, 1);
    const std::vector<double> weights{1, 0, 2};
    const auto check = [&](const auto& rows) {
        const double inf = std::numeric_limits<double>::infinity();
        const Scatter all = scatter(rows, own, labels.data(), Threads{2});
        CHECK_EQ(all.plain.value(), inf);
        CHECK_EQ(all.weighted.value(), inf);
        CHECK_EQ(pair_cost(rows, 2, own, 0), 3.0);
        std::vector<double> out(6);
        transform(rows, own, nullptr, out.data(), Threads{});
        CHECK(std::fabs(out[0] / 5e160 - 1) < 1e-15);
        CHECK(std::fabs(out[3] / 1e308 - 1) < 1e-15);
        CHECK_EQ(out[4], std::sqrt(3.0));
    };
    check(x.rows(weights.data()));
    check(csr.rows(weights.data()));
    // A row of weight 0 adds nothing, at any distance.
    const std::vector<double> without{0, 0, 2};
    CHECK_EQ(scatter(csr.rows(without.data()), own, labels.data(), Threads{}).weighted.value(),
             6.0);
    // Partial sums overflow although the row equals its point.
    const Matrix<double> far(1, 3, [] { return 1e200; });
    const Csr<double, std::int32_t> there(far);
    CHECK_EQ(pair_cost(there.rows(), 0, Points<double>(far.values.data(), 1, 3, 0), 0), 0.0);
}
