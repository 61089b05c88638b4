// Geodesic means: known solutions, a vanishing mean of the logs, and an objective that never rises.
#include "exactmeans/update/geodesic_means.hpp"

#include <numbers>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R>
struct Sample {
    Matrix<R> x;
    std::vector<double> weights, norms;
    Labels labels;
    Matrix<R> centres;

    // Rows within a cone about the centre of their cluster.
    Sample(Random& random, Size n, Size d, Size k, double spread, double density = 1)
        : x(n, d),
          weights(static_cast<std::size_t>(n)),
          norms(weights.size()),
          labels(weights.size()),
          centres(k, d) {
        for (R& v : centres.values) v = R(random.normal());
        for (Size i = 0; i < n; ++i) {
            const Size j = random.below(k);
            labels[i] = std::int32_t(j);
            weights[i] = random.uniform(0.5, 2);
            const double scale = random.uniform(0.1, 10);
            for (Size f = 0; f < d; ++f)
                x(i, f) = R(random.unit() < density
                                ? scale * (double(centres(j, f)) + spread * random.normal())
                                : 0.0);
            norms[i] = length(x.row(i), d);
        }
        for (Size j = 0; j < k; ++j) {
            std::vector<double> place(centres.row(j), centres.row(j) + d);
            direction(place.data(), d, 0, &centres(j, 0));
        }
    }
    DenseRows<R> rows() const {
        DenseRows<R> out = x.rows(weights.data());
        out.norms = norms.data();
        return out;
    }
};

template <class R>
double objective(const Sample<R>& s, const Matrix<R>& centres) {
    long double sum = 0;
    for (Size i = 0; i < s.x.n; ++i) {
        if (s.norms[i] == 0) continue;
        long double dot = 0, x2 = 0, c2 = 0;
        for (Size f = 0; f < s.x.d; ++f) {
            const long double v = s.x(i, f), c = centres(s.labels[i], f);
            dot += v * c;
            x2 += v * v;
            c2 += c * c;
        }
        const long double angle = std::acos(std::clamp(dot / std::sqrt(x2 * c2), -1.0L, 1.0L));
        sum += static_cast<long double>(s.weights[i]) * angle * angle;
    }
    return double(sum);
}

// The length of the gradient, the mean of log_c over a cluster: 0 at its geodesic mean.
template <class R>
double gradient_length(const Sample<R>& s, const Matrix<R>& centres, Size j) {
    std::vector<long double> mean(static_cast<std::size_t>(s.x.d));
    long double weight = 0, size2 = 0, c2 = 0;
    for (Size f = 0; f < s.x.d; ++f) c2 += static_cast<long double>(centres(j, f)) * centres(j, f);
    for (Size i = 0; i < s.x.n; ++i) {
        if (s.labels[i] != j || s.norms[i] == 0) continue;
        long double dot = 0, x2 = 0;
        for (Size f = 0; f < s.x.d; ++f) {
            dot += static_cast<long double>(s.x(i, f)) * centres(j, f);
            x2 += static_cast<long double>(s.x(i, f)) * s.x(i, f);
        }
        const long double cosine = std::clamp(dot / std::sqrt(x2 * c2), -1.0L, 1.0L);
        const long double angle = std::acos(cosine), sine = std::sin(angle);
        const long double factor = s.weights[i] * (sine > 0 ? angle / sine : 1.0L);
        for (Size f = 0; f < s.x.d; ++f)
            mean[f] +=
                factor * (s.x(i, f) / std::sqrt(x2) - cosine * centres(j, f) / std::sqrt(c2));
        weight += s.weights[i];
    }
    for (const long double v : mean) size2 += v / weight * (v / weight);
    return double(std::sqrt(size2));
}

template <class R>
void check_sample(double spread, double tolerance) {
    Random random(sizeof(R));
    for (const Size d : {2, 5, 40}) {
        Sample<R> s(random, 3000, d, 3, spread);
        const DenseRows<R> rows = s.rows();
        Matrix<R> stepping = s.centres;
        double before = objective(s, stepping);
        for (int step = 0; step < 6; ++step) {
            const double reported =
                Karcher(rows, s.labels.data(), 3, Threads{}).run(stepping.values.data(), 1, 0);
            CHECK(std::fabs(reported - before) <= 1e-5 * before);
            const double after = objective(s, stepping);
            CHECK(after <= before * (1 + (sizeof(R) == 4 ? 1e-6 : 1e-13)));
            before = after;
        }
        Matrix<R> first = s.centres;
        for (const int n_jobs : {1, 3}) {
            Matrix<R> found = s.centres;
            Karcher(rows, s.labels.data(), 3, Threads{n_jobs})
                .run(found.values.data(), 1000, tolerance / 10);
            for (Size j = 0; j < 3; ++j) CHECK(gradient_length(s, found, j) <= tolerance);
            if (n_jobs == 1) first = found;
            CHECK(same_bits(found.values, first.values));
        }
        // The same rows as CSR.
        const Csr<R, std::int32_t> sparse(s.x);
        CsrRows<R, std::int32_t> stored = sparse.rows(s.weights.data());
        stored.norms = s.norms.data();
        Matrix<R> found = s.centres;
        Karcher(stored, s.labels.data(), 3, Threads{2})
            .run(found.values.data(), 1000, tolerance / 10);
        for (Size j = 0; j < 3; ++j) CHECK(gradient_length(s, found, j) <= tolerance);
    }
}

}  // namespace

TEST(gradient_vanishes_float) { check_sample<float>(0.5, 1e-6); }
TEST(gradient_vanishes_double) { check_sample<double>(0.5, 1e-11); }

TEST(known_solutions) {
    // a rows at (1, 0) and b at (0, 1), of any length.
    for (const auto& [a, b] : {std::pair{3, 1}, {1, 3}, {5, 2}, {1, 1}}) {
        Matrix<double> x(a + b, 2);
        for (Size i = 0; i < a + b; ++i) x(i, i < a ? 0 : 1) = double(i + 1);
        std::vector<double> norms;
        for (Size i = 0; i < a + b; ++i) norms.push_back(double(i + 1));
        DenseRows<double> rows = x.rows();
        rows.norms = norms.data();
        const Labels labels(std::size_t(a + b), 0);
        double centre[2] = {std::sqrt(0.5), std::sqrt(0.5)};
        Karcher(rows, labels.data(), 1, Threads{}).run(centre, 1000, 1e-15);
        const double wanted = double(b) / double(a + b) * std::numbers::pi / 2;
        CHECK(std::fabs(std::atan2(centre[1], centre[0]) - wanted) < 1e-14);
    }
}

TEST(centres_without_a_gradient_do_not_move) {
    Matrix<double> x(3, 2);
    x(0, 0) = -4;                              // opposite to its centre
    x(1, 1) = 1;                               // on its centre
    const std::vector<double> norms{4, 1, 0};  // the last has no direction
    DenseRows<double> rows = x.rows();
    rows.norms = norms.data();
    const Labels labels{0, 1, 2};
    Matrix<double> centres(4, 2);
    centres(0, 0) = centres(1, 1) = centres(2, 0) = centres(3, 1) = 1;
    const std::vector<double> before = centres.values;
    Karcher(rows, labels.data(), 4, Threads{}).run(centres.values.data(), 100, 1e-13);
    CHECK(same_bits(centres.values, before));
}
