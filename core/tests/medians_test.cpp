// Weighted lower medians must agree with their definition, evaluated without sorting: the least
// value with at least half of the weight at or below it.
#include "exactmeans/update/medians.hpp"

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R>
struct Sample {
    Matrix<R> x;
    std::vector<double> weights;
    Labels labels;
    Matrix<R> centres;  // before

    Sample(Random& random, Size n, Size d, Size k, double density)
        : x(n, d), weights(static_cast<std::size_t>(n)), labels(weights.size()), centres(k, d) {
        // Few distinct values, so that many are equal; integer weights, so that halves are exact.
        for (R& v : x.values) v = R(random.unit() < density ? random.between(-4, 4) / 4.0 : 0.0);
        for (double& w : weights) w = double(random.between(0, 3));
        for (std::int32_t& label : labels) label = std::int32_t(random.below(k));
        for (R& v : centres.values) v = R(random.normal());
    }
};

template <class R>
R wanted_median(const Sample<R>& s, const double* weights, Size j, Size f) {
    const auto weight = [&](Size i) { return s.labels[i] != j ? 0.0 : weights ? weights[i] : 1.0; };
    double total = 0;
    for (Size i = 0; i < s.x.n; ++i) total += weight(i);
    if (total == 0) return s.centres(j, f);
    R least = std::numeric_limits<R>::infinity();
    for (Size i = 0; i < s.x.n; ++i) {
        if (weight(i) == 0) continue;
        double below = 0;
        for (Size o = 0; o < s.x.n; ++o)
            if (s.x(o, f) <= s.x(i, f)) below += weight(o);
        if (2 * below >= total) least = std::min(least, s.x(i, f));
    }
    return least;
}

template <class Rows, class R>
void check_medians(const Rows& rows, const Sample<R>& s) {
    Matrix<R> wanted(s.centres.n, s.x.d);
    for (Size j = 0; j < wanted.n; ++j)
        for (Size f = 0; f < wanted.d; ++f) wanted(j, f) = wanted_median(s, rows.weights, j, f);
    for (const int n_jobs : {1, 3}) {
        Matrix<R> got = s.centres;
        medians(rows, s.labels.data(), got.n, got.values.data(), Threads{n_jobs});
        CHECK(got.values == wanted.values);
    }
}

template <class R>
void check_all() {
    Random random(sizeof(R));
    for (const Size n : {1, 2, 7, 60})
        for (const Size d : {1, 5, 70})
            for (const double density : {0.1, 0.5, 1.0}) {
                // With more clusters than rows, centres without weight do not move.
                const Sample<R> s(random, n, d, 4, density);
                const Csr<R, std::int32_t> narrow(s.x);
                const Csr<R, std::int64_t> wide(s.x);
                for (const double* weights : {(const double*)nullptr, s.weights.data()}) {
                    check_medians(s.x.rows(weights), s);
                    check_medians(narrow.rows(weights), s);
                    check_medians(wide.rows(weights), s);
                }
            }
}

}  // namespace

TEST(medians_float) { check_all<float>(); }
TEST(medians_double) { check_all<double>(); }

TEST(medians_of_columns_in_fortran_order) {
    Random random(3);
    const Sample<double> s(random, 50, 40, 3, 1.0);
    std::vector<double> turned(s.x.values.size());
    for (Size i = 0; i < 50; ++i)
        for (Size f = 0; f < 40; ++f) turned[std::size_t(f * 50 + i)] = s.x(i, f);
    check_medians(DenseRows<double>{turned.data(), 50, 40, 1, 50, s.weights.data()}, s);
}

TEST(rounded_weights_make_no_zeros) {
    // Sums of tenths are rounded. If all rows store a feature, there must be no zero among the
    // values.
    const Matrix<double> x(10, 1, [] { return 5.0; });
    const std::vector<double> weights(10, 0.1);
    const Labels labels(10, 0);
    double centre = -1;
    medians(Csr<double, std::int32_t>(x).rows(weights.data()), labels.data(), 1, &centre,
            Threads{});
    CHECK_EQ(centre, 5.0);
}

TEST(members_are_the_rows_that_count) {
    Matrix<double> x(6, 1, [] { return 1.0; });
    const std::vector<double> weights{1, 0, 2, 3, 1, 1}, norms{1, 1, 1, 0, 1, 1};
    const Labels labels{2, 0, 0, 2, 2, 0};
    DenseRows<double> rows = x.rows(weights.data());
    rows.norms = norms.data();
    const Members members(rows, labels.data(), 3);
    CHECK_EQ(members.k(), 3);
    CHECK_EQ(members.count(0), 2);
    CHECK_EQ(members.count(1), 0);
    CHECK_EQ(members.count(2), 2);
    CHECK_EQ(members.of(0)[0], 2);
    CHECK_EQ(members.of(0)[1], 5);
    CHECK_EQ(members.of(2)[0], 0);
    CHECK_EQ(members.of(2)[1], 4);
}
