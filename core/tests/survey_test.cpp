#include "exactmeans/numerics/survey.hpp"

#include <limits>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

bool equal(const Survey& a, const Survey& b) {
    return a.largest == b.largest && a.largest_weight == b.largest_weight && a.bounds == b.bounds &&
           a.first_bad_row == b.first_bad_row && a.bad_is_nan == b.bad_is_nan;
}

template <class R>
void check_bounds(const Matrix<R>& x, const double* weights) {
    Survey wanted(x.d);
    Survey together(1);
    for (Size i = 0; i < x.n; ++i) {
        const double weight = weights ? weights[i] : 1.0;
        wanted.largest_weight = std::max(wanted.largest_weight, weight);
        for (Size f = 0; f < x.d; ++f) {
            const double size = std::fabs(double(x(i, f)));
            wanted.largest = std::max(wanted.largest, size);
            double& bound = wanted.bounds[std::size_t(f)];
            bound = std::max(bound, std::fabs(weight * double(x(i, f))));
            together.bounds[0] = std::max(together.bounds[0], bound);
        }
    }
    together.largest = wanted.largest;
    together.largest_weight = wanted.largest_weight;
    std::vector<R> fortran(x.values.size());
    for (Size i = 0; i < x.n; ++i) {
        for (Size f = 0; f < x.d; ++f) fortran[std::size_t(f * x.n + i)] = x(i, f);
    }
    const Csr<R, std::int32_t> csr32(x);
    const Csr<R, std::int64_t> wide(x);
    for (int n_jobs = 1; n_jobs <= 7; ++n_jobs) {
        const Threads threads{n_jobs};
        CHECK(equal(survey(x.rows(weights), threads), wanted));
        CHECK(equal(survey(DenseRows<R>{fortran.data(), x.n, x.d, 1, x.n, weights}, threads),
                    wanted));
        CHECK(equal(survey(csr32.rows(weights), threads), together));
        CHECK(equal(survey(wide.rows(weights), threads), together));
    }
}

// Puts NaN and infinities into rows and expects the first such row, on any number of threads.
template <class R>
void check_bad(const std::vector<std::pair<Size, double>>& bad, Size first, bool is_nan) {
    Random random(5);
    Matrix<R> x(5000, 3, [&] { return random.normal(); });
    for (const auto& [row, value] : bad) x(row, row % 3) = R(value);
    const Csr<R, std::int32_t> sparse(x);
    for (int n_jobs = 1; n_jobs <= 7; ++n_jobs) {
        const Survey dense = survey(x.rows(), Threads{n_jobs});
        const Survey csr = survey(sparse.rows(), Threads{n_jobs});
        for (const Survey* s : {&dense, &csr}) {
            CHECK_EQ(s->first_bad_row, first);
            CHECK_EQ(s->bad_is_nan, is_nan);
        }
    }
}

template <class R>
void check_all_bad() {
    check_bad<R>({}, -1, false);
    check_bad<R>({{0, not_a_number}}, 0, true);
    check_bad<R>({{4999, inf}}, 4999, false);
    check_bad<R>({{4999, -inf}}, 4999, false);
    check_bad<R>({{4998, inf}, {1030, not_a_number}, {1031, inf}}, 1030, true);
    check_bad<R>({{17, -inf}, {18, not_a_number}, {3000, not_a_number}}, 17, false);
}

}  // namespace

TEST(bounds_are_the_largest_weighted_magnitudes) {
    Random random(1);
    for (const Size n : {1, 2, 1024, 5000}) {
        for (const Size d : {1, 3, 17}) {
            const auto value = [&] {
                return random.unit() < 0.3 ? 0.0
                                           : random.normal() * std::pow(10.0, random.normal());
            };
            std::vector<double> weights(static_cast<std::size_t>(n));
            for (double& w : weights) w = random.unit();
            const Matrix<float> single(n, d, value);
            const Matrix<double> twice(n, d, value);
            check_bounds(single, nullptr);
            check_bounds(single, weights.data());
            check_bounds(twice, nullptr);
            check_bounds(twice, weights.data());
        }
    }
}

TEST(a_single_value_is_found_wherever_it_is) {
    for (Size at = 0; at < 60; ++at) {
        Matrix<float> x(3, 20);
        x(at / 20, at % 20) = -5;
        const Survey found = survey(x.rows(), Threads{});
        CHECK_EQ(found.largest, 5.0);
        for (Size f = 0; f < 20; ++f) {
            CHECK_EQ(found.bounds[std::size_t(f)], f == at % 20 ? 5.0 : 0.0);
        }
    }
}

TEST(the_first_row_that_is_not_finite_is_named) {
    check_all_bad<float>();
    check_all_bad<double>();
}

TEST(a_row_with_both_counts_as_nan) {
    for (const bool nan_first : {false, true}) {
        Matrix<double> x(4, 3);
        x(2, 0) = nan_first ? not_a_number : inf;
        x(2, 2) = nan_first ? inf : not_a_number;
        const Survey found = survey(x.rows(), Threads{});
        CHECK_EQ(found.first_bad_row, 2);
        CHECK(found.bad_is_nan);
    }
}

TEST(the_largest_finite_values_are_finite) {
    Matrix<double> x(2, 2);
    x(1, 0) = std::numeric_limits<double>::max();
    x(1, 1) = -std::numeric_limits<double>::denorm_min();
    const Survey found = survey(x.rows(), Threads{});
    CHECK_EQ(found.first_bad_row, -1);
    CHECK_EQ(found.bounds[0], std::numeric_limits<double>::max());
    CHECK_EQ(found.bounds[1], std::numeric_limits<double>::denorm_min());
}

TEST(surveys_of_blocks_merge) {
    Random random(2);
    Matrix<double> x(300, 4, [&] { return random.normal(); });
    x(250, 1) = inf;
    x(260, 1) = not_a_number;
    std::vector<double> weights(300);
    for (double& w : weights) w = random.unit();
    const Survey whole = survey(x.rows(weights.data()), Threads{});
    for (const bool backwards : {false, true}) {
        Survey all(4);
        for (Size t = 0; t < 3; ++t) {
            const Size begin = 100 * (backwards ? 2 - t : t);
            const DenseRows<double> block{x.row(begin), 100, 4, 4, 1, weights.data() + begin};
            all.merge(survey(block, Threads{}), begin);
        }
        CHECK(equal(all, whole));
        CHECK_EQ(all.first_bad_row, 250);
    }
}

TEST(features_are_counted) {
    Matrix<float> x(3, 4);
    x(0, 1) = x(2, 1) = x(2, 3) = 5;
    std::vector<std::int64_t> dense(4, 1), csr(4, 1);
    count_features(x.rows(), dense.data());
    count_features(Csr<float, std::int64_t>(x).rows(), csr.data());
    CHECK(dense == std::vector<std::int64_t>(4, 4));
    CHECK(csr == (std::vector<std::int64_t>{1, 3, 1, 2}));
}

TEST(no_rows) {
    const Survey dense = survey(Matrix<double>(0, 3).rows(), Threads{2});
    CHECK_EQ(dense.largest, 0.0);
    CHECK_EQ(dense.first_bad_row, -1);
    CHECK(dense.bounds == std::vector<double>(3, 0.0));
}
